"""One MCP session with a member over streamable HTTP, for the versions that have sessions.

Source: MCP 2025-11-25, transports; DESIGN-MCP sections 3 to 5.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.handshake import initialize_params
from mcpgroup_gateway.members.http1 import Signal
from mcpgroup_gateway.members.http_answers import error_code
from mcpgroup_gateway.members.http_session import OF_THE_SESSION, HttpUpstream
from mcpgroup_gateway.members.modern_requests import named_by, routing_fields
from mcpgroup_gateway.members.open_exchanges import progress_token
from mcpgroup_gateway.members.streamable_exchange import StreamableExchange
from mcpgroup_gateway.members.streamable_listener import Listener
from mcpgroup_gateway.members.telling import Telling, failure_of_telling, refusal_of
from mcpgroup_gateway.members.upstream import (
    NOTHING_FORWARDED,
    Forwarded,
    Handshake,
    MemberFailure,
)
from mcpgroup_gateway.wire.envelope import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    Message,
    encode_error,
    encode_json,
    encode_notification,
    encode_result,
    error_object,
)
from mcpgroup_gateway.wire.protocol import SESSION_HEADER, UNSUPPORTED_VERSION, VERSION_HEADER

if TYPE_CHECKING:
    from mcpgroup_gateway.members.http_target import Fields, HttpTarget
    from mcpgroup_gateway.members.upstream import Opening

#: What closing a session may take (seconds).
CLOSE_SECONDS: Final = 1.0


class StreamableUpstream(HttpUpstream):
    """One MCP session over HTTP, see `members.upstream.Upstream`.

    Owns its tasks: the GET stream of a control session, cancellations and answers to the member.
    `routed`: what is between us and the member, which speaks the modern era as well, may want to
    see in headers what a request is.
    """

    resumable = True

    def __init__(
        self,
        target: HttpTarget,
        opening: Opening,
        *,
        response_limit: int,
        dials: bool,
        routed: bool,
    ) -> None:
        super().__init__(target, opening, response_limit=response_limit, dials=dials)
        self._client = opening.client
        self._on_request = opening.on_request
        self._routed = routed
        self._session_id = ""
        self._telling = Telling(self._loop, self._deliver)
        self._listening: asyncio.Task[None] | None = None

    @property
    def in_session(self) -> bool:
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
        """`forwarded.log_level` makes no difference: sessions have a level of their own."""
        fields = self.target.sendable(forwarded.headers) if forwarded.headers else ()
        if self._routed:
            fields += routing_fields(method, named_by(method, params))
        self._last_id += 1
        return self._begin(
            StreamableExchange(
                self, self._loop, self._last_id, method, params, progress_token, safe, fields
            )
        )

    async def notify(self, method: str, params: bytes) -> None:
        """Raises `MemberFailure`; when the member does not react in 10 s it is `DEADLINE`."""
        fields = routing_fields(method, None) if self._routed else ()
        await self._deliver(encode_notification(method, params), fields)

    def respond(self, body: bytes) -> None:
        self._tell(body)

    async def close(self) -> None:
        if self._closed:
            return
        self._abort_all()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                if self._telling.tasks:
                    await asyncio.wait(self._telling.tasks)
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
        tasks = tuple(self._telling.tasks)
        if self._listening is not None:
            tasks = (*tasks, self._listening)
        for task in tasks:
            task.cancel()
        return tasks

    # The exchanges and the listener call these.

    def deliver(self, message: Message, exchange: StreamableExchange | None) -> None:
        """Route a notification that came on the stream of an exchange, or on the GET stream."""
        if message.method == "notifications/progress":
            target = self._by_token.get(progress_token(message))
            if target is None:
                return  # late or invented
            if target is exchange:
                target.push(message)
            else:
                target.push_from_elsewhere(message)
        elif message.method == "notifications/cancelled":
            # Without `on_request` everything is answered at once: there is nothing to cancel.
            if self._on_request is not None:
                self.heard(message)
        elif exchange is not None and message.method not in OF_THE_SESSION:
            exchange.push(message)
        else:
            self.heard(message)

    def requested(self, message: Message, exchange: StreamableExchange | None) -> None:
        """Take a request of the member; without a client that could answer only `ping` is due."""
        if message.method == "ping":
            self._tell(encode_result(message.raw_id, b"{}"))
        elif self._on_request is not None and exchange is not None:
            exchange.push(message)
        elif self._on_request is not None and len(self._calls) == 1:
            # It can only be about this call.
            if not next(iter(self._calls)).push_from_elsewhere(message):
                fault = error_object(INTERNAL_ERROR, "too many requests wait for the client")
                self._tell(encode_error(message.raw_id, fault))
        elif self._on_request is not None:
            self._on_request(message)
        else:
            fault = error_object(METHOD_NOT_FOUND, "the client does not support this method")
            self._tell(encode_error(message.raw_id, fault))

    def refusal(self, exchange: StreamableExchange, answer: Message) -> MemberFailure | None:
        if not self.is_open or error_code(answer) != UNSUPPORTED_VERSION:
            return None
        reason = "the member does not serve the version any more that its session was opened with"
        failure = MemberFailure(Failure.SESSION_LOST, reason, sent=True)
        self.lose(failure)
        return failure

    def refused(self, failure: MemberFailure) -> None:
        if failure.failure is Failure.SESSION_LOST:
            self.lose(failure)

    def abandoned(self, exchange: StreamableExchange, failure: MemberFailure) -> None:
        if exchange.method != "initialize":  # which must not be cancelled
            params = {"requestId": exchange.request_id, "reason": str(failure.failure)}
            self._tell(encode_notification("notifications/cancelled", encode_json(params)))

    # The connector calls these.

    async def initialize(self) -> Message:
        """The member's answer. Raises `MemberFailure`."""
        exchange = self.request("initialize", initialize_params(self._client), safe=True)
        try:
            message = await exchange.next()
            while not message.is_response:
                message = await exchange.next()
            head = exchange.head
        finally:
            exchange.close()
        if head is not None:
            self._session_id = head.field(SESSION_HEADER.lower().encode()).strip()
        return message

    async def adopt(self, handshake: Handshake) -> None:
        """Go on with what was agreed. Raises `MemberFailure`."""
        self.handshake = handshake
        self.dials = False
        self.target.speak(self._protocol_fields())
        self.target.settle()
        await self.notify("notifications/initialized", b"")
        self.is_open = True

    def hold_stream(self) -> None:
        if self._listening is not None or self._closed:
            return
        listener = Listener(self, self._loop, limit=self.response_limit)
        self._listening = self._loop.create_task(listener.run())

    def _protocol_fields(self) -> Fields:
        version = self.handshake.protocol_version
        fields: Fields = ((VERSION_HEADER, version),) if version else ()
        if self._session_id:
            fields += ((SESSION_HEADER, self._session_id),)
        return fields

    async def _deliver(self, body: bytes, fields: Fields = ()) -> None:
        """POST a message that is not answered."""
        if self._lost:
            raise MemberFailure(Failure.SESSION_LOST, "the session was lost", sent=False)
        signal = Signal(self._loop)
        call = self.post(body, signal, safe=True, fields=fields)
        refusal = await refusal_of(call, signal, self._loop)
        if refusal is not None:
            failure = failure_of_telling(refusal, in_session=self.in_session)
            self.refused(failure)
            raise failure

    async def _delete(self) -> None:
        # A session whose handshake was refused has a name, and no version yet.
        fields: Fields = (("Accept", "application/json"),)
        if not self.handshake.protocol_version:
            fields += ((SESSION_HEADER, self._session_id),)
        signal = Signal(self._loop)
        call = self.target.call("DELETE", fields, signal)
        try:
            while call.head is None and call.failure is None:
                await signal.wait()
        finally:
            call.close()

    def _tell(self, body: bytes) -> None:
        if not self._closed and not self._lost:
            self._telling.tell(body)
