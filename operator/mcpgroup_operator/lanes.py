"""Two lanes for questions to pods, so that those who hang do not keep those who answer waiting.

Who answered last time starts in the fast lane, who did not in the slow one. A question that was
not answered within a moment leaves the fast lane and goes on in the slow one: a hundred pods that
begin to hang at once, or hang when nothing is known of them yet, cost the others a moment. The
slow lane may hold more than its limit for that reason, and starts nothing while it does; so all
that is in flight is bounded by its limit and what the fast lane can hand over within a timeout.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Lane:
    """Starts what waits, in order, at most `limit` at a time."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.busy = 0
        self._waiting: deque[Callable[[Slot], None]] = deque()
        self._advancing = False

    def enter(self, start: Callable[[Slot], None]) -> None:
        """Call `start` with a slot, now or when there is one; the slot is to be given back."""
        self._waiting.append(start)
        self._advance()

    def leave(self) -> None:
        self.busy -= 1
        self._advance()

    def _advance(self) -> None:
        # What starts may give its slot back at once, a thousand times in a row: no recursion.
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._waiting and self.busy < self.limit:
                self.busy += 1
                self._waiting.popleft()(Slot(self))
        finally:
            self._advancing = False


class Slot:
    """One place in a lane."""

    def __init__(self, lane: Lane) -> None:
        self._lane: Lane | None = lane

    def move(self, lane: Lane) -> None:
        """Go on in another lane, whose limit does not matter for this."""
        if self._lane is not None and self._lane is not lane:
            before, self._lane = self._lane, lane
            lane.busy += 1
            before.leave()

    def give_back(self) -> None:
        """Let the next one start. Giving back twice does nothing."""
        if self._lane is not None:
            before, self._lane = self._lane, None
            before.leave()
