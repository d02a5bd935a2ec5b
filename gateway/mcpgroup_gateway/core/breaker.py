"""The member breaker: takes an endpoint out for calls that it answers pings but fails to serve."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpgroup_gateway.core.policy import BreakerPolicy


class BreakerState(StrEnum):
    """Spelled as in `/status`."""

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


@dataclass(slots=True)
class Breaker:
    """Hears of calls only, so its run of failures survives eviction, restarts and probes.

    Calls are named by their `order`, the group's counter at their begin. Open turns into half-open
    by the passing of time; then exactly one call, the trial, decides.
    """

    policy: BreakerPolicy
    consecutive_failures: int = 0
    timeouts_only: bool = True  # every failure of the run was a call past its deadline
    open_until: float | None = None  # None: closed
    trial: int = 0  # order of the call that holds the half-open slot; 0: free
    opened_order: int = 0  # calls up to this one began before it opened
    failure_order: int = 0  # calls up to this one began before the last failure counted
    announced: BreakerState = BreakerState.CLOSED  # what the last event said

    def state(self, now: float) -> BreakerState:
        if self.open_until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.open_until else BreakerState.HALF_OPEN

    def allows(self, now: float) -> bool:
        """Whether a call may be sent now: closed, or half-open with its slot free."""
        return self.open_until is None or (not self.trial and now >= self.open_until)

    def begin(self, order: int, now: float) -> None:
        """A call begins: it becomes the trial when half-open and the slot is free."""
        if self.open_until is not None and not self.trial and now >= self.open_until:
            self.trial = order

    def release(self, order: int) -> None:
        """The call ended and proved nothing: the slot is free again if it was the trial."""
        if self.trial == order:
            self.trial = 0

    def succeeded(self, order: int) -> None:
        """The member sent a message for this call.

        It ends the run. It closes an open breaker only when the call began after the opening: the
        stragglers from before decide nothing.
        """
        if self.open_until is None or order > self.opened_order:
            self.reset()

    def failed(self, order: int, newest: int, now: float, *, timeout: bool) -> None:
        """A call failed; `newest` is the group's counter now.

        Counts unless the call began before the last failure counted (one incident, one failure);
        the trial re-opens it in any case. A failure of another call that began after the opening
        (when breakers are ignored) re-opens it too.
        """
        if self.policy.failure_threshold <= 0:
            return
        is_trial = bool(self.trial) and self.trial == order
        if order <= self.failure_order and not is_trial:
            return
        self.failure_order = newest
        self.timeouts_only = timeout and (self.timeouts_only or not self.consecutive_failures)
        self.consecutive_failures += 1
        if self.open_until is None:
            if self.consecutive_failures >= self.policy.failure_threshold:
                self._open(newest, now)
        elif order > self.opened_order:
            self._open(newest, now)

    def force_half_open(self, now: float) -> None:
        """End the cooldown of an open breaker now, so that the next call is its trial."""
        if self.open_until is not None and now < self.open_until:
            self.open_until = now
            self.trial = 0

    def reset(self) -> None:
        self.consecutive_failures = 0
        self.timeouts_only = True
        self.open_until = None
        self.trial = 0

    def _open(self, newest: int, now: float) -> None:
        self.open_until = now + self.policy.cooldown_seconds
        self.opened_order = newest
        self.trial = 0
