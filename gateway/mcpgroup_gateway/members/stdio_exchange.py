"""One request to a process and the messages that answer it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from mcpgroup_gateway.members.lines import encode_line
from mcpgroup_gateway.members.pipes import OutgoingLine
from mcpgroup_gateway.wire.envelope import encode_request

if TYPE_CHECKING:
    from mcpgroup_gateway.members.upstream import MemberFailure
    from mcpgroup_gateway.wire.envelope import Message

#: Notifications that wait in one exchange for its reader; then the oldest are dropped.
_BUFFERED_MESSAGES: Final = 256
_BUFFERED_BYTES: Final = 4 * 1024 * 1024


class Table(Protocol):
    """The session's requests in flight."""

    def forget(self, exchange: StdioExchange, reason: str) -> bool:
        """Take an unanswered exchange out and tell the process when it knows of it.

        False when it was answered, failed or forgotten before.
        """
        ...


class StdioExchange(OutgoingLine):
    """One request to a process. See `Exchange`."""

    __slots__ = (
        "_buffer",
        "_buffered",
        "_failure",
        "_table",
        "_waiter",
        "id",
        "method",
        "token",
    )

    def __init__(
        self,
        table: Table,
        request_id: int,
        method: str,
        params: bytes,
        token: int | None,
    ) -> None:
        super().__init__(encode_line(encode_request(request_id, method, params)))
        self.id = request_id
        self.method = method
        self.token = token
        self._table = table
        self._buffer: deque[tuple[Message, int]] = deque()
        self._buffered = 0
        self._waiter: asyncio.Future[None] | None = None
        self._failure: MemberFailure | None = None

    async def next(self) -> Message:
        while not self._buffer:
            if self._failure is not None:
                raise self._failure
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message, size = self._buffer.popleft()
        self._buffered -= size
        return message

    def abort(self, failure: MemberFailure) -> None:
        if self._table.forget(self, failure.reason):
            self.fail(failure)

    def close(self) -> None:
        self._table.forget(self, "the request was abandoned")
        self._buffer.clear()

    def deliver(self, message: Message, size: int) -> bool:
        """Queue a message of this exchange; false when too many messages wait.

        Of too many the oldest notification is dropped, never the response, which comes last, nor
        a request that was taken, for which the process waits.
        """
        while self._is_full(size):
            oldest = next((item for item in self._buffer if item[0].is_notification), None)
            if oldest is None:
                if message.is_response:
                    break
                return False
            self._buffer.remove(oldest)
            self._buffered -= oldest[1]
        self._buffer.append((message, size))
        self._buffered += size
        self._wake()
        return True

    def _is_full(self, size: int) -> bool:
        waiting = len(self._buffer)
        too_many = waiting >= _BUFFERED_MESSAGES or self._buffered + size > _BUFFERED_BYTES
        return waiting > 0 and too_many

    def fail(self, failure: MemberFailure) -> None:
        """End without a response; what was not read yet is dropped."""
        self._failure = failure
        self._buffer.clear()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
