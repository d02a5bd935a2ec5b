"""The bounded queue between a session and one of its open GET streams."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

#: What may wait in one stream for a client that reads slowly.
STREAM_MESSAGES: Final = 256
STREAM_BYTES: Final = 1 << 20


class EventStream:
    """Messages that belong to no call, on their way to one client."""

    __slots__ = ("_bytes", "_messages", "_waiter", "closed")

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False

    def push(self, message: bytes) -> bool:
        """Queue one JSON-RPC message; False when the stream has ended or its client lags."""
        if self.closed:
            return False
        if self._messages and (
            len(self._messages) >= STREAM_MESSAGES or self._bytes + len(message) > STREAM_BYTES
        ):
            return False
        self._messages.append(message)
        self._bytes += len(message)
        self._wake()
        return True

    async def next(self) -> list[bytes] | None:
        """The messages that wait, at least one; None once the stream has ended.

        One reader at a time.
        """
        while not self._messages:
            if self.closed:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        messages = list(self._messages)
        self._messages.clear()
        self._bytes = 0
        return messages

    def close(self) -> None:
        """End the stream after what is queued. Calling it again changes nothing."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
