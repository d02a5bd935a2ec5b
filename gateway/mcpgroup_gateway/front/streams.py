"""Event streams towards clients: the stream of one POST, the GET streams of a session.

A stream of a POST begins with the first message that precedes the answer, or when a keep-alive is
due. Writers wait for a slow client; one that takes nothing at all is cut off by the server's check.
In a session every event has an id, and the stream outlives its connection
(`serving.event_stream`); without a session there is no way back to it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp.http import StreamWriter

from mcpgroup_gateway.front.responses import stream_response
from mcpgroup_gateway.front.server import Connection
from mcpgroup_gateway.serving.event_stream import is_essential
from mcpgroup_gateway.wire.sse import KEEP_ALIVE, encode_event

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aiohttp import web

    from mcpgroup_gateway.serving.event_stream import EventStream
    from mcpgroup_gateway.serving.session import Session


class Streams:
    """The streams that are open or may become so, which the front keeps alive."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.draining = False
        self.open: set[EventWriter] = set()
        self._writing: set[asyncio.Task[None]] = set()

    async def keep_alive(self, seconds: float) -> None:
        """Send a comment where nothing was sent for `seconds`. Waits for no client."""
        horizon = self.clock() - seconds
        for writer in list(self.open):
            if writer.touched <= horizon:
                await writer.keep_alive()

    def run(self, writing: Coroutine[None, None, None]) -> None:
        """Own the writing of a message that nobody waits for, until it ends or `close`."""
        task = asyncio.create_task(writing, name="write to a stream")
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def close(self) -> None:
        for task in self._writing:
            task.cancel()
        await asyncio.gather(*self._writing, return_exceptions=True)


class EventWriter:
    """Writes events into the answer of one request; it begins with the first one.

    Once the client has gone, or after `end`, it drops what it is given.
    """

    __slots__ = (
        "_broken",
        "_connection",
        "_ended",
        "_on_gone",
        "_origin",
        "_request",
        "_streams",
        "gone_at",
        "response",
        "touched",
    )

    def __init__(self, request: web.BaseRequest, origin: str | None, streams: Streams) -> None:
        connection = request.protocol
        assert isinstance(connection, Connection)  # noqa: S101  # narrows what aiohttp types
        self._request = request
        self._connection = connection
        self._origin = origin
        self._streams = streams
        self._ended = False
        self._broken = False
        self._on_gone: Callable[[], None] | None = None
        self.response: web.StreamResponse | None = None
        self.touched = 0.0
        self.gone_at = 0.0

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
            self._on_gone = callback
            self._connection.answering = self

    def lost(self) -> None:
        """The client has disconnected; called by its connection."""
        self.gone_at = self._streams.clock()
        callback, self._on_gone = self._on_gone, None
        if callback is not None:
            callback()

    def touch(self) -> None:
        self.touched = self._streams.clock()

    def watch(self) -> None:
        """Keep the stream alive from now on."""
        self.touch()
        self._streams.open.add(self)

    def cut(self) -> None:
        """Another connection has taken the stream over."""
        if self._connection.writing_paused and self._connection.transport is not None:
            self._connection.transport.abort()  # its client does not read: no end would reach it

    def preamble(self) -> bytes:
        """What a stream begins with; called once, as its head is sent."""
        return b""

    async def open(self) -> None:
        """Send the head of the answer unless that was done. Raises `ConnectionError`."""
        if self.response is None:
            self.touch()
            response = stream_response(self._origin, close=self._streams.draining)
            self.response = response
            await response.prepare(self._request)
            data = self.preamble()
            if data:
                await self._write_now(data)

    async def write(self, events: bytes) -> bool:
        """Send whole events and wait while the client reads slowly; False once it has gone."""
        if self._ended or self._broken or self.is_gone:
            return False
        try:
            await self.open()
            assert self.response is not None  # noqa: S101  # `open` made it
            self.touch()
            await self.response.write(events)
        except ConnectionError:
            self._broken = True
            return False
        return True

    async def keep_alive(self) -> None:
        """Send a comment, or begin the stream by it, without ever waiting for the client."""
        if self._ended or self._broken or self.is_gone or self._connection.writing_paused:
            return
        try:
            await self.open()
            self.touch()
            await self._write_now(KEEP_ALIVE)
        except ConnectionError:
            self._broken = True

    async def _write_now(self, data: bytes) -> None:
        writer = self._request.writer
        assert isinstance(writer, StreamWriter)  # noqa: S101  # narrows what aiohttp types
        await writer.write(data, drain=False)

    def end(self) -> None:
        """Nothing but `finish` follows."""
        self._ended = True
        self._on_gone = None
        self._connection.answering = None
        self._streams.open.discard(self)

    async def finish_with(self, events: bytes) -> bool:
        """Send the last events and end the answer; False when the client has gone."""
        if self.is_gone:
            return False
        try:
            await self.open()
            assert self.response is not None  # noqa: S101  # `open` made it
            if self._streams.draining:
                self.response.force_close()
            await self.response.write_eof(events)
        except ConnectionError:
            return False
        return True


class PostChannel(EventWriter):
    """The way back of one POST: `posts.Channel`, and `serving.session.Post` in a session."""

    __slots__ = ("_flushing", "_session", "_stream", "_takes_events")

    def __init__(self, request: web.BaseRequest, origin: str | None, streams: Streams) -> None:
        super().__init__(request, origin, streams)
        self._session: Session | None = None
        self._stream: EventStream | None = None
        self._takes_events = False
        self._flushing = False

    @property
    def sink(self) -> PostChannel:
        return self

    @property
    def is_open(self) -> bool:
        return self.response is not None or self._stream is not None

    def begin(self, *, stream: bool, session: Session | None = None) -> None:
        self._session = session
        self._takes_events = stream
        if session is not None:
            self._connection.answering = self
            if self.is_gone:
                self.gone_at = self._streams.clock()
        if stream:
            self.watch()

    def lost(self) -> None:
        super().lost()
        if self._stream is not None:
            self._stream.detach(self)

    def cut(self) -> None:
        # The call goes on without this connection, which cannot be told how it ends.
        if self._connection.transport is not None:
            self._connection.transport.abort()

    def preamble(self) -> bytes:
        stream = self._begin_stream()
        if stream is None or self._session is None or not self._session.is_primed:
            return b""
        return stream.priming()

    def _begin_stream(self) -> EventStream | None:
        """The stream in the session; None without one, and when its client left before it."""
        if self._stream is None and self._session is not None and not self.is_gone:
            self._stream = self._session.open_post_stream(self)
        return self._stream

    async def send(self, message: bytes) -> None:
        if self._ended:
            return
        stream = self._begin_stream()
        if stream is None:
            if self._session is None:
                await self.write(encode_event(message))
            elif is_essential(message):
                # The client left without an id to come back with, but it may listen elsewhere.
                self._session.push_request(message)
            return
        stream.put(message)
        if stream.reader is self and not self._flushing:
            await self._flush(stream)
        else:
            await stream.room()

    def push(self, message: bytes) -> bool:
        if not self._takes_events or self._ended:
            return False
        stream = self._begin_stream()
        if stream is None or not stream.push(message):
            return False
        if stream.reader is self and not self._flushing:
            self._streams.run(self._flush(stream))
        return True

    async def _flush(self, stream: EventStream) -> None:
        """Write what waits, in order, as long as this connection carries the stream."""
        if self._flushing:
            return
        self._flushing = True
        try:
            while stream.reader is self and stream.lags:
                if not await self.write(b"".join(stream.take())):
                    stream.detach(self)
        finally:
            self._flushing = False

    async def finish(self, message: bytes | None) -> None:
        """Send the last message, if any, and end the stream."""
        stream, session = self._begin_stream(), self._session
        if stream is None or session is None:
            if session is None:
                await self.finish_with(b"" if message is None else encode_event(message))
            return
        session.end_stream(stream, message, self._streams.clock())
        if stream.reader is not self:
            return  # it waits for the client, or another connection carries it
        delivered = await self.finish_with(b"".join(stream.take()))
        session.leave_stream(stream, self, self._streams.clock(), delivered=delivered)


class GetWriter(EventWriter):
    """The answer of one GET, which carries one stream of a session."""

    __slots__ = ("_session", "stream")

    def __init__(
        self, request: web.BaseRequest, origin: str | None, streams: Streams, session: Session
    ) -> None:
        super().__init__(request, origin, streams)
        self._session = session
        self.stream: EventStream | None = None

    def preamble(self) -> bytes:
        if self.stream is None or not self._session.is_primed:
            return b""
        return self.stream.priming()

    async def carry(self, stream: EventStream) -> None:
        """Send the events of `stream`, which is attached, until it, the client or both end."""
        self.stream = stream
        self.on_gone(self._leave)
        delivered = False
        try:
            await self.open()
            self.watch()
            while (events := await stream.next(self)) is not None:
                if not await self.write(b"".join(events)):
                    break
            self.end()
            delivered = await self.finish_with(b"")
        except ConnectionError:
            pass  # gone before the first byte
        finally:
            self.end()
            self._leave(delivered=delivered)

    def _leave(self, *, delivered: bool = False) -> None:
        if self.stream is not None:
            now = self._streams.clock()
            self._session.leave_stream(self.stream, self, now, delivered=delivered)
