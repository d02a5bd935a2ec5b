"""One MCP session over the old HTTP+SSE transport: one GET stream, and a URL for messages.

What we say is posted to the URL that the stream's first event names; everything the member says,
answers included, comes on the stream. When the stream ends the session has ended.

Source: MCP 2024-11-05, transports, "HTTP with SSE"; DESIGN-MCP sections 3 to 5.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.cut_answers import answered_id
from mcpgroup_gateway.members.handshake import initialize_params, read_handshake
from mcpgroup_gateway.members.http1 import Signal
from mcpgroup_gateway.members.http_answers import too_large
from mcpgroup_gateway.members.lines import LineLog
from mcpgroup_gateway.members.only_call import CallsInFlight
from mcpgroup_gateway.members.open_exchanges import ExchangeKeeper, progress_token
from mcpgroup_gateway.members.sse_exchange import SseExchange
from mcpgroup_gateway.members.sse_stream import SseStream
from mcpgroup_gateway.members.telling import Telling, failure_of_telling, refusal_of
from mcpgroup_gateway.members.upstream import NOTHING_FORWARDED, Forwarded, MemberFailure
from mcpgroup_gateway.wire.envelope import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    MalformedMessage,
    Message,
    encode_error,
    encode_json,
    encode_notification,
    encode_result,
    error_object,
    parse_message,
)
from mcpgroup_gateway.wire.protocol import VERSION_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.members.http1 import HttpCall
    from mcpgroup_gateway.members.http_address import Address
    from mcpgroup_gateway.members.http_target import Fields, HttpTarget
    from mcpgroup_gateway.members.upstream import Opening
    from mcpgroup_gateway.wire.sse import Event

#: What closing a session may take (seconds).
CLOSE_SECONDS: Final = 1.0


class SseUpstream(ExchangeKeeper[SseExchange]):
    """See `members.upstream.Upstream`.

    Owns its tasks: the one that reads the stream, cancellations and answers to the member.
    """

    def __init__(
        self,
        name: str,
        make_target: Callable[[Address], HttpTarget],
        address: Address,
        opening: Opening,
        *,
        response_limit: int,
    ) -> None:
        super().__init__(opening)
        loop = asyncio.get_running_loop()
        self._log = logging.getLogger(f"mcpgroup.member.{name}")
        self._noise = LineLog(self._log, logging.WARNING, "not a message", loop.time, per_second=10)
        self._limit = response_limit
        self._make_target = make_target
        self._target = make_target(address)
        self._loop = loop
        self._client = opening.client
        self._on_request = opening.on_request
        self._candidates = CallsInFlight(loop.time, self._calls)
        self._telling = Telling(loop, self._deliver)
        self._stream = SseStream(
            self._target,
            loop,
            limit=self._limit,
            on_event=self._read_event,
            on_end=self._stream_ended,
        )
        self._reading: asyncio.Task[None] | None = None

    def request(
        self,
        method: str,
        params: bytes,
        *,
        progress_token: int | None = None,
        safe: bool = False,
        forwarded: Forwarded = NOTHING_FORWARDED,
    ) -> SseExchange:
        fields = self._target.sendable(forwarded.headers) if forwarded.headers else ()
        self._last_id += 1
        return self._begin(
            SseExchange(
                self, self._loop, self._last_id, method, params, progress_token, safe, fields
            )
        )

    async def notify(self, method: str, params: bytes) -> None:
        """Raises `MemberFailure`; when the member does not react in 10 s it is `DEADLINE`."""
        await self._deliver(encode_notification(method, params))

    def respond(self, body: bytes) -> None:
        self._tell(body)

    def hold_stream(self) -> None:
        """There is one stream for everything."""

    async def close(self) -> None:
        if self._closed:
            return
        self._abort_all()
        try:
            if self._telling.tasks:
                await asyncio.wait(self._telling.tasks, timeout=CLOSE_SECONDS)
        finally:
            tasks = self.abandon()
        await asyncio.gather(*tasks, return_exceptions=True)

    def abandon(self) -> tuple[asyncio.Task[None], ...]:
        """End everything at once and tell nobody; the tasks are cancelled, not awaited."""
        self._closed = True
        tasks = tuple(self._telling.tasks)
        if self._reading is not None:
            tasks = (*tasks, self._reading)
        for task in tasks:
            task.cancel()
        return tasks

    # The exchanges call these.

    def post(self, body: bytes, signal: Signal, *, safe: bool, fields: Fields = ()) -> HttpCall:
        return self._target.post(body, signal, safe=safe, fields=fields)

    def tell_cancelled(self, exchange: SseExchange, failure: MemberFailure) -> None:
        if self.is_open:  # else it is `initialize`, which must not be cancelled
            self._candidates.give_up(exchange)
            params = {"requestId": exchange.request_id, "reason": str(failure.failure)}
            self._tell(encode_notification("notifications/cancelled", encode_json(params)))

    # The connector calls this.

    async def shake_hands(self) -> None:
        """Open the stream, learn where to post, initialize. Raises `MemberFailure`."""
        self._reading = self._loop.create_task(self._stream.run())
        self._target = self._make_target(await self._stream.endpoint())
        exchange = self.request("initialize", initialize_params(self._client), safe=True)
        try:
            message = await exchange.next()
            while not message.is_response:
                message = await exchange.next()
        finally:
            exchange.close()
        self.handshake = read_handshake(message)
        self._target.speak(((VERSION_HEADER, self.handshake.protocol_version),))
        await self.notify("notifications/initialized", b"")
        if self._stream.failure is not None:
            raise self._stream.failure
        self.is_open = True

    # The stream calls these.

    def _stream_ended(self, failure: MemberFailure) -> None:
        self._noise.flush()
        # Proxies cut streams too: whether the member is there the next session tells.
        reason = f"the session's event stream broke: {failure.reason}"
        self.lose(MemberFailure(Failure.SESSION_LOST, reason, sent=False))
        for exchange in tuple(self._exchanges.values()):
            unsent = self.is_open and not exchange.sent
            kind = Failure.SESSION_LOST if unsent else Failure.RESET
            exchange.fail(MemberFailure(kind, reason, sent=exchange.sent))

    def _read_event(self, event: Event) -> None:
        if event.event not in ("", "message"):
            return
        if not event.whole:
            self._spoil(event.data, too_large(self._limit))
            return
        try:
            message = parse_message(event.data)
        except MalformedMessage as fault:
            reason = f"the member's stream has a malformed message: {fault.text}"
            self._spoil(event.data, MemberFailure(Failure.MALFORMED, reason, sent=True))
            return
        size = len(event.data)
        try:
            if message.is_response:
                exchange = self._exchanges.get(message.raw_id)
                if exchange is not None:
                    exchange.answer(message)
            elif message.is_request:
                self._requested(message, size)
            else:
                self._notified(message, size)
        except Exception:  # noqa: BLE001 - logged; the messages after it go on
            self._log.exception("a message was not handled: %s", message.method or "a response")

    def _spoil(self, data: bytes, failure: MemberFailure) -> None:
        """Fail the request that this unusable event was to answer, if that can be told."""
        request_id = answered_id(data)
        exchange = None if request_id is None else self._exchanges.get(request_id)
        if exchange is not None:
            exchange.fail(failure)
        else:
            self._noise.write(data)

    def _requested(self, message: Message, size: int) -> None:
        if message.method == "ping":
            self._tell(encode_result(message.raw_id, b"{}"))
        elif self._on_request is None:
            fault = error_object(METHOD_NOT_FOUND, "the client does not support this method")
            self._tell(encode_error(message.raw_id, fault))
        elif (call := self._candidates.only) is None:
            self._on_request(message)
        elif not call.deliver(message, size):  # it can only be about this call
            fault = error_object(INTERNAL_ERROR, "too many requests at once")
            self._tell(encode_error(message.raw_id, fault))

    def _notified(self, message: Message, size: int) -> None:
        if message.method == "notifications/progress":
            target = self._by_token.get(progress_token(message))
            if target is not None:  # else it is late or invented
                target.deliver(message, size)
        elif message.method == "notifications/message" and (call := self._candidates.speaking):
            call.deliver(message, size)
        elif message.method != "notifications/cancelled" or self._on_request is not None:
            # Without `on_request` everything is answered at once: there is nothing to cancel.
            self._on_notification(message)

    # What we say.

    async def _deliver(self, body: bytes) -> None:
        if self._lost:
            raise MemberFailure(Failure.SESSION_LOST, "the session was lost", sent=False)
        in_session = self.is_open
        signal = Signal(self._loop)
        call = self.post(body, signal, safe=True)
        refusal = await refusal_of(call, signal, self._loop)
        if refusal is not None:
            failure = failure_of_telling(refusal, in_session=in_session)
            if failure.failure is Failure.SESSION_LOST:
                self.lose(failure)
            raise failure

    def _tell(self, body: bytes) -> None:
        if not self._closed and not self._lost:
            self._telling.tell(body)
