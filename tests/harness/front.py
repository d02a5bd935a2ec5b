"""A front on a real port with a scripted service behind it, and a client of raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.harness.messages import ACCEPT, CAPABILITIES_KEY, MODERN, VERSION_KEY, request

from mcpgroup_gateway.front import Front, FrontSettings
from mcpgroup_gateway.serving.sessions import SessionTable
from mcpgroup_gateway.wire.envelope import (
    MalformedMessage,
    Message,
    Raw,
    encode_error,
    encode_notification,
    encode_result,
    error_object,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.sse import Event, EventParser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcpgroup_gateway.serving.interface import Caller
    from mcpgroup_gateway.wire.param_headers import ParamHeader

PROGRESS = encode_notification("notifications/progress", b'{"progressToken":1,"progress":1}')


class ScriptedCall:
    """Does what the tool's name says: echo, progress, hold, flood, fail.

    `{"size": n}` pads the result, `{"code": n}` makes it an error.
    """

    def __init__(self, service: ScriptedService, message: Message, caller: Caller) -> None:
        self.service = service
        self.message = message
        self.caller = caller
        self.raw_id = message.raw_id
        self.cancelled: str | None = None
        self.released = asyncio.Event()

    async def run(self) -> bytes | None:
        try:
            params = parse_object(self.message.params)
        except MalformedMessage as fault:
            return encode_error(self.raw_id, error_object(fault.code, fault.text))
        name = parse_string(params.get("name")) or "echo"
        sink = self.caller.sink
        if self.message.method == "no/such":
            return encode_error(self.raw_id, error_object(-32601, "no such method"))
        if name == "fail":
            raise RuntimeError("scripted")
        if name in ("hold", "flood"):
            self.service.held.append(self)
            self.service.holding.set()
        if name == "progress" and sink is not None:
            await sink.send(PROGRESS)
            await sink.send(PROGRESS)
        if "code" in params:
            return encode_error(self.raw_id, error_object(int(bytes(params["code"])), "scripted"))
        while name == "flood" and self.cancelled is None and not self.released.is_set():
            assert sink is not None
            await sink.send(encode_notification("notifications/message", b'{"x":"%b"}' % PAD))
            self.service.flooded += 1
            await asyncio.sleep(0)
        if name == "hold":
            await self.released.wait()
        if self.cancelled is not None:
            return None
        size = bytes(params.get("size", b"0"))
        if size.isdigit() and size != b"0":
            return encode_result(self.raw_id, b'{"pad":"%b"}' % (b"x" * int(size)))
        return encode_result(self.raw_id, bytes(self.message.params) or b"{}")

    def cancel(self, reason: str | None) -> None:
        self.cancelled = reason or "no reason"
        self.service.cancels.set()
        self.released.set()


PAD = b"p" * 60_000


@dataclass
class ScriptedService:
    """`mcpgroup_gateway.serving.interface.Service`, remembering what it was asked."""

    name: str = "scripted"
    calls: list[ScriptedCall] = field(default_factory=list)
    held: list[ScriptedCall] = field(default_factory=list)
    notified: list[Message] = field(default_factory=list)
    responded: list[Message] = field(default_factory=list)
    holding: asyncio.Event = field(default_factory=asyncio.Event)
    cancels: asyncio.Event = field(default_factory=asyncio.Event)
    flooded: int = 0
    declared: tuple[ParamHeader, ...] = ()

    async def initialize(self, params: dict[str, Raw], protocol_version: str) -> bytes:
        if "explode" in params:
            raise RuntimeError("scripted")
        return b'{"protocolVersion":"%b","capabilities":{}}' % protocol_version.encode()

    def begin(self, message: Message, caller: Caller) -> ScriptedCall:
        call = ScriptedCall(self, message, caller)
        self.calls.append(call)
        return call

    async def discover(self, caller: Caller) -> bytes:
        return b'{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}}'

    def param_headers(self, tool: str, caller: Caller) -> tuple[ParamHeader, ...]:
        return self.declared

    def notify(self, message: Message, caller: Caller) -> None:
        self.notified.append(message)

    def respond(self, message: Message, caller: Caller) -> None:
        self.responded.append(message)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[bytes]:
        blocks = self.body.split(b"\n\n")
        return [b.split(b"data: ", 1)[1] for b in blocks if b"data: " in b]


class Wire:
    """One TCP connection; every wait has a deadline of 5 s."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def request(
        self,
        body: bytes | dict[str, Any] = b"",
        method: str = "POST",
        path: str = "/mcp",
        **headers: str | None,
    ) -> None:
        """Send one request; `headers` in snake case replace the usual ones, None removes one."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields: dict[str, str | None] = {"host": "localhost", "content-length": str(len(data))}
        if method == "POST":
            fields |= {"content-type": "application/json", "accept": ACCEPT}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{k}: {v}" for k, v in fields.items() if v is not None]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines])
        self.send(head.encode() + b"\r\n\r\n" + data)

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(5):
            block = await self.reader.readuntil(b"\r\n\r\n")
        status, *lines = block.decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines if line)
        return int(status.split()[1]), {name.lower(): value for name, value in pairs}

    async def chunk(self) -> bytes:
        """One chunk of a chunked body; empty at its end."""
        async with asyncio.timeout(5):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            data = await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        return data

    async def answer(self, *, head_only: bool = False) -> Answer:
        status, headers = await self.head()
        body = b""
        if head_only or status in (204, 304):
            pass
        elif headers.get("transfer-encoding") == "chunked":
            while data := await self.chunk():
                body += data
        else:
            async with asyncio.timeout(5):
                body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(status, headers, body)

    async def ask(self, *args: Any, **kwargs: Any) -> Answer:
        self.request(*args, **kwargs)
        return await self.answer(head_only=kwargs.get("method") == "HEAD")

    async def closed(self, seconds: float = 5) -> bytes:
        """Wait for the server to close; what came before that."""
        async with asyncio.timeout(seconds):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    def abort(self) -> None:
        self.writer.transport.abort()


class Events:
    """The events of a stream whose head was read, one by one; comments are skipped."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.parser = EventParser(1 << 24)
        self.ready: deque[Event] = deque()

    async def next(self) -> Event | None:
        """None at the end of the stream."""
        while not self.ready:
            chunk = await self.wire.chunk()
            if not chunk:
                return None
            self.ready.extend(self.parser.feed(chunk))
        return self.ready.popleft()

    async def ids(self, number: int) -> list[str]:
        return [event.id for event in [await self.next() for _ in range(number)] if event]

    async def rest(self) -> list[Event]:
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events


@dataclass
class Stage:
    """The running front and what a test asks about it."""

    front: Front
    service: ScriptedService
    sessions: SessionTable
    settings: FrontSettings
    port: int
    wires: list[Wire] = field(default_factory=list)

    async def connect(self, limit: int = 1 << 24) -> Wire:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.port, limit=limit))
        self.wires.append(wire)
        return wire

    async def ask(self, *args: Any, **kwargs: Any) -> Answer:
        """One request on a connection of its own."""
        wire = await self.connect()
        try:
            return await wire.ask(*args, **kwargs)
        finally:
            wire.abort()

    async def session(self, version: str = "2025-11-25") -> str:
        answer = await self.ask(request("initialize", 1, protocolVersion=version, capabilities={}))
        assert answer.status == 200, answer.body
        return answer.headers["mcp-session-id"]

    async def events(self, *args: Any, **kwargs: Any) -> Events:
        """One request on a connection of its own whose answer is a stream."""
        wire = await self.connect()
        wire.request(*args, **kwargs)
        status, headers = await wire.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        assert headers["cache-control"] == "no-cache"
        assert headers["x-accel-buffering"] == "no"
        return Events(wire)

    async def streaming(self, session_id: str) -> Events:
        """The stream of a new `hold` call, which began with a first message."""
        known = len(self.service.held)
        wire = await self.connect()
        wire.request(call("hold"), mcp_session_id=session_id)
        await until(lambda: len(self.service.held) > known)
        sending = asyncio.create_task(wire.head())
        session = self.sessions.get(session_id)
        assert session is not None
        await session.posts[-1].keep_alive()  # type: ignore[attr-defined]
        await sending
        return Events(wire)

    async def say(self, message: bytes) -> None:
        """Let the last `hold` call send a message."""
        sink = self.service.held[-1].caller.sink
        assert sink is not None
        await sink.send(message)

    async def listen(self, session_id: str, last_event_id: str | None = None) -> Events:
        """A GET stream."""
        return await self.events(
            method="GET",
            accept="text/event-stream",
            mcp_session_id=session_id,
            last_event_id=last_event_id,
        )

    def update(self, **changes: Any) -> None:
        self.settings = replace(self.settings, **changes)
        self.front.update(self.settings)


@contextlib.asynccontextmanager
async def staged(
    *, max_sessions: int = 100, idle_seconds: float = 1800.0, **settings: Any
) -> AsyncIterator[Stage]:
    """A front with `settings` over the defaults, on a free port of the loopback."""
    service = ScriptedService()
    sessions = SessionTable(max_sessions=max_sessions, idle_seconds=idle_seconds)
    chosen = FrontSettings(**{"port": 0, "close_seconds": 0.5, **settings})
    front = Front(service, sessions, chosen)
    port = await front.start()
    stage = Stage(front, service, sessions, chosen, port)
    try:
        yield stage
    finally:
        for call in service.held:
            call.released.set()
        for wire in stage.wires:
            wire.abort()
        await front.close()


def call(name: str, request_id: Any = 1, **params: Any) -> dict[str, Any]:
    return request("tools/call", request_id, name=name, **params)


async def until(condition: Any, seconds: float = 5.0) -> None:
    """Wait for what no event announces."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.005)


def modern(
    method: str, request_id: Any = 1, meta: dict[str, Any] | None = None, **params: Any
) -> dict[str, Any]:
    """A request of the modern era; `meta` adds to `_meta`, a None in it takes away."""
    said = {VERSION_KEY: MODERN, CAPABILITIES_KEY: {}, **(meta or {})}
    params["_meta"] = {key: value for key, value in said.items() if value is not None}
    return request(method, request_id, **params)


def modern_headers(body: dict[str, Any], **changes: str | None) -> dict[str, Any]:
    """The headers that go with a modern request; `changes` as for `Wire.request`."""
    params = body.get("params", {})
    return {
        "mcp_protocol_version": MODERN,
        "mcp_method": body.get("method"),
        "mcp_name": params.get("name", params.get("uri")),
        **changes,
    }
