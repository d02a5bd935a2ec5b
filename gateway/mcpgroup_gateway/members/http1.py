"""An HTTP/1.1 client for members: no task and no timer on the hot path.

    HttpCall    one request and its response, read as it comes
    Signal      wakes the one coroutine that waits for news of a call

Connections come from `http_pool.Pool`. A call knows precisely whether it was handed to the
operating system: `HttpCall.sent`. There is no cookie jar and no proxy; redirects are the caller's
decision.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http_decoding import ContentDecoder, UndecodableContent
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from mcpgroup_gateway.members.http_connection import Connection, Head
    from mcpgroup_gateway.members.http_pool import Pool

#: Unread body (bytes) above which the connection stops reading from its socket.
HIGH_WATER: Final = 256 * 1024
#: How long the rest of a response may take whose answer was read (seconds).
LINGER_SECONDS: Final = 1.0
_MOVED: Final = frozenset({307, 308})


class Signal:
    """A wake-up for at most one waiting coroutine; waking nobody does nothing.

    The waiter looks at its condition and waits without an await in between, so no wake-up is lost.
    """

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        """What to await; a coroutine around it would cost as much again."""
        future = self._future = self._loop.create_future()
        return future

    async def wait_for(self, seconds: float) -> None:
        """Return after `seconds`, or earlier when woken."""
        timer = self._loop.call_later(seconds, self.wake)
        try:
            await self.wait()
        finally:
            timer.cancel()


class HttpCall:
    """One request. After `start`, look at `head`, `take()`, `ended` and `failure` in this order,
    and wait for the signal when they have nothing new. `close` it in the end, whatever happened.

    `request` is the complete message. A `safe` request may ride on an idle connection of any age
    and is sent again, once and on a new connection, when that connection turns out to be dead.
    A `fresh` one is never the first to try an idle connection: it dials, within the time for that.
    `redirect` is asked about a 307 or 308 (once); it gives the pool and the request to go on with,
    or raises `MemberFailure`.
    """

    __slots__ = (
        "_buffered",
        "_chunks",
        "_complete",
        "_connection",
        "_decoder",
        "_fresh",
        "_lingering",
        "_pool",
        "_redirect",
        "_request",
        "_retried",
        "_reused",
        "_safe",
        "_signal",
        "failure",
        "head",
        "sent",
    )

    def __init__(
        self,
        pool: Pool,
        request: bytes,
        signal: Signal,
        *,
        safe: bool,
        fresh: bool = False,
        redirect: Callable[[Head], tuple[Pool, bytes]] | None = None,
    ) -> None:
        self._pool = pool
        self._request = request
        self._signal = signal
        self._safe = safe
        self._fresh = fresh
        self._redirect = redirect
        self._connection: Connection | None = None
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._decoder: ContentDecoder | None = None
        self._complete = False
        self._lingering: asyncio.TimerHandle | None = None
        self._reused = False
        self._retried = False
        self.head: Head | None = None
        self.failure: MemberFailure | None = None
        self.sent = False

    def start(self) -> None:
        """Send at once on an idle connection, else as soon as a new one is there."""
        connection = None if self._fresh else self._pool.take(safe=self._safe)
        if connection is None:
            self._pool.connect_for(self)
        else:
            self.connected(connection, reused=True)

    def take(self) -> bytes:
        """Content that has arrived and was not taken yet, decoded; b"" when there is none now."""
        if self._decoder is not None:
            return self._decode(self._decoder)
        chunks = self._chunks
        if not chunks:
            return b""
        data = chunks.popleft() if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._drained()
        return data

    @property
    def ended(self) -> bool:
        """True when the whole response was received and taken."""
        return self._complete and not self._chunks

    def linger(self, loop: asyncio.AbstractEventLoop) -> None:
        """Drop what is still to come, but let a response that ends soon free its connection.

        A stream's last chunk often follows its last event in a segment of its own.
        """
        self._chunks.clear()
        self._drained()
        if self._connection is not None:
            self._lingering = loop.call_later(LINGER_SECONDS, self._drop_connection)

    def close(self) -> None:
        """Give the call up: its connection is closed unless the response is complete."""
        if self._lingering is not None:
            return
        self._pool.forget(self)
        self._drop_connection()
        self._chunks.clear()

    # The pool and the connection call these.

    @property
    def takes_used_connections(self) -> bool:
        return not self._retried

    def connected(self, connection: Connection, *, reused: bool) -> None:
        self._connection = connection
        self._reused = reused
        self.sent = True
        connection.send(self._request, self)

    def connect_failed(self, failure: MemberFailure) -> None:
        failure.sent = self.sent  # a redirect or a second try may have followed the first bytes
        self._fail(failure)

    def head_received(self, head: Head) -> None:
        if head.status in _MOVED and self._redirect is not None:
            self._follow(head, self._redirect)
            return
        self.head = head
        coding = head.fields.get(b"content-encoding", b"").strip().lower()
        if coding and coding != b"identity":
            try:
                self._decoder = ContentDecoder(coding)
            except UndecodableContent as fault:
                self._fail(MemberFailure(Failure.MALFORMED, str(fault), sent=True))

    def body_received(self, data: bytes) -> None:
        if self._lingering is not None:
            self._buffered += len(data)
            if self._buffered > HIGH_WATER:
                self._drop_connection()
            return
        self._chunks.append(data)
        self._buffered += len(data)
        if self._buffered > HIGH_WATER and self._connection is not None:
            self._connection.pause()

    def response_ended(self) -> None:
        self._connection = None
        self._complete = True
        if self._lingering is not None:
            self._lingering.cancel()

    def response_lost(self, failure: MemberFailure, *, heard: bool) -> None:
        self._connection = None
        if self._reused and self._safe and not heard and not self._retried:
            self._retried = True
            self._pool.connect_for(self)
            return
        self._fail(failure)

    def wake(self) -> None:
        self._signal.wake()

    def _follow(self, head: Head, redirect: Callable[[Head], tuple[Pool, bytes]]) -> None:
        self._redirect = None
        self._drop_connection()
        try:
            self._pool, self._request = redirect(head)
        except MemberFailure as failure:
            self._fail(failure)
            return
        self._retried = False
        self.start()

    def _fail(self, failure: MemberFailure) -> None:
        if self.failure is None:
            self.failure = failure
        self._drop_connection()
        self._signal.wake()

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.discard()

    def _drained(self) -> None:
        self._buffered = 0
        if self._connection is not None:
            self._connection.resume()

    def _decode(self, decoder: ContentDecoder) -> bytes:
        while self._chunks:
            try:
                content, rest = decoder.decode(self._chunks.popleft())
            except UndecodableContent as fault:
                self._chunks.clear()
                self._fail(MemberFailure(Failure.MALFORMED, str(fault), sent=True))
                return b""
            if rest is not None:
                self._chunks.appendleft(rest)
            if not self._chunks:
                self._drained()
            if content:
                return content
        if self._complete and not decoder.complete:
            reason = "the member's answer ends in the middle of its encoded body"
            self._fail(MemberFailure(Failure.MALFORMED, reason, sent=True))
        return b""
