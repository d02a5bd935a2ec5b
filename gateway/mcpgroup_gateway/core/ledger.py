"""How evidence is booked: the part of `Group` that every kind of outcome shares.

A failure is evidence only if what failed began after the endpoint's last counted failure and after
its last restart; successes do not move that mark. Fifty calls lost by one reset are one incident,
for rotation, breaker and circuit. "After" is told by a counter that every attempt, probe and start
advances, not by the clock.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mcpgroup_gateway.core import recovery
from mcpgroup_gateway.core.circuit import Circuit
from mcpgroup_gateway.core.counts import GroupState, alive_in_rotation, group_state
from mcpgroup_gateway.core.endpoint import Endpoint, State
from mcpgroup_gateway.core.events import (
    BreakerChanged,
    CircuitChanged,
    Event,
    EvidenceHardened,
    GroupStateChanged,
    ProbeDue,
    RotationChanged,
    StateChanged,
)
from mcpgroup_gateway.core.outcomes import Evidence

if TYPE_CHECKING:
    import random as random_module
    from collections.abc import Callable

    from mcpgroup_gateway.core.policy import GroupPolicy

DEFAULT_BUSY_SECONDS = 1.0
MAX_BUSY_SECONDS = 60.0


class Ledger:
    """Endpoints, circuit and group state. Changes collect their events in a list, and `_settle`
    tells them to the listener when all is consistent again."""

    def __init__(
        self,
        policy: GroupPolicy,
        *,
        clock: Callable[[], float],
        random: random_module.Random,
        listener: Callable[[Event], None],
    ) -> None:
        self.policy = policy
        self.endpoints: dict[str, Endpoint] = {}
        self.circuit = Circuit(policy.circuit_failure_threshold, since=clock())
        self._clock = clock
        self._random = random
        self._listener = listener
        self._order = 0
        self._alive = 0
        self._state = GroupState.INACTIVE

    def _success(self, endpoint: Endpoint, now: float, reason: str, events: list[Event]) -> None:
        endpoint.last_success_at = now
        if endpoint.leaving or not endpoint.is_up:
            return
        endpoint.outage_since = None
        if endpoint.rotation.succeeded(now, ready=endpoint.ready):
            self._tell_rotation(endpoint, reason, events)
            self._schedule(endpoint, now, began_at=now)
        if endpoint.staged:
            return
        self.circuit.consecutive_failures = 0
        if (
            self.circuit.open
            and endpoint.counts
            and endpoint.rotation.in_rotation
            and not endpoint.dead
            and alive_in_rotation(self.endpoints.values()) >= self.policy.min_healthy
        ):
            self.circuit.close(now)
            events.append(CircuitChanged(open=False, consecutive_failures=0))

    def _failure(
        self, endpoint: Endpoint, evidence: Evidence, now: float, reason: str, events: list[Event]
    ) -> bool:
        """Book one failure that is evidence. True when the endpoint left rotation by it, or when
        soft evidence against it became hard."""
        endpoint.evidence_order = self._order
        if endpoint.outage_since is None:
            endpoint.outage_since = now
        if endpoint.leaving:
            return False
        may_leave = evidence is Evidence.HARD or any(
            other.counts and other.may_serve
            for other in self.endpoints.values()
            if other is not endpoint
        )
        was_in = endpoint.rotation.in_rotation
        left = endpoint.rotation.failed(evidence, now, may_leave=may_leave)
        if left and was_in:
            self._tell_rotation(endpoint, reason, events)
        elif left and not endpoint.staged:
            events.append(EvidenceHardened(endpoint.id, endpoint.member, reason))
        if evidence is Evidence.HARD and not endpoint.staged and self.circuit.failed(now):
            failures = self.circuit.consecutive_failures
            events.append(CircuitChanged(open=True, consecutive_failures=failures))
        return left

    def _tell_rotation(self, endpoint: Endpoint, reason: str, events: list[Event]) -> None:
        if not endpoint.staged:
            rotation = endpoint.rotation
            events.append(
                RotationChanged(
                    endpoint.id,
                    endpoint.member,
                    "in" if rotation.in_rotation else "out",
                    rotation.evicted_on,
                    reason,
                )
            )

    def _tell_breaker(self, endpoint: Endpoint, now: float, events: list[Event]) -> None:
        breaker = endpoint.breaker
        old, new = breaker.announced, breaker.state(now)
        if new is not old and not endpoint.leaving:
            breaker.announced = new
            failures = breaker.consecutive_failures
            events.append(BreakerChanged(endpoint.id, endpoint.member, old, new, failures))

    def _move(
        self, endpoint: Endpoint, state: State, now: float, reason: str, events: list[Event]
    ) -> None:
        old = endpoint.state
        if state is not old:
            endpoint.state = state
            endpoint.state_since = now
            events.append(StateChanged(endpoint.id, endpoint.member, old, state, reason))

    def _busy(self, endpoint: Endpoint, now: float, retry_after: float | None) -> None:
        seconds = DEFAULT_BUSY_SECONDS if retry_after is None else retry_after
        endpoint.busy_until = now + min(max(seconds, 0.0), MAX_BUSY_SECONDS)

    def _schedule(self, endpoint: Endpoint, now: float, *, began_at: float) -> None:
        """When the supervisor acts next. `began_at` is when it acted last: a probe that hangs
        does not push the next one back."""
        health = self.policy.health
        if endpoint.leaving or endpoint.state in (State.STOPPED, State.DRAINING, State.STARTING):
            endpoint.due_at = math.inf
        elif endpoint.state is State.FAILED or not endpoint.rotation.in_rotation:
            endpoint.due_at = now + self._recovery_wait(endpoint, now)
        elif endpoint.state is State.READY:
            gap = recovery.regular(health.interval_seconds, jitter=self._random.random())
            endpoint.due_at = began_at + gap
        else:
            endpoint.due_at = math.inf

    def _recovery_wait(self, endpoint: Endpoint, now: float) -> float:
        since = endpoint.outage_since
        return recovery.wait(
            0.0 if since is None else now - since,
            self.policy.recovery,
            http_probe=endpoint.source != "stdio",
            interval_seconds=self.policy.health.interval_seconds,
            jitter=self._random.random(),
        )

    def _hasten(self, endpoint: Endpoint, at: float, events: list[Event]) -> None:
        """Bring the next probe forward, on a call's evidence; only what is up can be probed."""
        if endpoint.ready and not endpoint.leaving and at < endpoint.due_at:
            endpoint.due_at = at
            events.append(ProbeDue(endpoint.id))

    def _settle(self, events: list[Event]) -> None:
        self._alive = alive_in_rotation(self.endpoints.values())
        new = group_state(
            circuit_open=self.circuit.open, alive=self._alive, min_healthy=self.policy.min_healthy
        )
        if new is not self._state:
            events.append(GroupStateChanged(self._state, new))
            self._state = new
        for event in events:
            self._listener(event)
