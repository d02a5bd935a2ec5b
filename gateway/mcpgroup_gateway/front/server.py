"""aiohttp's low-level server with the bookkeeping of connections that it does not do.

    Connection   one client connection: knows when a head is late, a client gone, a reader stalled
    McpServer    all of them: deadlines, drain, and handlers that outlive their connection

Everything that touches aiohttp's inner attributes is in this module.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import select
import sys
import termios
from typing import TYPE_CHECKING, Any, Protocol

from aiohttp import web
from aiohttp.http import HttpProcessingError, RawRequestMessage
from aiohttp.http_exceptions import LineTooLong

from mcpgroup_gateway.front import replies
from mcpgroup_gateway.front.responses import respond

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcpgroup_gateway.front.settings import FrontSettings

logger = logging.getLogger(__name__)

#: Longer than the idle time of common proxies in front of us, which would otherwise send a request
#: on a connection that we are closing.
IDLE_CONNECTION_SECONDS = 660.0
#: How long the rest of a refused body is read and dropped, so that its sender sees the refusal.
LINGER_SECONDS = 5.0
#: A client that had an answer within so long is not idle, though its connection is.
_BUSY_CLIENT_SECONDS = 1.0
_FIELD_BYTES = 16384  # long bearer tokens exist


class Answering(Protocol):
    """Whoever answers the request of a connection."""

    def lost(self) -> None:
        """The client has disconnected. Called once; must not raise."""
        ...


class Connection(web.RequestHandler):
    """`answering` is told when the client disconnects; one request uses it at a time."""

    __slots__ = ("_pending_bytes", "_stalled_since", "answering", "head_since")

    def __init__(self, manager: McpServer, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            manager,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # aiohttp takes None for off
            logger=logger,
            keepalive_timeout=IDLE_CONNECTION_SECONDS,
            lingering_time=LINGER_SECONDS,
            max_field_size=_FIELD_BYTES,
        )
        self.answering: Answering | None = None
        self.head_since: float | None = None
        self._stalled_since: float | None = None
        self._pending_bytes = 0

    @property
    def task(self) -> asyncio.Task[None] | None:
        """What serves this connection; None once it is lost."""
        return self._task_handler

    @property
    def is_idle(self) -> bool:
        """Waiting for a request, of which a part may have arrived."""
        return self._waiter is not None and not self._waiter.done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.head_since = self._loop.time()

    def data_received(self, data: bytes) -> None:
        seen = self._request_count
        super().data_received(data)
        if self._request_count != seen:
            self.head_since = None
            if self._messages and not isinstance(self._messages[-1][0], RawRequestMessage):
                self._break_bodies()
        elif self.head_since is None and data and self.is_idle:
            self.head_since = self._loop.time()

    def _break_bodies(self) -> None:
        """End the body that a parse error cut off; aiohttp leaves its reader waiting."""
        fault = web.RequestPayloadError("the body is not valid HTTP")
        if self._current_request is not None and not self._current_request.content.is_eof():
            self._current_request.content.set_exception(fault)
        for message, payload in self._messages:
            if isinstance(message, RawRequestMessage) and not payload.is_eof():
                payload.set_exception(fault)

    def connection_lost(self, exc: BaseException | None) -> None:
        manager = self._manager
        task = self._task_handler
        super().connection_lost(exc)
        if isinstance(manager, McpServer) and task is not None and not task.done():
            manager.keep(task)
        answering, self.answering = self.answering, None
        if answering is not None:
            answering.lost()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is not HTTP. Its text is not repeated: it may hold credentials."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer had begun")
        if isinstance(exc, LineTooLong) or "too many headers" in (message or "").lower():
            reply = replies.refusal(431, "the request line or a header is too large")
        elif isinstance(exc, HttpProcessingError):
            reply = replies.refusal(400, "malformed HTTP request")
        else:
            logger.error("a request failed inside the HTTP server", exc_info=exc)
            reply = replies.answer(replies.internal_error())
        return respond(reply, None, close=True)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Without faults in the rest of a refused body: clients must not fill our log."""
        fault = kw.get("exc_info")
        if isinstance(fault, web.RequestPayloadError | HttpProcessingError | ConnectionError):
            logger.debug("the rest of a refused body was broken")
        else:
            super().log_exception(*args, **kw)

    def close_if_idle(self) -> None:
        """Close a kept-alive connection that has nothing on the way to us.

        One that was answered just now is left to its client, which is likely to send the next
        request at this moment: that request would be lost. Its answer says `Connection: close`.
        """
        answered = self._next_keepalive_close_time - self._keepalive_timeout
        if self._loop.time() - answered < _BUSY_CLIENT_SECONDS:
            return
        if self.is_idle and self.head_since is None and not self._is_readable():
            self.force_close()

    def _unacknowledged(self) -> int:
        """Bytes in the socket that the client has not taken, where the system tells (Linux).

        The kernel asks for more only once megabytes have left; a reader that needs a minute for
        those would look stalled without this.
        """
        transport = self.transport
        sock = None if transport is None else transport.get_extra_info("socket")
        if sock is None:
            return 0
        try:
            queued = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
        except (OSError, ValueError):
            return 0
        return int.from_bytes(queued, sys.byteorder)

    def _is_readable(self) -> bool:
        """Bytes wait in the socket: closing it now would lose a request that was sent."""
        transport = self.transport
        sock = None if transport is None else transport.get_extra_info("socket")
        if sock is None or sock.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def check(self, now: float, settings: FrontSettings) -> None:
        """Close the connection when its client is overdue; `now` is the loop's time, seconds."""
        transport = self.transport
        if transport is None:
            return
        if self.head_since is not None:
            overdue = now - self.head_since > settings.head_seconds
            # After a stall of our own the rest of the head waits in the socket.
            if overdue and self.is_idle and not self._is_readable():
                self.force_close()
        elif self._paused:
            # A slow reader makes progress, a stalled one does not. Hardly anything is added
            # meanwhile: every writer waits.
            pending = transport.get_write_buffer_size() + self._unacknowledged()
            if self._stalled_since is None or pending != self._pending_bytes:
                self._stalled_since = now
                self._pending_bytes = pending
            elif now - self._stalled_since > settings.write_seconds:
                transport.abort()
        else:
            self._stalled_since = None


class McpServer(web.Server):
    """Hands each request to `handler`; a handler goes on when its client has disconnected."""

    def __init__(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        super().__init__(handler)
        self._detached: set[asyncio.Task[None]] = set()

    def __call__(self) -> Connection:
        return Connection(self, self._loop)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Own the handler of a connection that was lost, until it ends."""
        self._detached.add(task)
        task.add_done_callback(self._detached.discard)

    def close_idle(self) -> None:
        for connection in self._each():
            connection.close_if_idle()

    def check(self, settings: FrontSettings) -> None:
        now = self._loop.time()
        for connection in self._each():
            connection.check(now, settings)

    def _each(self) -> list[Connection]:
        return [each for each in self.connections if isinstance(each, Connection)]

    async def shutdown(self, timeout: float | None = None) -> None:
        tasks = {each.task for each in self._each() if each.task is not None}
        await super().shutdown(timeout)
        tasks.update(self._detached)
        for task in self._detached:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
