"""A scripted HTTP/1.1 server on a real socket: it writes exactly the bytes a test wants.

    async with RawServer(handler) as server:
        ...  # server.url, server.requests, await server.until(lambda: len(server.requests) == 2)

A handler gets each request and the connection it came on; what it does not write is not sent.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

REASONS = {200: "OK", 202: "Accepted", 307: "Temporary Redirect", 404: "Not Found"}


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body) if self.body else {}

    @property
    def rpc_method(self) -> str:
        return str(self.message.get("method", ""))

    @property
    def id(self) -> Any:
        return self.message.get("id")


@dataclass
class Peer:
    """The server's end of one connection."""

    number: int
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Close with a TCP reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Handler = Callable[[Request, Peer], Awaitable[None]]


class RawServer:
    def __init__(self, handler: Handler, *, tls: ssl.SSLContext | None = None) -> None:
        self.handler = handler
        self.requests: list[Request] = []
        #: What was asked to find out the era; it says nothing about sessions and calls.
        self.probes: list[Request] = []
        self.peers: list[Peer] = []
        self._tls = tls
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=1 << 26, ssl=self._tls
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:  # also of those that were not served yet
            writer.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)  # what was aborted closes in the next round of the loop

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/mcp"

    def seen(self, rpc_method: str) -> list[Request]:
        return [each for each in self.requests if each.rpc_method == rpc_method]

    async def until(self, condition: Callable[[], bool], seconds: float = 5.0) -> None:
        """Wait until something received makes the condition true."""
        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(condition)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(len(self.peers), writer)
        self.peers.append(peer)
        handlers: list[asyncio.Task[None]] = []
        try:
            while True:
                request = await self._read(reader, peer.number)
                probe = request.rpc_method == "server/discover"
                (self.probes if probe else self.requests).append(request)
                async with self._news:
                    self._news.notify_all()
                handlers.append(asyncio.ensure_future(self._handle(request, peer)))
        except (asyncio.IncompleteReadError, ConnectionError):
            peer.gone.set()
            async with self._news:
                self._news.notify_all()
        finally:
            for handler in handlers:
                handler.cancel()
            await asyncio.gather(*handlers, return_exceptions=True)
            writer.transport.abort()

    async def _handle(self, request: Request, peer: Peer) -> None:
        try:
            await self.handler(request, peer)
        except ConnectionError:
            peer.gone.set()

    async def _read(self, reader: asyncio.StreamReader, number: int) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        start, *lines = head[:-4].split("\r\n")
        method, target, _ = start.split(" ")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Request(method, target, headers, body, number)


def response(
    body: bytes = b"",
    *,
    status: int = 200,
    content_type: str | None = "application/json",
    headers: tuple[tuple[str, str], ...] = (),
) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}", f"Content-Length: {len(body)}"]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def result(request: Request, value: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request.id, "result": value}).encode()


def error(request_id: Any, code: int, text: str = "no") -> bytes:
    fault = {"code": code, "message": text}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": fault}).encode()


def stream_head(*headers: tuple[str, str]) -> bytes:
    """The head of an event stream that ends with its connection or a last chunk."""
    lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """One chunk; of no data it is the last one."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(data: bytes, *, event_id: str | None = None, end: bytes = b"\n") -> bytes:
    head = b"" if event_id is None else b"id: %b%b" % (event_id.encode(), end)
    return head + b"event: message" + end + b"data: " + data + end + end


class Member:
    """A handler that speaks MCP: it opens sessions, and a test scripts the rest by method.

    A method without a script is answered with the empty result; GET with 405, and
    `server/discover` as by servers that do not know it.
    """

    def __init__(self, *, session: str | None = "s-1", version: str = "2025-11-25") -> None:
        self.session = session
        self.version = version
        self.scripts: dict[str, Handler] = {}

    def on(self, method: str, script: Handler) -> Self:
        """`method` is JSON-RPC's, or GET or DELETE, or "response" for the client's answers."""
        self.scripts[method] = script
        return self

    async def __call__(self, request: Request, peer: Peer) -> None:
        method = request.method
        if method == "POST":
            method = request.rpc_method or "response"
        script = self.scripts.get(method)
        if script is not None:
            await script(request, peer)
        elif method == "initialize":
            value = {
                "protocolVersion": self.version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "1"},
                "instructions": "Be kind.",
            }
            headers = () if self.session is None else (("Mcp-Session-Id", self.session),)
            await peer.send(response(result(request, value), headers=headers))
        elif method == "GET":
            await peer.send(response(status=405))
        elif request.id is None or method == "response":
            await peer.send(response(status=202, content_type=None))
        elif method == "server/discover":
            await peer.send(response(error(request.id, -32601), status=404))
        else:
            await peer.send(response(result(request, {})))
