"""One stream of a session: what waits for its connection, and who waits for room."""

from __future__ import annotations

import asyncio

from mcpgroup_gateway.serving.event_stream import STREAM_BYTES, STREAM_MESSAGES, EventStream


class Connection:
    def __init__(self) -> None:
        self.cuts = 0

    def cut(self) -> None:
        self.cuts += 1


def carried(name: str = "g1") -> tuple[EventStream, Connection]:
    stream, connection = EventStream(name), Connection()
    stream.attach(connection)
    return stream, connection


def test_what_waits_is_bounded_in_messages_and_bytes() -> None:
    stream, _ = carried()
    assert [stream.push(b"{}") for _ in range(STREAM_MESSAGES + 1)].count(True) == STREAM_MESSAGES
    wide, _ = carried()
    assert wide.push(b"x" * (STREAM_BYTES + 1))  # one large message alone may pass
    assert not wide.push(b"x")


def test_without_a_connection_nothing_is_pushed() -> None:
    stream, connection = carried()
    stream.detach(connection)
    assert not stream.push(b"{}")


async def test_what_waits_is_given_before_the_end() -> None:
    stream, connection = carried()
    stream.push(b"1")
    stream.push(b"2")
    stream.end()
    assert not stream.push(b"3")
    assert await stream.next(connection) == [
        b"event: message\nid: g1-1\ndata: 1\n\n",
        b"event: message\nid: g1-2\ndata: 2\n\n",
    ]
    assert await stream.next(connection) is None


async def test_a_reader_learns_of_its_end_while_it_waits() -> None:
    stream, first = carried()
    waiting = asyncio.create_task(stream.next(first))
    await asyncio.sleep(0)
    second = Connection()
    stream.attach(second)
    following = asyncio.create_task(stream.next(second))
    assert await waiting is None
    assert first.cuts == 1
    stream.push(b"1")
    assert await following == [b"event: message\nid: g1-1\ndata: 1\n\n"]
    following = asyncio.create_task(stream.next(second))
    await asyncio.sleep(0)
    stream.detach(second)
    assert await following is None


async def test_senders_wait_for_a_connection_that_lags_but_not_without_one() -> None:
    stream, connection = carried("p1")
    stream.put(b"x" * 100_000)
    senders = [asyncio.create_task(stream.room()) for _ in range(3)]
    await asyncio.sleep(0)
    senders[0].cancel()
    await asyncio.sleep(0)
    assert not any(sender.done() for sender in senders[1:])
    stream.take()
    await asyncio.gather(*senders[1:])
    stream.put(b"x" * 100_000)
    waiting = asyncio.create_task(stream.room())
    await asyncio.sleep(0)
    stream.detach(connection)
    await waiting
    stream.put(b"x" * 100_000)
    await stream.room()
    assert not stream.lags


def test_the_first_event_says_where_the_stream_stands() -> None:
    stream, connection = carried("p7")
    assert stream.priming() == b"id: p7-0\nretry: 1000\ndata:\n\n"
    stream.attach(connection, 5)
    assert stream.priming().startswith(b"id: p7-5\n")
