"""To which call a message of a member can belong that names none, on a stream for all calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Call = TypeVar("Call")

#: A member may go on for so long (seconds) with a call that was given up.
AFTERWARDS_SECONDS: Final = 10.0


class CallsInFlight(Generic[Call]):
    """The calls of one session. `clock` gives monotonic seconds.

    `calls` is the set in which the session keeps them; without one `begin` and `end` keep it.
    """

    def __init__(self, clock: Callable[[], float], calls: set[Call] | None = None) -> None:
        self._clock = clock
        self._calls: set[Call] = set() if calls is None else calls
        self._quiet_at = float("-inf")

    def begin(self, call: Call) -> None:
        self._calls.add(call)

    def end(self, call: Call) -> None:
        self._calls.discard(call)

    def give_up(self, call: Call) -> None:
        """End a call that the member has and has not answered."""
        if call in self._calls:
            self._calls.discard(call)
            self._quiet_at = self._clock() + AFTERWARDS_SECONDS

    @property
    def only(self) -> Call | None:
        """The only call in flight; None without one or with several."""
        return next(iter(self._calls)) if len(self._calls) == 1 else None

    @property
    def speaking(self) -> Call | None:
        """The only call that the member can speak of: none that was given up may go on.

        Those who share a session must not read each other's log messages.
        """
        return None if self._clock() < self._quiet_at else self.only
