"""One request over the old HTTP+SSE transport: a POST that is accepted, an answer on the stream.

The exchange moves inside `next` and when the session hands it a message; it costs no task and no
timer while it waits.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http_answers import (
    failure_of,
    is_json,
    media_type,
    read_answer,
    too_large,
)
from mcpgroup_gateway.members.http_exchange import HttpExchange
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    import asyncio

    from mcpgroup_gateway.members.http1 import HttpCall
    from mcpgroup_gateway.members.http_connection import Head
    from mcpgroup_gateway.members.http_target import Fields
    from mcpgroup_gateway.members.sse_session import SseUpstream
    from mcpgroup_gateway.wire.envelope import Message

#: Messages that wait in one exchange for its reader; then the oldest notifications are dropped.
BUFFERED_MESSAGES: Final = 256
BUFFERED_BYTES: Final = 4 * 1024 * 1024
#: What is read of a refusal in JSON (bytes), which may be an error for this request.
_REFUSAL_BYTES: Final = 64 * 1024


class SseExchange(HttpExchange):
    """See `members.upstream.Exchange`; made by `SseUpstream.request`."""

    __slots__ = ("_begun", "_buffered", "_ready", "_session")

    def __init__(
        self,
        session: SseUpstream,
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
        self._ready: deque[tuple[Message, int]] = deque()
        self._buffered = 0
        self._begun = False

    async def next(self) -> Message:
        if not self._begun:
            self._begun = True
            if self._failure is None:
                self._call = self._session.post(
                    self._request, self._signal, safe=self._safe, fields=self._fields
                )
        while True:
            if self._ready:
                message, size = self._ready.popleft()
                self._buffered -= size
                return message
            if self._failure is not None:
                raise self._failure
            if not self._advance():
                await self._signal.wait()

    def abort(self, failure: MemberFailure) -> None:
        if not self.pending:
            return
        sent = self.sent
        self.fail(failure)
        if sent:
            self._session.tell_cancelled(self, failure)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._session.forget(self)
        if self.pending:
            reason = "the exchange was given up"
            self.abort(MemberFailure(Failure.CANCELLED, reason, sent=self.sent))
        self._ready.clear()

    def fail(self, failure: MemberFailure) -> None:
        """End without an answer and tell the member nothing; what was not read yet is dropped."""
        if not self.pending:
            return
        self._failure = failure
        self._was_sent = self.sent
        self._ready.clear()
        self._buffered = 0
        if self._call is not None:
            self._call.close()
        self._signal.wake()

    def deliver(self, message: Message, size: int) -> bool:
        """Give the reader a message of the stream, `size` bytes long; False when it has no room.

        The stream is everybody's, so a slow reader cannot hold it up: it misses the oldest
        notifications, and requests of the member that it does not take are not kept without end.
        """
        if not self.pending:
            return True
        while (
            len(self._ready) >= BUFFERED_MESSAGES or self._buffered + size > BUFFERED_BYTES
        ) and self._ready:
            oldest = next((item for item in self._ready if item[0].is_notification), None)
            if oldest is None:
                return message.is_notification
            self._ready.remove(oldest)
            self._buffered -= oldest[1]
        self._ready.append((message, size))
        self._buffered += size
        self._signal.wake()
        return True

    def answer(self, message: Message) -> None:
        """The response came, perhaps before the POST was accepted."""
        if not self.pending:
            return
        self._answered = True
        self._was_sent = True
        self._ready.append((message, 0))
        if self._call is not None:
            self._call.linger(self._loop)
            self._call = None
        self._signal.wake()

    def _advance(self) -> bool:
        """Look at what became of the POST. False when there is nothing to do but wait."""
        call = self._call
        if call is None:
            return False
        head = call.head
        if head is None:
            if call.failure is None:
                return False
            self.fail(call.failure)
            return True
        if head.status < 300:
            self._was_sent = True
            self._call = None
            call.linger(self._loop)  # its content means nothing
            return False
        return self._read_refusal(call, head)

    def _read_refusal(self, call: HttpCall, head: Head) -> bool:
        in_session = self._session.is_open
        if not is_json(media_type(head)):
            self._refuse(failure_of(head, in_session=in_session))
            return True
        while data := call.take():
            self._body.append(data)
            self._size += len(data)
            if self._size > _REFUSAL_BYTES:
                self._refuse(too_large(_REFUSAL_BYTES))
                return True
        if call.failure is not None:
            self.fail(call.failure)
        elif call.ended:
            body = b"".join(self._body)
            try:
                answer = read_answer(head, body, self.raw_id, in_session=in_session)
            except MemberFailure as failure:
                self._refuse(failure)
            else:
                self.answer(answer)
        else:
            return False
        return True

    def _refuse(self, failure: MemberFailure) -> None:
        if failure.failure is Failure.SESSION_LOST:
            self._session.lose(failure)
        self.fail(failure)
