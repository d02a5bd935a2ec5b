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
#: Bytes of what their members asked.
_MAX_BYTES: Final = 64 * 1024 * 1024
#: Those that hold a process of their own each, of one member.
_MAX_PROCESSES: Final = 128


class PendingCalls:
    """`seconds` gives `limits.inputSeconds`."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._held: dict[str, tuple[Attempt, asyncio.TimerHandle]] = {}
        self._ids: dict[Attempt, str] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, attempt: Attempt) -> str:
        """Keep an open attempt; the id under which it is found once."""
        size = attempt.parked_bytes
        while len(self._held) >= _MAX_HELD or (self._held and self._bytes + size > _MAX_BYTES):
            self._abandon(next(iter(self._held)))
        self._make_room_for_process(attempt)
        call_id = secrets.token_urlsafe(16)
        timer = asyncio.get_running_loop().call_later(self._seconds(), self._abandon, call_id)
        self._held[call_id] = (attempt, timer)
        self._ids[attempt] = call_id
        self._bytes += size
        return call_id

    def take(self, call_id: str) -> Attempt | None:
        """The attempt, which is the taker's now; None when it is gone or was taken."""
        held = self._held.pop(call_id, None)
        if held is None:
            return None
        attempt, timer = held
        timer.cancel()
        del self._ids[attempt]
        self._bytes -= attempt.parked_bytes
        return attempt

    def drop(self, attempt: Attempt, reason: str) -> None:
        """End one that must not go on; does nothing when it is not held."""
        call_id = self._ids.get(attempt)
        if call_id is not None:
            self._abandon(call_id, reason)

    def end_lost(self) -> None:
        """End those whose member has gone: nobody reads that they failed."""
        for attempt in [each for each in self._ids if each.upstream and each.upstream.lost]:
            self.drop(attempt, "the member was lost")

    def close(self) -> None:
        for call_id in tuple(self._held):
            self._abandon(call_id)

    def _make_room_for_process(self, attempt: Attempt) -> None:
        if attempt.upstream is None or attempt.upstream.pid is None:
            return
        endpoint = attempt.endpoint
        same = [each for each in self._ids if each.endpoint is endpoint]
        if len(same) >= _MAX_PROCESSES:
            self.drop(same[0], "too many calls wait for their clients")

    def _abandon(self, call_id: str, reason: str = "the client did not come back") -> None:
        attempt = self.take(call_id)
        if attempt is not None:
            attempt.abandon(reason)
