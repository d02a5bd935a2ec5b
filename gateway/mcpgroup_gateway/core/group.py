"""`Group`: the one mutable aggregate of a replica. Every input of a decision passes through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpgroup_gateway.core.attempts import Attempt, Probe
from mcpgroup_gateway.core.breaker import BreakerState
from mcpgroup_gateway.core.counts import Counts, GroupState, breakers_ignored
from mcpgroup_gateway.core.lifecycle import Lifecycle
from mcpgroup_gateway.core.outcomes import Evidence, Failure, evidence_of_call, evidence_of_probe

if TYPE_CHECKING:
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.core.events import Event

__all__ = ["Attempt", "Group", "Probe"]

#: Ends of an attempt that are our doing or the caller's: no error of the member to remember.
_NOT_ITS_ERROR = frozenset({Failure.CANCELLED, Failure.EVICTED, Failure.STALLED})


class Group(Lifecycle):
    """Calls, probes, and what the group looks like. Starts, stops and membership are inherited.

    Synchronous and single-threaded; the clock (monotonic seconds) and the random source are
    injected. Methods that take an id raise KeyError for one that is not there. After any of them
    returns, the listener has heard of every change it made.
    """

    # Calls. Each attempt ends exactly once, by answered, failed or released; later ends do nothing.

    def attempt_started(self, endpoint_id: str, *, safe: bool) -> Attempt:
        """A call is about to be sent; with a half-open breaker it becomes the trial."""
        endpoint = self.endpoints[endpoint_id]
        self._order = order = self._order + 1
        endpoint.in_flight += 1
        endpoint.selections += 1
        endpoint.last_selected = order
        now = self._clock()
        if endpoint.breaker.open_until is not None:
            endpoint.breaker.begin(order, now)
            self._publish_breaker(endpoint, now)
        return Attempt(endpoint, now, order, safe)

    def attempt_heard(self, attempt: Attempt) -> None:
        """The member sent a message for this call (progress): a success for its breaker."""
        breaker = attempt.endpoint.breaker
        if (breaker.consecutive_failures or breaker.open_until is not None) and not attempt.ended:
            breaker.succeeded(attempt.order)
            self._publish_breaker(attempt.endpoint, self._clock())

    def attempt_answered(self, attempt: Attempt) -> None:
        """The member sent the JSON-RPC response, a result or an error: a success for everything."""
        if attempt.ended:
            return
        endpoint = attempt.endpoint
        attempt.ended = True
        endpoint.in_flight -= 1
        now = self._clock()
        endpoint.latencies.add(now, now - attempt.began_at - attempt.waited)
        endpoint.answer_order = self._order
        endpoint.last_success_at = now
        breaker, rotation, circuit = endpoint.breaker, endpoint.rotation, self.circuit
        if (
            rotation.consecutive_failures
            or circuit.consecutive_failures
            or breaker.consecutive_failures
            or circuit.open
            or not rotation.in_rotation
            or breaker.open_until is not None
        ):
            breaker.succeeded(attempt.order)
            events: list[Event] = []
            self._tell_breaker(endpoint, now, events)
            self._success(endpoint, now, "answered a call", events)
            self._settle(events)

    def attempt_failed(
        self,
        attempt: Attempt,
        failure: Failure,
        *,
        reason: str,
        retry_after: float | None = None,
        late: bool = False,
        own_process: bool = False,
    ) -> None:
        """The attempt ended without an answer.

        `own_process`: what was lost served this caller alone (a `PerSession` process). That counts
        for the breaker; for rotation the control session's next probe speaks, and it is due now.

        `retry_after` (seconds) belongs to `BUSY`. `late` says that the deadline behind it fired
        more than 1 s late: we were stalled, and it proves nothing. A call past its deadline counts
        for the breaker only, and only if nothing else was answered since it began; the endpoint's
        next probe is due at once.
        """
        if attempt.ended:
            return
        endpoint, order = attempt.endpoint, attempt.order
        attempt.ended = True
        endpoint.in_flight -= 1
        if failure not in _NOT_ITS_ERROR:
            endpoint.last_error = reason
        now = self._clock()
        events: list[Event] = []
        is_timeout = failure is Failure.DEADLINE
        if failure is Failure.BUSY:
            self._busy(endpoint, now, retry_after)
        if is_timeout:
            counts = not late and endpoint.answer_order < order
            self._hasten(endpoint, now, events)
        else:
            counts = not late and evidence_of_call(failure) is Evidence.HARD
        is_evidence = counts and order > endpoint.evidence_order
        if is_evidence or (counts and endpoint.breaker.trial == order):
            endpoint.breaker.failed(order, self._order, now, timeout=is_timeout)
        else:
            endpoint.breaker.release(order)
        self._tell_breaker(endpoint, now, events)
        if own_process and not is_timeout:
            self._hasten(endpoint, now, events)
        elif (
            is_evidence
            and not is_timeout
            and self._failure(endpoint, Evidence.HARD, now, reason, events)
        ):
            self._hasten(endpoint, now + self._recovery_wait(endpoint, now), events)
        self._settle(events)

    def attempt_released(self, attempt: Attempt) -> None:
        """The attempt ended for a reason of ours or of the caller: nothing is counted."""
        if not attempt.ended:
            attempt.ended = True
            attempt.endpoint.in_flight -= 1
            attempt.endpoint.breaker.release(attempt.order)

    # Probes: one at a time an endpoint.

    def probe_started(self, endpoint_id: str) -> Probe:
        self._order += 1
        return Probe(self.endpoints[endpoint_id], self._clock(), self._order)

    def probe_passed(self, probe: Probe) -> None:
        """Any JSON-RPC answer, errors included, shows that the member is there."""
        endpoint, now = probe.endpoint, self._clock()
        events: list[Event] = []
        endpoint.probe_passed = True
        self._success(endpoint, now, "answered a probe", events)
        self._schedule(endpoint, now, began_at=probe.began_at)
        self._settle(events)

    def probe_failed(
        self,
        probe: Probe,
        failure: Failure,
        *,
        reason: str,
        retry_after: float | None = None,
        late: bool = False,
    ) -> None:
        """Soft evidence when it timed out while calls were in flight at its begin or are now: a
        single-threaded member answers nothing while it works."""
        endpoint, now = probe.endpoint, self._clock()
        calls = max(probe.calls, endpoint.in_flight)
        evidence = Evidence.NONE if late else evidence_of_probe(failure, calls)
        events: list[Event] = []
        if failure is Failure.BUSY:
            self._busy(endpoint, now, retry_after)
        if evidence is not Evidence.NONE:
            endpoint.last_error = reason
            endpoint.probe_passed = False
            if probe.order > endpoint.evidence_order:
                self._failure(endpoint, evidence, now, reason, events)
        self._schedule(endpoint, now, began_at=probe.began_at)
        self._settle(events)

    def next_wait(self, endpoint_id: str) -> float:
        """Seconds until the next probe (when up) or start (when Failed, or evicted while Cold).

        `math.inf` when nothing is due: stopped, draining, being started, or cold. It only counts
        down; what moves it forward is told by `ProbeDue` or a `StateChanged`.
        """
        return max(0.0, self.endpoints[endpoint_id].due_at - self._clock())

    # What the group looks like.

    @property
    def state(self) -> GroupState:
        return self._state

    @property
    def available(self) -> bool:
        """Circuit closed, and at least one member in rotation and not dead."""
        return self._alive > 0 and not self.circuit.open

    def counts(self) -> Counts:
        now = self._clock()
        pool = [endpoint for endpoint in self.endpoints.values() if endpoint.counts]
        in_rotation = [endpoint for endpoint in pool if endpoint.rotation.in_rotation]
        return Counts(
            total=len(pool),
            in_rotation=len(in_rotation),
            healthy=sum(endpoint.ready for endpoint in in_rotation),
            selectable=sum(self.is_selectable(endpoint, now) for endpoint in in_rotation),
        )

    def is_selectable(self, endpoint: Endpoint, now: float) -> bool:
        """In rotation, not Failed, Stopped, Draining or staged, and its breaker not open, unless
        the breakers of its whole pool are ignored."""
        if not endpoint.may_serve:
            return False
        if endpoint.breaker.state(now) is not BreakerState.OPEN:
            return True
        return breakers_ignored(
            (e for e in self.endpoints.values() if e.may_serve and e.canary is endpoint.canary), now
        )

    def _publish_breaker(self, endpoint: Endpoint, now: float) -> None:
        events: list[Event] = []
        self._tell_breaker(endpoint, now, events)
        for event in events:
            self._listener(event)
