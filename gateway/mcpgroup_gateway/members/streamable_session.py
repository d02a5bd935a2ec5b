"""One MCP session with a member over streamable HTTP.

Source: MCP 2025-11-25, transports; DESIGN-MCP sections 3 to 5.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway import __version__
from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.handshake import initialize_params, read_handshake
from mcpgroup_gateway.members.http1 import HttpCall, Signal
from mcpgroup_gateway.members.http_address import Address, encode_fields, event_id_field, redirect
from mcpgroup_gateway.members.http_answers import failure_of
from mcpgroup_gateway.members.http_dialling import LATE_SECONDS
from mcpgroup_gateway.members.streamable_exchange import StreamableExchange
from mcpgroup_gateway.members.streamable_listener import Listener
from mcpgroup_gateway.members.upstream import (
    NOTHING_FORWARDED,
    ClientIdentity,
    Forwarded,
    Handshake,
    MemberFailure,
)
from mcpgroup_gateway.wire.envelope import (
    METHOD_NOT_FOUND,
    MalformedMessage,
    Message,
    encode_error,
    encode_json,
    encode_notification,
    encode_request,
    encode_result,
    error_object,
    parse_object,
)
from mcpgroup_gateway.wire.protocol import (
    CALL_METHODS,
    SESSION_HEADER,
    VERSION_HEADER,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcpgroup_gateway.members.http_connection import Head
    from mcpgroup_gateway.members.http_pool import Pool
    from mcpgroup_gateway.members.streamable import StreamableConnector

#: What a member may take to accept a notification or a response of ours (seconds).
NOTIFY_SECONDS: Final = 10.0
#: Cancellations and answers to the member that may be under way at once.
MAX_TELLING: Final = 256
#: What closing a session may take (seconds).
CLOSE_SECONDS: Final = 1.0
#: Notifications that concern the session, on whatever stream they come.
_OF_THE_SESSION: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
_POST_FIELDS: Final = (
    ("Content-Type", "application/json"),
    ("Accept", "application/json, text/event-stream"),
)


class StreamableUpstream:
    """One MCP session over HTTP, see `members.upstream.Upstream`.

    Owns its tasks: the GET stream of a control session, cancellations and answers to the member.
    """

    def __init__(
        self,
        connector: StreamableConnector,
        address: Address,
        fields: Sequence[tuple[str, str]],
        loop: asyncio.AbstractEventLoop,
        *,
        on_notification: Callable[[Message], None],
        on_lost: Callable[[MemberFailure], None],
        on_request: Callable[[Message], None] | None = None,
    ) -> None:
        self._connector = connector
        self._address = address
        self._pool = connector.pool(address)
        self._fields = fields
        self._loop = loop
        self._on_notification = on_notification
        self._on_lost = on_lost
        self._on_request = on_request
        self._session_id = ""
        self._version = ""
        self._post_head = self._head("POST", address, _POST_FIELDS) + b"Content-Length: "
        self._moved_to: Address | None = None
        self._last_id = 0
        self._exchanges: set[StreamableExchange] = set()
        self._by_token: dict[bytes, StreamableExchange] = {}
        self._calls: set[StreamableExchange] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Task[None] | None = None
        self._open = False
        self._lost = False
        self._closed = False
        self.handshake = Handshake("", b"", b"", None)
        self.pid: int | None = None
        self.in_flight = 0

    @property
    def lost(self) -> bool:
        return self._lost

    @property
    def in_session(self) -> bool:
        """True when requests carry a session id; a member may work without one."""
        return bool(self._session_id)

    def request(
        self,
        method: str,
        params: bytes,
        *,
        progress_token: int | None = None,
        safe: bool = False,
        forwarded: Forwarded = NOTHING_FORWARDED,
    ) -> StreamableExchange:
        self._last_id += 1
        exchange = StreamableExchange(
            self,
            self._loop,
            request_id=self._last_id,
            request=encode_request(self._last_id, method, params),
            token=b"" if progress_token is None else b"%d" % progress_token,
            safe=safe,
            limit=self._connector.response_limit,
        )
        if self._lost or self._closed:
            reason = "the session was lost" if self._lost else "the session was closed"
            exchange.fail(MemberFailure(Failure.SESSION_LOST, reason, sent=False))
        self._exchanges.add(exchange)
        if exchange.token:
            self._by_token[exchange.token] = exchange
        if method in CALL_METHODS:
            self._calls.add(exchange)
        self.in_flight += 1
        return exchange

    async def notify(self, method: str, params: bytes) -> None:
        """Raises `MemberFailure`; when the member does not react in 10 s it is `DEADLINE`."""
        await self._deliver(encode_notification(method, params))

    def respond(self, body: bytes) -> None:
        self._tell(body)

    async def close(self) -> None:
        if self._closed:
            return
        for exchange in tuple(self._exchanges):
            reason = "the session was closed"
            exchange.abort(MemberFailure(Failure.CANCELLED, reason, sent=exchange.sent))
        self._closed = True
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                if self._tasks:
                    await asyncio.wait(self._tasks)
                if self._session_id and not self._lost:
                    await self._delete()
        except TimeoutError:
            pass  # the member forgets the session when it has been idle for long enough
        finally:
            tasks = self.abandon()
        await asyncio.gather(*tasks, return_exceptions=True)

    def abandon(self) -> tuple[asyncio.Task[None], ...]:
        """End everything at once and tell nobody; the tasks are cancelled, not awaited."""
        self._closed = True
        tasks = tuple(self._tasks)
        if self._listening is not None:
            tasks = (*tasks, self._listening)
        for task in tasks:
            task.cancel()
        return tasks

    # The exchanges and the listener call these.

    def post(self, body: bytes, signal: Signal, *, safe: bool) -> HttpCall:
        """Send a message; the bytes are written at once when there is a connection for it.

        The first one, `initialize`, dials: on an idle connection to a member that hangs it would
        hang as long as a session may take to open, and hold up a call that could have moved on.
        """
        call = HttpCall(
            self._pool,
            b"%b%d\r\n\r\n%b" % (self._post_head, len(body), body),
            signal,
            safe=safe,
            fresh=not self._version,
            redirect=lambda head: self._redirected(head, "POST", _POST_FIELDS, body),
        )
        call.start()
        return call

    def listen(self, signal: Signal, *, last_event_id: str) -> HttpCall:
        """Open an event stream with GET, behind an event when its id is given."""
        extra = [("Accept", "text/event-stream"), ("Cache-Control", "no-store")]
        position = event_id_field(last_event_id)
        if position is not None:
            extra.append(("Last-Event-ID", position))
        return self._call("GET", extra, signal)

    def forget(self, exchange: StreamableExchange) -> None:
        self._exchanges.discard(exchange)
        self._calls.discard(exchange)
        if exchange.token and self._by_token.get(exchange.token) is exchange:
            del self._by_token[exchange.token]
        self.in_flight -= 1

    def lose(self, failure: MemberFailure) -> None:
        """The member does not know the session any more; reported once."""
        if not self._lost and not self._closed:
            self._lost = True
            if self._open:
                self._on_lost(failure)

    def deliver(self, message: Message, exchange: StreamableExchange | None) -> None:
        """Route a notification that came on the stream of an exchange, or on the GET stream."""
        if message.method == "notifications/progress":
            target = self._by_token.get(_progress_token(message))
            if target is None:
                return  # late or invented
            if target is exchange:
                target.push(message)
            else:
                target.push_from_elsewhere(message)
        elif message.method == "notifications/cancelled":
            # Without `on_request` everything is answered at once: there is nothing to cancel.
            if self._on_request is not None:
                self._on_notification(message)
        elif exchange is not None and message.method not in _OF_THE_SESSION:
            exchange.push(message)
        else:
            self._on_notification(message)

    def requested(self, message: Message, exchange: StreamableExchange | None) -> None:
        """Take a request of the member; without a client that could answer only `ping` is due."""
        if message.method == "ping":
            self._tell(encode_result(message.raw_id, b"{}"))
        elif self._on_request is not None and exchange is not None:
            exchange.push(message)
        elif self._on_request is not None and len(self._calls) == 1:
            next(iter(self._calls)).push_from_elsewhere(message)  # it can only be about this call
        elif self._on_request is not None:
            self._on_request(message)
        else:
            fault = error_object(METHOD_NOT_FOUND, "the client does not support this method")
            self._tell(encode_error(message.raw_id, fault))

    def tell_cancelled(self, request_id: int, failure: MemberFailure) -> None:
        params = {"requestId": request_id, "reason": str(failure.failure)}
        self._tell(encode_notification("notifications/cancelled", encode_json(params)))

    # The connector calls these.

    async def shake_hands(self, client: ClientIdentity) -> None:
        """Raises `MemberFailure`."""
        exchange = self.request("initialize", initialize_params(client), safe=True)
        try:
            message = await exchange.next()
            while not message.is_response:
                message = await exchange.next()
            head = exchange.head
        finally:
            exchange.close()
        if head is not None:
            self._session_id = head.field(SESSION_HEADER.lower().encode()).strip()
        self.handshake = read_handshake(message)
        self._version = self.handshake.protocol_version
        if self._moved_to is not None:
            # What follows goes straight to where the member wants it.
            self._address = self._moved_to
            self._pool = self._connector.pool(self._address)
        self._post_head = self._head("POST", self._address, _POST_FIELDS) + b"Content-Length: "
        await self.notify("notifications/initialized", b"")
        self._open = True

    def start_listening(self) -> None:
        listener = Listener(self, self._loop, limit=self._connector.response_limit)
        self._listening = self._loop.create_task(listener.run())

    def _head(self, method: str, address: Address, extra: Sequence[tuple[str, str]]) -> bytes:
        """A request head without its closing line; configured fields win over ours."""
        fields = list(self._fields)
        configured = {name.lower() for name, _ in fields}
        own = [("Host", address.host_field), ("User-Agent", f"mcpgroup/{__version__}")]
        if address.authorization is not None:
            own.append(("Authorization", address.authorization))
        fields[:0] = [field for field in own if field[0].lower() not in configured]
        fields += extra
        if self._version:
            fields.append((VERSION_HEADER, self._version))
        if self._session_id:
            fields.append((SESSION_HEADER, self._session_id))
        return f"{method} {address.target} HTTP/1.1\r\n".encode("ascii") + encode_fields(fields)

    def _call(self, method: str, extra: Sequence[tuple[str, str]], signal: Signal) -> HttpCall:
        call = HttpCall(
            self._pool,
            self._head(method, self._address, extra) + b"\r\n",
            signal,
            safe=True,
            redirect=lambda head: self._redirected(head, method, extra, None),
        )
        call.start()
        return call

    def _redirected(
        self, head: Head, method: str, extra: Sequence[tuple[str, str]], body: bytes | None
    ) -> tuple[Pool, bytes]:
        try:
            address = redirect(self._address, head.field(b"location"))
        except ValueError as fault:
            raise MemberFailure(
                Failure.HTTP_ERROR, str(fault), sent=True, status=head.status
            ) from fault
        request = self._head(method, address, extra)
        if body is not None:
            request += b"Content-Length: %d\r\n" % len(body)
        if not self._version:
            self._moved_to = address
        return self._connector.pool(address), request + b"\r\n" + (body or b"")

    async def _deliver(self, body: bytes) -> None:
        """POST a message that is not answered."""
        if self._lost:
            raise MemberFailure(Failure.SESSION_LOST, "the session was lost", sent=False)
        signal = Signal(self._loop)
        call = self.post(body, signal, safe=True)
        due = self._loop.time() + NOTIFY_SECONDS
        try:
            async with asyncio.timeout_at(due):
                while call.head is None and call.failure is None:
                    await signal.wait()
        except TimeoutError:
            late = self._loop.time() - due > LATE_SECONDS
            reason = f"the member took no notification within {NOTIFY_SECONDS:g} s"
            raise MemberFailure(Failure.DEADLINE, reason, sent=call.sent, late=late) from None
        else:
            if call.head is not None and call.head.status < 300:
                call.linger(self._loop)
                return
        finally:
            call.close()
        if call.head is None:
            raise call.failure or AssertionError("a call has a head or a failure")
        # Servers answer 400 to notifications they do not like: only 404 tells of the session.
        failure = failure_of(call.head, in_session=self.in_session and call.head.status == 404)
        if failure.failure is Failure.SESSION_LOST:
            self.lose(failure)
        raise failure

    async def _delete(self) -> None:
        signal = Signal(self._loop)
        call = self._call("DELETE", (("Accept", "application/json"),), signal)
        try:
            while call.head is None and call.failure is None:
                await signal.wait()
        finally:
            call.close()

    def _tell(self, body: bytes) -> None:
        """Send something that nobody waits for; the session owns the task."""
        if self._closed or self._lost or len(self._tasks) >= MAX_TELLING:
            return
        task = self._loop.create_task(self._deliver_quietly(body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver_quietly(self, body: bytes) -> None:
        try:
            await self._deliver(body)
        except MemberFailure:
            return  # the loss of a session was reported; nothing else matters here


def _progress_token(message: Message) -> bytes:
    try:
        return bytes(parse_object(message.params).get("progressToken", b""))
    except MalformedMessage:
        return b""
