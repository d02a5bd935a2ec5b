"""One request to a member over streamable HTTP: POST, a JSON body or an event stream, resumption.

The exchange is a small state machine that only moves inside `next`, on what its `HttpCall` has; it
costs no task and no timer while it waits for an answer.

Source: MCP 2025-11-25, transports, sections "sending messages" and "resumability".
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http_address import event_id_field
from mcpgroup_gateway.members.http_answers import (
    EVENT_STREAM,
    failure_of,
    is_json,
    malformed,
    media_type,
    read_answer,
    too_large,
)
from mcpgroup_gateway.members.http_exchange import HttpExchange
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.wire.envelope import MalformedMessage, Message, parse_message
from mcpgroup_gateway.wire.sse import Event, EventParser, EventTooLarge

if TYPE_CHECKING:
    import asyncio

    from mcpgroup_gateway.members.http1 import HttpCall
    from mcpgroup_gateway.members.http_connection import Head
    from mcpgroup_gateway.members.http_session import HttpUpstream
    from mcpgroup_gateway.members.http_target import Fields

#: Wait before resuming when the member does not say how long (seconds).
RETRY_SECONDS: Final = 1.0
#: A member that asks for less is not asked faster than this (seconds).
SHORTEST_RETRY_SECONDS: Final = 0.05
#: Resumed streams in a row that may end without a single event.
FRUITLESS_RESUMPTIONS: Final = 3
#: Messages that wait for a reader when they come by another stream than our own.
MAX_READY: Final = 1000


class StreamableExchange(HttpExchange):
    """See `members.upstream.Exchange`; made by `StreamableUpstream.request`."""

    __slots__ = ("_fruitless", "_limit", "_parser", "_ready", "_resumption", "_session", "head")

    def __init__(
        self,
        session: HttpUpstream,
        loop: asyncio.AbstractEventLoop,
        request_id: int,
        method: str,
        params: bytes,
        progress_token: int | None,
        safe: bool,
        fields: Fields,
    ) -> None:
        super().__init__(loop, request_id, method, params, progress_token, safe, fields)
        self._session = session
        self._limit = session.response_limit
        self._parser: EventParser | None = None
        self._ready: deque[Message] = deque()
        self._resumption: asyncio.TimerHandle | None = None
        self._fruitless = 0
        self.head: Head | None = None

    async def next(self) -> Message:
        if self._call is None and self._resumption is None and self._failure is None:
            self._call = self._session.post(
                self._request, self._signal, safe=self._safe, fields=self._fields
            )
        while True:
            if self._ready:
                return self._ready.popleft()
            if self._failure is not None:
                raise self._failure
            if not self._advance():
                await self._signal.wait()

    def abort(self, failure: MemberFailure) -> None:
        if not self.pending:
            return
        self._ready.clear()
        self._give_up(failure)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._session.forget(self)
        if self.pending:
            reason = "the exchange was given up"
            self._give_up(MemberFailure(Failure.CANCELLED, reason, sent=self.sent))

    def fail(self, failure: MemberFailure) -> None:
        """End the exchange without telling the member; used when its session is gone."""
        if self.pending:
            self._failure = failure
            self._stop()

    def push(self, message: Message) -> None:
        """Give the reader a notification from the exchange's own stream.

        There is no limit: the stream is read further only when all of them were taken.
        """
        if self.pending:
            self._ready.append(message)

    def push_from_elsewhere(self, message: Message) -> bool:
        """Give the reader a message from another stream; false when too many wait for it."""
        if len(self._ready) >= MAX_READY:
            return False
        self.push(message)
        self._signal.wake()
        return True

    def _give_up(self, failure: MemberFailure) -> None:
        sent = self.sent
        self.fail(failure)
        if sent:
            self._session.abandoned(self, failure)

    def _stop(self) -> None:
        self._was_sent = self.sent
        if self._resumption is not None:
            self._resumption.cancel()
        if self._call is not None:
            self._call.close()
        self._signal.wake()

    def _advance(self) -> bool:
        """Use what has arrived. False when there is nothing to do but wait."""
        call = self._call
        if call is None:
            return False
        head = self.head
        if head is None:
            head = self.head = call.head
            if head is None:
                if call.failure is None:
                    return False
                self._lose(call.failure)
                return True
            self._begin(head)
            if self._failure is not None:
                return True
        if self._parser is not None:
            return self._read_stream(call, self._parser)
        return self._read_body(call, head)

    def _begin(self, head: Head) -> None:
        media = media_type(head)
        if media == EVENT_STREAM and head.status < 300:
            parser = EventParser(self._limit)
            if self._parser is not None:
                parser.last_id = self._parser.last_id
                parser.retry_seconds = self._parser.retry_seconds
            self._parser = parser
        elif self._parser is not None:
            reason = f"the stream broke and was not resumed (HTTP {head.status})"
            self.fail(MemberFailure(Failure.RESET, reason, sent=True))
        elif not is_json(media):
            self._refuse(failure_of(head, in_session=self._session.in_session))
        elif int(head.fields.get(b"content-length", b"0")) > self._limit:
            self.fail(too_large(self._limit))

    def _read_body(self, call: HttpCall, head: Head) -> bool:
        while data := call.take():
            self._body.append(data)
            self._size += len(data)
            if self._size > self._limit:
                self.fail(too_large(self._limit))
                return True
        if call.failure is not None:
            self._lose(call.failure)
        elif call.ended:
            in_session = self._session.in_session
            try:
                answer = read_answer(head, b"".join(self._body), self.raw_id, in_session=in_session)
            except MemberFailure as failure:
                self._refuse(failure)
            else:
                self._answer(answer)
        else:
            return False
        return True

    def _read_stream(self, call: HttpCall, parser: EventParser) -> bool:
        data = call.take()
        if data:
            try:
                events = parser.feed(data)
            except EventTooLarge:
                self.fail(too_large(self._limit))
                return True
            for event in events:
                self._fruitless = 0
                self._read_event(event)
                if not self.pending:
                    break
        elif call.failure is not None or call.ended:
            self._resume_or_lose(call, parser)
        else:
            return False
        return True

    def _read_event(self, event: Event) -> None:
        if event.event not in ("", "message") or not event.data:
            return  # not MCP's, or the event that only announces an id
        try:
            message = parse_message(event.data)
        except MalformedMessage as fault:
            self.fail(malformed(f"the member's stream has a malformed message: {fault.text}"))
            return
        if message.is_response:
            if message.raw_id == self.raw_id:
                self._answer(message)
        elif message.is_request:
            self._session.requested(message, self)
        else:
            self._session.deliver(message, self)

    def _answer(self, message: Message) -> None:
        refusal = self._session.refusal(self, message)
        if refusal is not None:
            self.fail(refusal)
            return
        self._answered = True
        self._was_sent = True
        self._ready.append(message)
        if self._call is not None:
            self._call.linger(self._loop)

    def _resume_or_lose(self, call: HttpCall, parser: EventParser) -> None:
        if not self._session.resumable or event_id_field(parser.last_id) is None:
            reason = "the member's stream ended before its answer"
            self.fail(call.failure or MemberFailure(Failure.RESET, reason, sent=True))
            return
        self._fruitless += 1
        if self._fruitless > FRUITLESS_RESUMPTIONS:
            reason = "the member's stream ended before its answer and resuming brought nothing"
            self.fail(MemberFailure(Failure.RESET, reason, sent=True))
            return
        self._was_sent = True
        call.close()
        self._call = None
        wait = RETRY_SECONDS if parser.retry_seconds is None else parser.retry_seconds
        self._resumption = self._loop.call_later(
            max(wait, SHORTEST_RETRY_SECONDS), self._resume, parser.last_id
        )

    def _resume(self, last_id: str) -> None:
        self._resumption = None
        self.head = None
        self._call = self._session.listen(self._signal, last_event_id=last_id, fields=self._fields)
        self._signal.wake()

    def _lose(self, failure: MemberFailure) -> None:
        """The connection failed. After a first stream that can only mean that the call is lost."""
        if self._parser is not None and failure.failure is not Failure.RESET:
            reason = f"the stream broke and was not resumed: {failure.reason}"
            failure = MemberFailure(Failure.RESET, reason, sent=True, late=failure.late)
        self.fail(failure)

    def _refuse(self, failure: MemberFailure) -> None:
        self._session.refused(failure)
        self.fail(failure)
