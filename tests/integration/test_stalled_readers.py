"""200 MB of notifications for a client that does not read, and for one that reads slowly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.harness.gateway import Gateway
from tests.harness.members import FaultyHttp
from tests.harness.messages import ACCEPT

from mcpgroup_gateway.front import FrontSettings
from mcpgroup_gateway.wire.sse import EventParser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MESSAGES = 4_000
TEXT = "x" * 50_000
GROWTH = 32 << 20
WRITE_SECONDS = FrontSettings().write_seconds


@contextlib.asynccontextmanager
async def flooding() -> AsyncIterator[Gateway]:
    async with (
        FaultyHttp("a", "--sse") as member,
        Gateway(members=[member.spec(callTimeoutSeconds=100, maxCallSeconds=110)]) as gateway,
    ):
        await gateway.all_ready()
        yield gateway


async def flood(gateway: Gateway, session: str) -> socket.socket:
    """A client with a small window whose call makes its member send everything."""
    port = int(gateway.url.rsplit(":", 1)[1].split("/")[0])
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", port))
    params = {"name": "log", "arguments": {"text": TEXT, "count": MESSAGES}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    body = json.dumps(message).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: {ACCEPT}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nMcp-Session-Id: {session}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    await loop.sock_sendall(sock, head.encode() + body)
    return sock


class Watch:
    """The most memory of a process, and whether others are served meanwhile."""

    def __init__(self, gateway: Gateway, session: str) -> None:
        self.gateway = gateway
        self.session = session
        self.process = psutil.Process(gateway.pid)
        self.before = self.process.memory_info().rss
        self.grown = 0
        self.slowest = 0.0
        self.answered = 0

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            reply = await self.gateway.call("echo", {"text": "other"}, session=self.session)
            assert "other" in reply.text
            self.slowest = max(self.slowest, clock() - began)
            self.answered += 1
            self.grown = max(self.grown, self.process.memory_info().rss - self.before)
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def watched(gateway: Gateway) -> AsyncIterator[Watch]:
    session = await gateway.open_session()
    for _ in range(50):
        await gateway.call("echo", {"text": "x" * 50_000}, session=session)
    watch = Watch(gateway, session)
    task = asyncio.create_task(watch.run())
    try:
        yield watch
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert watch.answered > 5
    assert watch.slowest < 5
    assert watch.grown < GROWTH, f"{watch.grown / 2**20:.1f} MiB"


async def cut_off(gateway: Gateway, sock: socket.socket) -> None:
    """Wait until the gateway has no connection to `sock` any more."""
    port = sock.getsockname()[1]
    process = psutil.Process(gateway.pid)

    def ports() -> set[int | None]:
        return {getattr(each.raddr, "port", None) for each in process.net_connections()}

    while port in ports():  # noqa: ASYNC110  # another process
        await asyncio.sleep(0.1)


async def answer_of(gateway: Gateway, session: str) -> Any:
    """Come back for the answer of a call whose first event is the last that was seen."""
    headers = {"Mcp-Session-Id": session, "Accept": "text/event-stream", "Last-Event-ID": "p1-0"}
    async with gateway.http.get(gateway.url, headers=headers) as stream:
        assert stream.status == 200
        parser = EventParser(1 << 24)
        async for data in stream.content.iter_any():
            for event in parser.feed(data):
                if event.data and b'"method"' not in event.data[:60]:
                    return json.loads(event.data)
    raise AssertionError("the stream ended without the answer")


@pytest.mark.timeout(110)
async def test_a_client_that_never_reads_is_cut_off_and_costs_nothing() -> None:
    loop = asyncio.get_running_loop()
    async with flooding() as gateway, watched(gateway) as watch:
        session = await gateway.open_session()
        began = loop.time()
        with await flood(gateway, session) as sock:
            assert (await loop.sock_recv(sock, 15)).endswith(b"200 OK")
            await cut_off(gateway, sock)
            assert WRITE_SECONDS < loop.time() - began < 2 * WRITE_SECONDS
            received = 0
            with contextlib.suppress(ConnectionError):
                while data := await loop.sock_recv(sock, 1 << 20):
                    received += len(data)
            assert received < 20_000_000
        # The call went on: its member no longer waits, and the answer can be fetched.
        answer = await answer_of(gateway, session)
        assert answer["id"] == 1
        assert "result" in answer
        assert watch.answered > WRITE_SECONDS


@pytest.mark.timeout(110)
async def test_a_client_that_reads_slowly_gets_everything() -> None:
    loop = asyncio.get_running_loop()
    async with flooding() as gateway, watched(gateway):
        session = await gateway.open_session()
        with await flood(gateway, session) as sock:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await loop.sock_recv(sock, 1 << 10)
            chunks = Chunks(data.split(b"\r\n\r\n", 1)[1])
            parser = EventParser(1 << 24)
            expected = iter(range(MESSAGES))
            answered = False
            while data := await loop.sock_recv(sock, 1 << 18):
                for event in parser.feed(chunks.feed(data)):
                    if not event.data:
                        continue
                    message = json.loads(event.data)
                    if "method" in message:
                        assert message["params"]["data"]["number"] == next(expected)
                    else:
                        answered = True
                await asyncio.sleep(0.003)
            assert next(expected, None) is None
            assert answered
            assert chunks.ended


class Chunks:
    """Takes the chunked encoding off, portion by portion."""

    def __init__(self, data: bytes) -> None:
        self._buffer = data
        self._left = 0
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        self._buffer += data
        body = []
        while self._buffer:
            if self._left:
                part = self._buffer[: self._left]
                body.append(part)
                self._left -= len(part)
                self._buffer = self._buffer[len(part) :]
                continue
            line, found, rest = self._buffer.lstrip(b"\r\n").partition(b"\r\n")
            if not found:
                break
            self._left, self._buffer = int(line, 16), rest
            if not self._left:
                self.ended = True
                break
        return b"".join(body)
