"""One HTTP/1.1 connection to a member: bytes in, a parsed response out, one request at a time.

The connection knows its pool and the receiver of the response that is due; it calls both
synchronously from the event loop's read callback, so that a small answer costs one wake-up.
"""

from __future__ import annotations

import asyncio
import select
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast

import httptools

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    import socket

#: Bytes of head, trailers and chunk framing between two portions of body.
MAX_HEAD_BYTES: Final = 64 * 1024
MAX_FIELDS: Final = 256
#: How long an idle connection is kept when the member does not say (seconds).
KEPT_SECONDS: Final = 60.0
#: How long a connection may have been idle to carry an unsafe request (seconds).
TRUSTED_SECONDS: Final = 2.0
#: Servers close at their keep-alive timeout; a request must be there before (seconds).
KEEP_ALIVE_MARGIN: Final = 1.0

_BODILESS: Final = frozenset({204, 304})


@dataclass(slots=True)  # frozen costs three times as much to make
class Head:
    """A final response head; field names are in lower case, of a repeated field the last counts."""

    status: int
    fields: dict[bytes, bytes]

    def field(self, name: bytes) -> str:
        """The value of a field, "" when it is absent."""
        return self.fields.get(name, b"").decode("latin-1")


class Receiver(Protocol):
    """Takes one response. After `response_ended` or `response_lost` it hears nothing more."""

    def head_received(self, head: Head) -> None: ...
    def body_received(self, data: bytes) -> None: ...
    def response_ended(self) -> None: ...
    def response_lost(self, failure: MemberFailure, *, heard: bool) -> None: ...
    def wake(self) -> None: ...


class Keeper(Protocol):
    """The pool that a connection goes back to."""

    def released(self, connection: Connection) -> None: ...
    def ended(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """Use: `send` once it is connected; the response arrives at the receiver."""

    __slots__ = (
        "_complete",
        "_fields",
        "_head",
        "_heard",
        "_keeper",
        "_loop",
        "_overhead",
        "_parser",
        "_paused",
        "_peekable",
        "_persistent",
        "_readable",
        "_receiver",
        "_surplus",
        "_transport",
        "idle_since",
        "kept_seconds",
        "trusted_seconds",
    )

    def __init__(
        self, keeper: Keeper, sock: socket.socket, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._keeper = keeper
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._receiver: Receiver | None = None
        self._fields: dict[bytes, bytes] = {}
        self._head: Head | None = None
        self._heard = False
        self._overhead = 0
        self._complete = False
        self._surplus = False
        self._persistent = False
        self._paused = False
        self._peekable = False
        self.idle_since = loop.time()
        self.kept_seconds = KEPT_SECONDS
        self.trusted_seconds = TRUSTED_SECONDS

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Hand one whole request to the operating system; the connection must be `usable`."""
        assert self._transport is not None  # noqa: S101 - a connection is used after connecting
        self._receiver = receiver
        self._fields = {}
        self._head = None
        self._heard = False
        self._overhead = 0
        self._complete = False
        self._peekable = True
        self._transport.write(request)

    def usable(self) -> bool:
        """False when the member has closed it, even if the event loop has not noticed yet.

        An idle connection has nothing to read: a readable byte is an end of file, a reset, a TLS
        alert or a response to nothing, and each of them means that it must not be used again.
        """
        if self._transport is None or self._transport.is_closing():
            return False
        return not self._peekable or not self._readable.poll(0)

    def discard(self) -> None:
        """Close at once, whatever is in flight; the receiver hears nothing."""
        self._receiver = None
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        if not self._paused and self._transport is not None and not self._complete:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    # asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # A TLS server sends session tickets after the handshake: then bytes are no bad sign.
        self._peekable = transport.get_extra_info("sslcontext") is None

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None:
            self.discard()
            return
        self._heard = True
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # Bytes after a complete response spoil the connection, not the response.
            if not self._complete:
                self._lose(Failure.MALFORMED, "the member's answer is not valid HTTP/1.1")
                return
            self._surplus = True
        if self._receiver is not receiver:
            return  # the receiver moved on to another connection
        if self._complete:
            self._finish(receiver)
        elif self._overhead > MAX_HEAD_BYTES or len(self._fields) > MAX_FIELDS:
            self._lose(Failure.MALFORMED, "the head of the member's answer is too large")
            return
        receiver.wake()

    def eof_received(self) -> None:
        self._at_end(clean=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._at_end(clean=exc is None)
        self._keeper.ended(self)

    # The parser calls these.

    def on_message_begin(self) -> None:
        self._surplus = self._complete

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._complete or status < 200:
            return
        self._overhead = 0
        self._head = Head(status, self._fields)
        if self._receiver is not None:
            self._receiver.head_received(self._head)

    def on_body(self, data: bytes) -> None:
        self._overhead = 0
        if self._receiver is not None and not self._complete:
            self._receiver.body_received(data)

    def on_message_complete(self) -> None:
        if self._head is None:  # an interim response (1xx)
            self._fields = {}
            return
        self._complete = True
        self._persistent = self._parser.should_keep_alive()

    def _finish(self, receiver: Receiver) -> None:
        self._receiver = None
        receiver.response_ended()
        transport = self._transport
        assert transport is not None  # noqa: S101 - data came through it
        self.resume()
        # A member that answers before it has read the whole request may never read the rest.
        spoilt = self._surplus or transport.get_write_buffer_size() > 0
        if spoilt or not self._persistent or transport.is_closing():
            transport.abort()
            return
        field = self._head.fields.get(b"keep-alive") if self._head is not None else None
        if field is not None:
            self._limit_age(field)
        self.idle_since = self._loop.time()
        self._keeper.released(self)

    def _limit_age(self, field: bytes) -> None:
        for part in field.lower().split(b","):
            name, _, value = part.strip().partition(b"=")
            if name == b"timeout" and value.isdigit() and len(value) < 10:
                self.trusted_seconds = max(int(value) - KEEP_ALIVE_MARGIN, 0.0)
                self.kept_seconds = min(self.trusted_seconds, KEPT_SECONDS)

    def _at_end(self, *, clean: bool) -> None:
        """The member sent its last byte: the end of a body without a length, else a loss."""
        receiver = self._receiver
        if receiver is None:
            return
        if clean and self._head is not None and self._ends_with_the_connection(self._head):
            self._receiver = None
            self._complete = True
            receiver.response_ended()
            receiver.wake()
            if self._transport is not None:
                self._transport.abort()
            return
        self._lose(Failure.RESET, "the member closed the connection before its answer was complete")

    @staticmethod
    def _ends_with_the_connection(head: Head) -> bool:
        return (
            head.status not in _BODILESS
            and b"content-length" not in head.fields
            and b"transfer-encoding" not in head.fields
        )

    def _lose(self, failure: Failure, reason: str) -> None:
        receiver, heard = self._receiver, self._heard
        self.discard()
        if receiver is not None:
            receiver.response_lost(MemberFailure(failure, reason, sent=True), heard=heard)
            receiver.wake()
