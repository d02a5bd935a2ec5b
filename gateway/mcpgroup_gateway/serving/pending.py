"""Calls that wait for a modern client to come back with what a legacy member asked for.

The client's request was answered with `input_required`; its attempt on the member stays open,
unread, until a request with the right `requestState` goes on with it, at most for
`limits.inputSeconds` (DESIGN-MCP sections 4 and 6).
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.serving.attempts import Attempt

#: Calls held at once; the oldest gives way.
_MAX_HELD: Final = 1000


class PendingCalls:
    """`seconds` gives `limits.inputSeconds`."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._held: dict[str, tuple[Attempt, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, attempt: Attempt) -> str:
        """Keep an open attempt; the id under which it is found once."""
        while len(self._held) >= _MAX_HELD:
            self._abandon(next(iter(self._held)))
        call_id = secrets.token_urlsafe(16)
        timer = asyncio.get_running_loop().call_later(self._seconds(), self._abandon, call_id)
        self._held[call_id] = (attempt, timer)
        return call_id

    def take(self, call_id: str) -> Attempt | None:
        """The attempt, which is the taker's now; None when it is gone or was taken."""
        held = self._held.pop(call_id, None)
        if held is None:
            return None
        held[1].cancel()
        return held[0]

    def close(self) -> None:
        for call_id in tuple(self._held):
            self._abandon(call_id)

    def _abandon(self, call_id: str) -> None:
        attempt = self.take(call_id)
        if attempt is not None:
            attempt.abandon("the client did not come back")
