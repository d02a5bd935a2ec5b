"""Deadlines of waiting for a member: one timer each, honest about our own stalls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.core.outcomes import Failure

#: A timer this late means that we were stopped (SIGSTOP, a frozen VM, a blocked loop), not the
#: member; what it sent meanwhile gets this long to be read before the deadline counts.
LATE_SECONDS = 1.0


class Deadline:
    """Calls `abort` with a `MemberFailure` once `seconds` passed without `touch`.

    `limit` (seconds from now, None: none) is not moved by `touch`. Both stand still between `pause`
    and the `resume` of each who paused. Close it in a `finally`.
    """

    __slots__ = (
        "_abort",
        "_closed",
        "_end",
        "_failure",
        "_loop",
        "_paused_at",
        "_pauses",
        "_seconds",
        "_sent",
        "_stalled",
        "_text",
        "_timer",
        "_touched",
        "paused_seconds",
    )

    def __init__(
        self,
        seconds: float,
        abort: Callable[[MemberFailure], None],
        failure: Failure,
        text: str,
        *,
        sent: bool = True,
        limit: float | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._abort = abort
        self._failure = failure
        self._text = text
        self._sent = sent
        self._stalled = False
        self._closed = False
        self._pauses = 0
        self._paused_at = 0.0
        #: How long it stood still, without a pause that still lasts.
        self.paused_seconds = 0.0
        self._touched = now = self._loop.time()
        self._end = None if limit is None else now + limit
        self._timer = self._loop.call_at(self._due(), self._fire, self._due())

    def touch(self) -> None:
        """The member was heard: the silence starts anew."""
        self._touched = self._loop.time()

    def pause(self) -> None:
        """Somebody else is waited for: the member's time does not pass."""
        self._pauses += 1
        if self._pauses == 1:
            self._paused_at = self._loop.time()
            self._timer.cancel()

    def resume(self) -> None:
        """The silence starts anew, the whole goes on where it stood."""
        self._pauses -= 1
        if self._pauses or self._closed:
            return
        now = self._loop.time()
        self._touched = now
        self.paused_seconds += now - self._paused_at
        if self._end is not None:
            self._end += now - self._paused_at
        self._timer = self._loop.call_at(self._due(), self._fire, self._due())

    def close(self) -> None:
        self._timer.cancel()
        if self._pauses and not self._closed:
            self.paused_seconds += self._loop.time() - self._paused_at
        self._closed = True

    def _due(self) -> float:
        due = self._touched + self._seconds
        return due if self._end is None else min(due, self._end)

    def _fire(self, due: float) -> None:
        now = self._loop.time()
        if now - due > LATE_SECONDS and not self._stalled:
            self._stalled = True
            self._timer = self._loop.call_at(now + LATE_SECONDS, self._fire, now + LATE_SECONDS)
            return
        later = self._due()
        if later > now:
            self._stalled = False
            self._timer = self._loop.call_at(later, self._fire, later)
            return
        self._abort(MemberFailure(self._failure, self._text, sent=self._sent, late=self._stalled))
