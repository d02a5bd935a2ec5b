"""Event streams, resumption and abandoned calls of members over HTTP, against scripted servers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.http_sessions import (
    always,
    call,
    failure_of_call,
    made,
    opened,
)
from tests.servers.raw_http import (
    Member,
    Peer,
    Request,
    chunk,
    event,
    response,
    result,
    stream_head,
)

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members import http1, streamable_exchange
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from mcpgroup_gateway.wire.envelope import Message


def progress(token: int, value: int = 1) -> bytes:
    params = {"progressToken": token, "progress": value}
    return json.dumps(
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    ).encode()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_streams_with_any_line_end_cut_at_every_byte_are_read(end: bytes) -> None:
    async def script(request: Request, peer: Peer) -> None:
        stream = event(progress(7), end=end) + event(result(request, {"ok": True}), end=end)
        wire = stream_head() + b"".join(chunk(bytes([each])) for each in stream) + chunk(b"")
        for index in range(0, len(wire), 7):
            await peer.send(wire[index : index + 7])
            await asyncio.sleep(0)

    async with opened(Member().on("tools/call", script)) as it:
        seen: list[Message] = []
        answer = await call(it.session, seen=seen, token=7)
        assert json.loads(bytes(answer.result)) == {"ok": True}
        assert [each.method for each in seen] == ["notifications/progress"]


async def test_what_belongs_to_the_call_stays_with_it_and_the_rest_goes_to_the_session() -> None:
    log = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}'
    changed = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    stranger = b'{"jsonrpc":"2.0","id":999,"result":{}}'
    other = b"event: endpoint\ndata: /x\n\n"

    def script(request: Request) -> bytes:
        late = event(progress(1, 9)) + event(result(request, {"second": True}))
        parts = [log, changed, stranger, progress(1), progress(99), result(request, {})]
        body = other + b": hi\n\n" + b"".join(event(each) for each in parts) + late
        return stream_head() + chunk(body) + chunk(b"")

    async with opened(Member().on("tools/call", made(script))) as it:
        seen: list[Message] = []
        answer = await call(it.session, seen=seen, token=1)
        assert bytes(answer.result) == b"{}"
        assert [each.method for each in seen] == ["notifications/message", "notifications/progress"]
        assert [each.method for each in it.notifications] == ["notifications/tools/list_changed"]


async def test_requests_of_the_member_are_answered_at_once() -> None:
    async def script(request: Request, peer: Peer) -> None:
        ping = b'{"jsonrpc":"2.0","id":"p","method":"ping"}'
        ask = b'{"jsonrpc":"2.0","id":5,"method":"roots/list"}'
        await peer.send(stream_head() + chunk(event(ping) + event(ask)))
        await it.server.until(lambda: len(answers()) == 2)
        await peer.send(chunk(event(result(request, {}))) + chunk(b""))

    def answers() -> list[dict[str, Any]]:
        return [each.message for each in it.server.requests if each.body and not each.rpc_method]

    async with opened(Member().on("tools/call", script)) as it:
        await call(it.session)
        by_id = {each["id"]: each for each in answers()}
        assert by_id["p"]["result"] == {}
        assert by_id[5]["error"]["code"] == -32601


async def test_a_malformed_event_ends_the_call() -> None:
    script = always(stream_head() + chunk(b"data: {nonsense\n\n"))
    async with opened(Member().on("tools/call", script)) as it:
        assert (await failure_of_call(it.session)).failure is Failure.MALFORMED


async def test_a_stream_that_ends_without_an_event_id_is_a_reset_after_sending() -> None:
    for tail in (chunk(b""), b"5\r\ncut"):
        data = stream_head() + chunk(b": hello\n\n") + tail

        async def script(request: Request, peer: Peer, data: bytes = data) -> None:
            await peer.send(data)
            peer.close()

        async with opened(Member().on("tools/call", script)) as it:
            found = await failure_of_call(it.session, safe=True)
            assert (found.failure, found.sent) == (Failure.RESET, True)
            assert len(it.server.seen("tools/call")) == 1


async def test_a_broken_stream_is_resumed_behind_its_last_event() -> None:
    calls: list[Request] = []

    async def begin(request: Request, peer: Peer) -> None:
        calls.append(request)
        await peer.send(stream_head() + chunk(b"id: a-1\nretry: 50\ndata: \n\n") + chunk(b""))

    async def resume(request: Request, peer: Peer) -> None:
        position = request.headers["last-event-id"]
        if position == "a-1":
            await peer.send(stream_head() + chunk(event(progress(3), event_id="a-2")))
            peer.reset()
        else:
            await peer.send(stream_head() + chunk(event(result(calls[0], {"ok": 1}))) + chunk(b""))

    async with opened(Member().on("tools/call", begin).on("GET", resume)) as it:
        seen: list[Message] = []
        answer = await call(it.session, seen=seen, token=3)
        assert json.loads(bytes(answer.result)) == {"ok": 1}
        assert len(seen) == 1
        positions = [each.headers.get("last-event-id") for each in it.server.requests]
        assert positions[-2:] == ["a-1", "a-2"]
        assert len(calls) == 1


@pytest.mark.parametrize("how", ["405", "404", "empty", "reset"])
async def test_a_stream_that_cannot_be_resumed_is_lost(how: str) -> None:
    begin = always(stream_head() + chunk(b"id: 1\nretry: 1\ndata: \n\n") + chunk(b""))

    async def resume(request: Request, peer: Peer) -> None:
        if how == "reset":
            peer.reset()
        elif how == "empty":
            await peer.send(stream_head() + chunk(b""))
        else:
            await peer.send(response(status=int(how)))

    async with opened(Member().on("tools/call", begin).on("GET", resume)) as it:
        found = await failure_of_call(it.session)
        assert (found.failure, found.sent) == (Failure.RESET, True)
        assert len(it.server.seen("tools/call")) == 1
        gets = [each for each in it.server.requests if each.method == "GET"]
        # A reset on a kept connection proves nothing: GET is safe and tried on a new one.
        tries = {"empty": streamable_exchange.FRUITLESS_RESUMPTIONS, "reset": 2}
        assert len(gets) == tries.get(how, 1)


async def test_a_slow_reader_slows_the_member_down() -> None:
    log = {"method": "notifications/message", "params": {"data": "x" * 1000}}
    part = chunk(event(json.dumps({"jsonrpc": "2.0", **log}).encode()) * 100)
    sent = 0

    async def script(request: Request, peer: Peer) -> None:
        nonlocal sent
        await peer.send(stream_head())
        for _ in range(300):
            await peer.send(part)
            sent += 1
        await peer.send(chunk(event(result(request, {}))) + chunk(b""))

    async with opened(Member().on("tools/call", script)) as it:
        exchange = it.session.request("tools/call", b"{}")
        await exchange.next()
        before = -1
        while before != sent:  # until the member cannot write any more
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 200
        assert exchange._call is not None
        assert exchange._call._buffered < 2 * http1.HIGH_WATER
        count = 1
        while not (await exchange.next()).is_response:
            count += 1
        exchange.close()
        assert count == 300 * 100


# Ending exchanges


async def test_an_aborted_call_is_cancelled_at_the_member_within_a_tenth_of_a_second() -> None:
    async def hang(request: Request, peer: Peer) -> None:
        await peer.gone.wait()

    async with opened(Member().on("tools/call", hang)) as it:
        exchange = it.session.request("tools/call", b"{}")
        waiting = asyncio.ensure_future(exchange.next())
        await it.server.until(lambda: len(it.server.seen("tools/call")) == 1)
        assert exchange.sent
        why = MemberFailure(Failure.CANCELLED, "the caller gave up", sent=True)
        exchange.abort(why)
        with pytest.raises(MemberFailure) as caught:
            await waiting
        assert caught.value is why
        await it.server.until(lambda: len(it.server.seen("notifications/cancelled")) == 1, 0.1)
        request = it.server.seen("tools/call")[0]
        cancelled = it.server.seen("notifications/cancelled")[0]
        assert cancelled.message["params"]["requestId"] == request.id
        assert cancelled.connection != request.connection
        await asyncio.wait_for(it.server.peers[request.connection].gone.wait(), 1)
        exchange.close()
        assert it.session.in_flight == 0


async def test_an_exchange_that_is_given_up_is_cancelled_and_one_that_was_answered_is_not() -> None:
    async def hang(request: Request, peer: Peer) -> None:
        if request.message["params"]["name"] == "hang":
            await peer.gone.wait()
        await peer.send(response(result(request, {})))

    async with opened(Member().on("tools/call", hang)) as it:
        await call(it.session)
        never = it.session.request("tools/call", b'{"name":"hang"}')
        never.close()  # nothing was sent
        exchange = it.session.request("tools/call", b'{"name":"hang"}')
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(exchange.next(), 0.05)
        exchange.close()
        exchange.close()
        await it.server.until(lambda: len(it.server.seen("notifications/cancelled")) == 1)
        given_up = it.server.seen("tools/call")[-1]
        cancelled = it.server.seen("notifications/cancelled")[0]
        assert cancelled.message["params"]["requestId"] == given_up.id
        assert it.session.in_flight == 0


async def test_the_rest_of_an_answered_stream_frees_the_connection_for_the_next_call() -> None:
    release = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(stream_head() + chunk(event(result(request, {}))))
        await release.wait()
        await peer.send(chunk(event(progress(1))) + chunk(b""))

    async with opened(Member().on("tools/call", script)) as it:
        await call(it.session)
        release.set()
        await asyncio.sleep(0.1)  # the end of the stream is no event that anybody waits for
        await call(it.session, "ping")
        assert len(it.server.peers) == 1


# The GET stream


async def test_a_control_session_hears_what_the_member_says_unasked() -> None:
    changed = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(stream_head() + chunk(event(changed, event_id="g-1")))

    async with opened(Member().on("GET", script), control=True) as it:
        async with asyncio.timeout(5):
            await it.news.wait()
        assert [each.method for each in it.notifications] == ["notifications/tools/list_changed"]
        await call(it.session)


async def test_progress_on_the_get_stream_finds_its_call_by_token() -> None:
    streams: list[Peer] = []

    async def stream(request: Request, peer: Peer) -> None:
        await peer.send(stream_head())
        streams.append(peer)

    async def script(request: Request, peer: Peer) -> None:
        await streams[0].send(chunk(event(progress(41)) + event(progress(42))))
        await asyncio.sleep(0.05)
        await peer.send(response(result(request, {})))

    async with opened(Member().on("GET", stream).on("tools/call", script), control=True) as it:
        await it.server.until(lambda: it.server.requests[-1].method == "GET")
        seen: list[Message] = []
        await call(it.session, seen=seen, token=42)
        assert len(seen) == 1
        assert not it.notifications


async def test_a_get_stream_that_ends_is_opened_again_behind_its_last_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcpgroup_gateway.members.streamable_listener.SHORTEST_PAUSE", 0.01)
    script = always(stream_head() + chunk(b"id: g-7\ndata: \n\n") + chunk(b""))
    async with opened(Member().on("GET", script), control=True) as it:

        def positions() -> list[str | None]:
            gets = [each for each in it.server.requests if each.method == "GET"]
            return [each.headers.get("last-event-id") for each in gets]

        await it.server.until(lambda: len(positions()) >= 2)
        assert positions()[:2] == [None, "g-7"]


async def test_a_member_without_a_get_stream_is_not_asked_again() -> None:
    async with opened(Member(), control=True) as it:
        await it.server.until(lambda: it.server.requests[-1].method == "GET")
        assert it.session._listening is not None
        await asyncio.wait_for(it.session._listening, 2)
        await call(it.session)
        assert not it.losses


async def test_404_on_the_get_stream_is_a_lost_session_only_when_a_ping_agrees() -> None:
    gone = always(response(status=404))
    async with opened(Member().on("GET", gone), control=True) as it:
        await it.server.until(lambda: bool(it.server.seen("ping")))
        await call(it.session)
        assert not it.session.lost
    async with opened(Member().on("GET", gone).on("ping", gone), control=True) as it:
        async with asyncio.timeout(5):
            await it.news.wait()
        assert [each.failure for each in it.losses] == [Failure.SESSION_LOST]
