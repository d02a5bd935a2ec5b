"""The group circuit: how this replica says that its group as a whole is in trouble."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Circuit:
    """Reported state only: it never refuses a call and never vetoes a member.

    A run of hard failures across members opens it, any success ends the run. It has no timer and
    no half-open; when it may close depends on the members, which `Group` knows. `since` is when it
    last opened or closed.
    """

    failure_threshold: int
    since: float
    open: bool = False
    consecutive_failures: int = 0

    def failed(self, now: float) -> bool:
        """Count one hard failure. True when it opened."""
        self.consecutive_failures += 1
        if self.open or self.consecutive_failures < self.failure_threshold:
            return False
        self.open = True
        self.since = now
        return True

    def close(self, now: float) -> bool:
        """End the run and close. True when it was open."""
        self.consecutive_failures = 0
        if not self.open:
            return False
        self.open = False
        self.since = now
        return True
