"""Clients that are slow, rude or gone: what they get, and that others do not feel them."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING

import pytest
from tests.harness.front import Stage, call, staged, until
from tests.harness.messages import ACCEPT, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PING = request("ping", 1)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


async def test_pipelined_requests_are_answered_in_order(stage: Stage) -> None:
    wire = await stage.connect()
    for number in range(50):
        wire.request(call("echo", number))
    for number in range(50):
        assert (await wire.answer()).json["id"] == number


async def test_a_body_in_many_pieces_arrives_whole(stage: Stage) -> None:
    wire = await stage.connect()
    wire.request(call("echo", 1, pad="x" * 3_000_000))
    await wire.writer.drain()
    assert len((await wire.answer()).body) > 3_000_000


async def test_a_client_that_waits_for_100_continue_gets_it(stage: Stage) -> None:
    wire = await stage.connect()
    body = json.dumps(PING).encode()
    wire.request(b"", content_length=str(len(body)), expect="100-continue")
    assert (await wire.head())[0] == 100
    wire.send(body)
    assert (await wire.answer()).status == 200


async def test_a_body_that_does_not_come_is_408() -> None:
    async with staged(body_seconds=0.2) as stage:
        wire = await stage.connect()
        wire.request(b'{"jsonrpc"', content_length="1000")
        answer = await wire.answer()
        assert answer.status == 408
        assert "error" in answer.json
        assert answer.headers["connection"] == "close"
        await wire.closed()
        assert stage.front.in_flight == 0


async def test_a_head_that_does_not_end_is_cut_off() -> None:
    async with staged(head_seconds=0.2) as stage:
        silent, slow, kept = [await stage.connect() for _ in range(3)]
        slow.send(b"POST /mcp HTTP/1.1\r\nHost: local")
        assert (await kept.ask(PING)).status == 200
        assert await silent.closed() == b""
        assert await slow.closed() == b""
        # A kept-alive connection may rest longer, but not within its next head.
        assert (await kept.ask(PING)).status == 200
        kept.send(b"POST /mcp HTTP/1.1\r\n")
        assert await kept.closed() == b""


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", 431),
        (b"POST /mcp HTTP/1.1\r\n" + b"X-A: b\r\n" * 5000 + b"\r\n", 431),
        (b"POST /" + b"m" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"hello\r\n\r\n", 400),
        (b"POST /mcp HTTP/1.1\r\nBad Header: x\r\n\r\n", 400),
        (b"POST /mcp HTTP/1.1\r\n\r\n", 400),
        (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
    ],
)
async def test_what_is_not_http_or_too_much_is_refused_and_closed(
    stage: Stage, head: bytes, status: int
) -> None:
    wire = await stage.connect()
    wire.send(head)
    answer = await wire.answer()
    assert answer.status == status
    assert answer.json["error"]["code"] == -32600
    assert b"XX" not in answer.body
    wire.abort()
    assert (await stage.ask(PING)).status == 200


async def test_a_badly_chunked_body_is_refused_at_once(stage: Stage) -> None:
    wire = await stage.connect()
    wire.request(b"5\r\n{}   \r\n", content_length=None, transfer_encoding="chunked")
    await until(lambda: stage.front.in_flight == 1)
    wire.send(b"nonsense\r\n")
    assert (await wire.answer()).status == 400


async def test_a_body_cut_short_ends_with_its_connection(stage: Stage) -> None:
    wire = await stage.connect()
    wire.request(b"{", content_length="100")
    await until(lambda: stage.front.in_flight == 1)
    wire.abort()
    await until(lambda: stage.front.in_flight == 0)
    assert (await stage.ask(PING)).status == 200


async def test_a_legacy_client_that_disconnects_cancels_nothing(stage: Stage) -> None:
    session_id = await stage.session()
    wire = await stage.connect()
    wire.request(call("hold"), mcp_session_id=session_id)
    await stage.service.holding.wait()
    wire.abort()
    assert (await stage.ask(PING)).status == 200
    assert stage.front.in_flight == 1
    assert stage.service.held[0].cancelled is None
    stage.service.held[0].released.set()
    await until(lambda: stage.front.in_flight == 0)


@pytest.mark.parametrize("accept", [ACCEPT, "application/json"])
async def test_a_client_without_a_session_cancels_by_disconnecting(
    stage: Stage, accept: str
) -> None:
    wire = await stage.connect()
    wire.request(call("hold"), accept=accept)
    await stage.service.holding.wait()
    wire.abort()
    async with asyncio.timeout(1):
        await stage.service.cancels.wait()
    await until(lambda: stage.front.in_flight == 0)


async def test_a_connection_lost_after_an_answer_cancels_no_later_call(stage: Stage) -> None:
    wire = await stage.connect()
    assert (await wire.ask(call("echo"))).status == 200
    session_id = await stage.session()
    wire.request(call("hold"), mcp_session_id=session_id)
    await stage.service.holding.wait()
    wire.abort()
    assert (await stage.ask(PING)).status == 200
    assert not stage.service.cancels.is_set()


async def test_a_client_that_closes_its_half_has_disconnected(stage: Stage) -> None:
    wire = await stage.connect()
    wire.request(call("hold"))
    await stage.service.holding.wait()
    wire.writer.write_eof()
    assert await wire.closed() == b""
    await until(lambda: stage.front.in_flight == 0)


async def test_a_call_that_takes_long_becomes_a_stream_that_is_kept_alive() -> None:
    async with staged(keep_alive_seconds=0.1) as stage:
        session_id = await stage.session()
        wire = await stage.connect()
        wire.request(call("hold"), mcp_session_id=session_id)
        status, headers = await wire.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        assert await wire.chunk() == b"id: p1-0\nretry: 1000\ndata:\n\n"
        assert await wire.chunk() == b": keep-alive\n\n"
        assert await wire.chunk() == b": keep-alive\n\n"
        stage.service.held[0].released.set()
        while (chunk := await wire.chunk()).startswith(b":"):
            pass
        assert b'"result"' in chunk
        assert await wire.chunk() == b""
        assert (await wire.ask(PING)).status == 200


async def test_a_cancelled_call_that_streamed_ends_without_a_message() -> None:
    async with staged(keep_alive_seconds=0.1) as stage:
        session_id = await stage.session()
        wire = await stage.connect()
        wire.request(call("hold"), mcp_session_id=session_id)
        await wire.head()
        assert (await wire.chunk()).startswith(b"id: p1-0\n")
        stage.service.held[0].cancel("by the client")
        while (chunk := await wire.chunk()) != b"":
            assert chunk == b": keep-alive\n\n"


async def slow_connection(stage: Stage) -> socket.socket:
    """A client with a small window that reads nothing by itself."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", stage.port))
    return sock


async def send(sock: socket.socket, message: object, session_id: str) -> None:
    body = json.dumps(message).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: {ACCEPT}\r\n"
        f"Content-Type: application/json\r\nMcp-Session-Id: {session_id}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    await asyncio.get_running_loop().sock_sendall(sock, head.encode() + body)


async def read_all(sock: socket.socket) -> int:
    """Read until the server closes; the number of bytes."""
    received = 0
    async with asyncio.timeout(5):
        while data := await asyncio.get_running_loop().sock_recv(sock, 1 << 20):
            received += len(data)
    return received


async def test_a_stream_nobody_reads_waits_then_is_cut_off_and_blocks_nobody() -> None:
    async with staged(write_seconds=0.4) as stage:
        session_id = await stage.session()
        sock = await slow_connection(stage)
        with sock:
            await send(sock, call("flood"), session_id)
            await stage.service.holding.wait()
            # 60 kB each: the socket buffers take a few MB at most, then the sender waits.
            for _ in range(10):
                assert (await stage.ask(PING)).status == 200
            await until(lambda: stage.service.flooded > 200 or len(stage.service.held) == 1)
            flooded = -1
            while flooded != stage.service.flooded:
                flooded = stage.service.flooded
                await asyncio.sleep(0.05)
            assert flooded < 200
            # Cut off: what is sent from now on is dropped, and the legacy call runs on.
            await until(lambda: stage.service.flooded > flooded + 5)
            assert stage.front.in_flight == 1
            stage.service.held[0].released.set()
            await until(lambda: stage.front.in_flight == 0)


async def test_an_answer_nobody_reads_is_given_up() -> None:
    async with staged(write_seconds=0.3) as stage:
        session_id = await stage.session()
        sock = await slow_connection(stage)
        with sock:
            await send(sock, call("echo", size=8_000_000), session_id)
            await until(lambda: stage.front.in_flight == 0)
            await asyncio.sleep(1.0)  # longer than the deadline: reading would be progress
            assert await read_all(sock) < 8_000_000


async def test_a_slow_reader_that_makes_progress_gets_everything() -> None:
    async with staged(write_seconds=0.3) as stage:
        session_id = await stage.session()
        sock = await slow_connection(stage)
        with sock:
            await send(sock, call("echo", size=5_000_000), session_id)
            loop = asyncio.get_running_loop()
            received = 0
            async with asyncio.timeout(20):
                while received < 5_000_000:
                    data = await loop.sock_recv(sock, 1 << 18)
                    assert data, f"cut off after {received} bytes"
                    received += len(data)
                    await asyncio.sleep(0.002)


async def test_sessions_end_when_idle_but_not_while_used() -> None:
    async with staged(idle_seconds=0.3, keep_alive_seconds=0.2) as stage:
        idle, calling, listening = [await stage.session() for _ in range(3)]
        caller, listener = await stage.connect(), await stage.connect()
        caller.request(call("hold"), mcp_session_id=calling)
        listener.request(method="GET", mcp_session_id=listening, accept="text/event-stream")
        await until(lambda: stage.sessions.get(idle) is None)
        await asyncio.sleep(0.4)
        assert {session.id for session in stage.sessions} == {calling, listening}
        listener.abort()
        stage.service.held[0].released.set()
        await until(lambda: len(stage.sessions) == 0)
