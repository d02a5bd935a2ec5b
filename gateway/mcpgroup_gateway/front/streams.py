"""Event streams towards clients: the stream of one POST, the GET streams of a session.

A stream of a POST begins with the first message that precedes the answer, or when a keep-alive is
due. Writers wait for a slow client; one that takes nothing at all is cut off by the server's check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp.http import StreamWriter

from mcpgroup_gateway.front.responses import stream_response
from mcpgroup_gateway.front.server import Connection
from mcpgroup_gateway.wire.sse import KEEP_ALIVE, encode_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from mcpgroup_gateway.serving.sessions import Session


class Streams:
    """The streams that are open or may become so, which the front keeps alive."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.draining = False
        self.open: set[EventWriter] = set()

    async def keep_alive(self, seconds: float) -> None:
        """Send a comment where nothing was sent for `seconds`. Waits for no client."""
        horizon = self.clock() - seconds
        for writer in list(self.open):
            if writer.touched <= horizon:
                await writer.keep_alive()


class EventWriter:
    """Writes events into the answer of one request; it begins with the first one.

    Once the client has gone, or after `end`, it drops what it is given.
    """

    __slots__ = ("_connection", "_ended", "_origin", "_request", "_streams", "response", "touched")

    def __init__(self, request: web.BaseRequest, origin: str | None, streams: Streams) -> None:
        connection = request.protocol
        assert isinstance(connection, Connection)  # noqa: S101  # narrows what aiohttp types
        self._request = request
        self._connection = connection
        self._origin = origin
        self._streams = streams
        self._ended = False
        self.response: web.StreamResponse | None = None
        self.touched = 0.0

    @property
    def is_open(self) -> bool:
        return self.response is not None

    @property
    def is_gone(self) -> bool:
        return self._connection.transport is None

    def on_gone(self, callback: Callable[[], None]) -> None:
        if self.is_gone:
            callback()
        else:
            self._connection.on_lost = callback

    def touch(self) -> None:
        self.touched = self._streams.clock()

    def watch(self) -> None:
        """Keep the stream alive from now on."""
        self.touch()
        self._streams.open.add(self)

    async def open(self) -> web.StreamResponse:
        if self.response is None:
            self.touch()
            response = stream_response(self._origin, close=self._streams.draining)
            self.response = response
            await response.prepare(self._request)
        return self.response

    async def send(self, *messages: bytes) -> None:
        if self._ended or self.is_gone:
            return
        try:
            response = await self.open()
            self.touch()
            await response.write(b"".join(map(encode_event, messages)))
        except ConnectionError:
            self._ended = True

    async def keep_alive(self) -> None:
        """Send a comment, or begin the stream by it, without ever waiting for the client."""
        if self._ended or self.is_gone or self._connection.writing_paused:
            return
        try:
            await self.open()
            writer = self._request.writer
            assert isinstance(writer, StreamWriter)  # noqa: S101  # narrows what aiohttp types
            self.touch()
            await writer.write(KEEP_ALIVE, drain=False)
        except ConnectionError:
            self._ended = True

    def end(self) -> None:
        """Nothing but `finish` follows."""
        self._ended = True
        self._connection.on_lost = None
        self._streams.open.discard(self)

    async def finish(self, message: bytes | None) -> None:
        if self.is_gone:
            return
        try:
            response = await self.open()
            if self._streams.draining:
                response.force_close()
            await response.write_eof(b"" if message is None else encode_event(message))
        except ConnectionError:
            self._ended = True


class PostChannel(EventWriter):
    """The way back of one POST: `posts.Channel`."""

    __slots__ = ()

    @property
    def sink(self) -> PostChannel:
        return self

    def begin(self, *, stream: bool) -> None:
        if stream:
            self.watch()


async def listen(session: Session, writer: EventWriter) -> None:
    """Serve one GET stream of `session` until the session, the stream or the client ends."""
    stream = session.open_stream()
    writer.on_gone(stream.close)
    try:
        await writer.open()
        writer.watch()
        while (messages := await stream.next()) is not None:
            await writer.send(*messages)
    except ConnectionError:
        pass  # gone before the first byte
    finally:
        writer.end()
        writer.touch()
        session.close_stream(stream, writer.touched)
    await writer.finish(None)
