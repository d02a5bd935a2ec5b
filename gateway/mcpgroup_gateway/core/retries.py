"""What follows a failed attempt: a move to another member, or the error for the caller.

| what failed | what follows |
|---|---|
| nothing was sent, or it is proven that it did not run | moves to every remaining candidate, free |
| the member's deadline passed | the end (-31002) |
| sent, and not safe to run twice | the end (-31003, or -31007 for a bare HTTP answer) |
| sent and safe, its member was evicted | moves at once; counts as an attempt |
| sent and safe, exit or reset | as below, but only once a call |
| sent and safe, an answer over the size limit | the end: another member would say the same |
| sent and safe, anything else | moves after a backoff while attempts and budget last |

Sources: DESIGN section 5 (Failover), DESIGN-MCP sections 5 and 7.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.outcomes import LOSSES, PROVEN_NOT_RUN, Failure
from mcpgroup_gateway.wire.refusals import (
    DeadlinePassed,
    GatewayError,
    MemberHttpError,
    MemberLost,
    NoMember,
    Overloaded,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from mcpgroup_gateway.core.policy import RetryPolicy, RoutePolicy

WINDOW_SECONDS = 10
#: Retries that are always allowed in a window, so that small groups can retry at all.
FREE_RETRIES = 10
_SLOTS_A_SECOND = 10
#: A backoff grows to this many times the configured one, at most.
_MAX_GROWTH = 8

_PASSED = frozenset({Failure.DEADLINE, Failure.STALLED})
_FREE_MOVES = {Failure.BUSY: "busy", Failure.EVICTED: "evicted"}
_BAD_ANSWERS = frozenset({Failure.HTTP_ERROR, Failure.MALFORMED, Failure.TOO_LARGE})


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """`safe` says that the call may run twice on this member; `reason` is a sentence for people.

    `status` is a member's HTTP status, `retry_after` the wait in seconds that it asked for.
    """

    member: str
    failure: Failure
    reason: str
    sent: bool
    safe: bool
    status: int | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class CallHistory:
    """What a call has cost so far. Free moves do not count as `retries`."""

    retries: int = 0
    losses: int = 0
    may_have_run: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """Try another member after `delay` seconds; give `error` when none is left.

    `needs_safe`: a member may have run the call, so only members on which it is safe remain.
    `reason` is that of `failovers_total`: connect, lost, busy, evicted.
    """

    history: CallHistory
    needs_safe: bool
    delay: float
    reason: str
    error: GatewayError


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The call ends with `error`. `exhausted`: it would have moved, had attempts or budget been
    left."""

    error: GatewayError
    exhausted: bool = False


def decide(
    failed: FailedAttempt,
    history: CallHistory,
    *,
    retries: int,
    backoff_seconds: float,
    jitter: float,
    spend: Callable[[], bool],
) -> Move | GiveUp:
    """The table above. `retries` is how many attempts after the first a sent call may have.

    `jitter` is uniform in [0, 1); `spend` takes one retry out of the budget, or returns False.
    Cancelled calls are not asked about: they end without an answer.
    """
    ran = failed.sent and failed.failure not in PROVEN_NOT_RUN
    history = replace(
        history,
        losses=history.losses + (ran and failed.failure in LOSSES),
        may_have_run=history.may_have_run or ran,
    )
    error = _error_of(failed, history)
    if failed.failure in _PASSED:
        return GiveUp(error)
    if not ran:
        reason = _FREE_MOVES.get(failed.failure, "connect")
        return Move(history, history.may_have_run, 0.0, reason, error)
    if not failed.safe or failed.failure is Failure.TOO_LARGE:
        return GiveUp(error)
    if failed.failure in LOSSES and history.losses > 1:
        # It may be the call that kills them; see `quarantine`.
        return GiveUp(error)
    if history.retries >= retries:
        return GiveUp(error, exhausted=True)
    if failed.failure is Failure.EVICTED:
        delay = 0.0
    elif spend():
        growth = min(2**history.retries, _MAX_GROWTH)
        delay = backoff_seconds * growth * (0.5 + jitter / 2)
    else:
        return GiveUp(error, exhausted=True)
    reason = "evicted" if failed.failure is Failure.EVICTED else "lost"
    history = replace(history, retries=history.retries + 1)
    return Move(history, True, delay, reason, error)


def _error_of(failed: FailedAttempt, history: CallHistory) -> GatewayError:
    """The error of our own that tells the caller about this attempt (DESIGN-MCP section 7)."""
    member = failed.member
    may_have_run = history.may_have_run
    retryable = failed.safe or not may_have_run
    failure = failed.failure
    kind: type[GatewayError]
    if failure in _PASSED:
        kind, text = DeadlinePassed, f"member {member} did not answer in time: {failed.reason}"
    elif failure is Failure.BUSY:
        kind, text = Overloaded, f"member {member} is busy: {failed.reason}"
    elif failed.status is not None or (failed.sent and failure in _BAD_ANSWERS):
        kind, text = MemberHttpError, f"member {member} gave no valid answer: {failed.reason}"
    elif not failed.sent or failure in PROVEN_NOT_RUN:
        kind, text = NoMember, f"no member took the call, the last was {member}: {failed.reason}"
    else:
        kind, text = MemberLost, f"member {member} was lost during the call: {failed.reason}"
    return kind(
        {MemberLost: "lost", DeadlinePassed: "deadline"}.get(kind, failure.value),
        text,
        member=member,
        retryable=retryable,
        may_have_run=may_have_run,
        retry_after=failed.retry_after,
        status=failed.status,
    )


class RetryBudget:
    """Bounds what retries may add to the load of a group that already fails.

    Over any 10 s at most `percent` of the first attempts + 10. Time is counted in tenths of a
    second, always to the disadvantage of a retry: the limit holds exactly.
    """

    def __init__(self, percent: float) -> None:
        self.percent = percent
        # A retry counts for one slot longer than a first attempt, because both windows begin
        # somewhere within a slot.
        self._firsts = _SlidingCount(WINDOW_SECONDS * _SLOTS_A_SECOND)
        self._retries = _SlidingCount(WINDOW_SECONDS * _SLOTS_A_SECOND + 1)

    def first_attempt(self, now: float) -> None:
        self._firsts.add(now)

    def spend(self, now: float) -> bool:
        """Take one retry; False when the budget has none."""
        allowed = FREE_RETRIES + self._firsts.total(now) * self.percent / 100
        if self._retries.total(now) + 1 > allowed:
            return False
        self._retries.add(now)
        return True


class _SlidingCount:
    """How many events fell into the last `slots` tenths of a second, the running one included."""

    __slots__ = ("_counts", "_slots", "_total")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._counts: deque[list[int]] = deque()  # [slot, events], oldest first
        self._total = 0

    def add(self, now: float) -> None:
        slot = int(now * _SLOTS_A_SECOND)
        self._total += 1
        if self._counts and self._counts[-1][0] >= slot:
            self._counts[-1][1] += 1
            return
        self._counts.append([slot, 1])
        self._forget(slot)

    def total(self, now: float) -> int:
        self._forget(int(now * _SLOTS_A_SECOND))
        return self._total

    def _forget(self, slot: int) -> None:
        while self._counts and self._counts[0][0] <= slot - self._slots:
            self._total -= self._counts.popleft()[1]


class Retries:
    """The retry rules of a group with their budget.

    `clock` gives monotonic seconds. The budget survives `reconfigure`.
    """

    def __init__(
        self, policy: RetryPolicy, *, clock: Callable[[], float], random: random.Random
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._random = random
        self._budget = RetryBudget(policy.budget_percent)

    def reconfigure(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._budget.percent = policy.budget_percent

    def first_attempt(self) -> None:
        """Count the first attempt of a call, whatever comes of it."""
        self._budget.first_attempt(self._clock())

    def allowed(self, route: RoutePolicy | None = None) -> int:
        """How many attempts after the first a call may have."""
        if route is not None and route.retries is not None:
            return route.retries
        return self._policy.attempts

    def after(
        self, failed: FailedAttempt, history: CallHistory, route: RoutePolicy | None = None
    ) -> Move | GiveUp:
        """What follows the failed attempt; a route's numbers replace the group's."""
        backoff = self._policy.backoff_milliseconds
        if route is not None and route.backoff_milliseconds is not None:
            backoff = route.backoff_milliseconds
        return decide(
            failed,
            history,
            retries=self.allowed(route),
            backoff_seconds=backoff / 1000,
            jitter=self._random.random(),
            spend=lambda: self._budget.spend(self._clock()),
        )
