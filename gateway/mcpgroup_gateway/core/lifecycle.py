"""Which endpoints there are, and what their processes and sessions are doing."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.breaker import Breaker
from mcpgroup_gateway.core.endpoint import Endpoint, State
from mcpgroup_gateway.core.events import CircuitChanged, Event, ProbeDue
from mcpgroup_gateway.core.latency import LatencyWindow
from mcpgroup_gateway.core.ledger import Ledger
from mcpgroup_gateway.core.outcomes import Evidence, Failure, evidence_of_probe
from mcpgroup_gateway.core.rotation import Rotation

if TYPE_CHECKING:
    from mcpgroup_gateway.core.policy import EndpointPolicy, GroupPolicy


class Lifecycle(Ledger):
    """Starts, exits, drains and stops; adding, changing and removing endpoints."""

    # Processes and sessions. The supervisor of an endpoint reports, nothing here acts.

    def start_began(self, endpoint_id: str) -> None:
        """A start, or a new control session with an HTTP member. What was under way before proves
        nothing any more, except calls that wait for a cold member to start."""
        endpoint, now = self.endpoints[endpoint_id], self._clock()
        events: list[Event] = []
        if endpoint.state is not State.COLD:
            endpoint.evidence_order = self._order
        self._order += 1
        endpoint.start_order = self._order
        if endpoint.state is not State.DRAINING:
            self._move(endpoint, State.STARTING, now, "starting", events)
        self._schedule(endpoint, now, began_at=now)
        self._settle(events)

    def start_succeeded(self, endpoint_id: str) -> None:
        """It answered `initialize`: a success for rotation and circuit. Not for its breaker, which
        goes half-open by itself and lets one call decide."""
        endpoint, now = self.endpoints[endpoint_id], self._clock()
        events: list[Event] = []
        if endpoint.state is not State.STOPPED:
            endpoint.is_up = True
            endpoint.probe_passed = True
            if endpoint.state is not State.DRAINING:
                self._move(endpoint, State.READY, now, "started", events)
            self._success(endpoint, now, "started", events)
        self._schedule(endpoint, now, began_at=now)
        self._settle(events)

    def start_failed(self, endpoint_id: str, failure: Failure, *, reason: str) -> None:
        """Also for a process that ended before it was ready: then `exited` is not called."""
        endpoint, now = self.endpoints[endpoint_id], self._clock()
        events: list[Event] = []
        self._down(endpoint, now, reason, events)
        evidence = evidence_of_probe(failure, 0)
        if evidence is not Evidence.NONE and endpoint.start_order > endpoint.evidence_order:
            self._failure(endpoint, evidence, now, reason, events)
        self._schedule(endpoint, now, began_at=now)
        self._settle(events)

    def exited(self, endpoint_id: str, *, reason: str) -> None:
        """Its process or control session ended by itself. Call it once, before its calls fail: it
        is always counted, and they are not counted again. With calls in flight it is a failed call
        for the breaker, too."""
        endpoint, now = self.endpoints[endpoint_id], self._clock()
        if endpoint.state not in (State.STARTING, State.READY, State.DRAINING):
            return
        events: list[Event] = []
        if endpoint.in_flight:
            breaker = endpoint.breaker
            breaker.failed(breaker.trial or self._order, self._order, now, timeout=False)
            self._tell_breaker(endpoint, now, events)
        self._down(endpoint, now, reason, events)
        self._failure(endpoint, Evidence.HARD, now, reason, events)
        self._schedule(endpoint, now, began_at=now)
        self._settle(events)

    def stop(self, endpoint_id: str) -> None:
        """Stopped by a person: it stays so until `start_began` or `resume`."""
        self._put(endpoint_id, State.STOPPED, "stopped", is_up=False)

    def cold(self, endpoint_id: str) -> None:
        """Stopped by us because it was idle; a call may start it."""
        self._put(endpoint_id, State.COLD, "idle", is_up=False)

    def drain(self, endpoint_id: str, *, leaving: bool = False) -> None:
        """No new calls. `leaving`: a reload is about to remove it, it counts in nothing now.
        A dead one has nothing to drain and is Stopped."""
        endpoint = self.endpoints[endpoint_id]
        endpoint.leaving = endpoint.leaving or leaving
        state = State.STOPPED if endpoint.dead else State.DRAINING
        self._put(endpoint_id, state, "draining", is_up=endpoint.is_up)

    def resume(self, endpoint_id: str) -> None:
        """The end of a drain or stop: Ready when its process or session is still there, else Cold.
        Does nothing to a member in another state."""
        endpoint = self.endpoints[endpoint_id]
        endpoint.leaving = False
        if endpoint.state in (State.DRAINING, State.STOPPED):
            state = State.READY if endpoint.is_up else State.COLD
            self._put(endpoint_id, state, "resumed", is_up=endpoint.is_up)

    def rebalance(self) -> None:
        """Every member that is not dead is back in rotation; runs, breakers and circuit are reset.
        Starts nothing."""
        now = self._clock()
        events: list[Event] = []
        for endpoint in self.endpoints.values():
            endpoint.breaker.reset()
            self._tell_breaker(endpoint, now, events)
            if endpoint.dead:
                endpoint.rotation.reset()
                continue
            endpoint.outage_since = None
            if endpoint.rotation.restore():
                self._tell_rotation(endpoint, "rebalance", events)
                self._schedule(endpoint, now, began_at=now)
        if self.circuit.close(now):
            events.append(CircuitChanged(open=False, consecutive_failures=0))
        self._settle(events)

    # Membership. Ids are opaque and last as long as the endpoint; a rename changes `member` only.

    def new_id(self, member: str) -> str:
        """An id for a new endpoint of `member`: its name, or `name~2`, `~3`… when that is taken."""
        endpoint_id, number = member, 1
        while endpoint_id in self.endpoints:
            number += 1
            endpoint_id = f"{member}~{number}"
        return endpoint_id

    def add(self, endpoint_id: str, policy: EndpointPolicy, *, staged: bool = False) -> Endpoint:
        """A new endpoint, Cold and in rotation. `staged`: it is started and probed like others,
        but is neither selected nor counted before `promote`. Raises ValueError for an id in use."""
        if endpoint_id in self.endpoints:
            raise ValueError(f"endpoint id in use: {endpoint_id}")
        endpoint = Endpoint(
            id=endpoint_id,
            position=len(self.endpoints),
            rotation=Rotation(self.policy.health),
            breaker=Breaker(self.policy.breaker),
            latencies=LatencyWindow(),
            state_since=self._clock(),
            staged=staged,
            **{f.name: getattr(policy, f.name) for f in dataclasses.fields(policy)},
        )
        self.endpoints[endpoint_id] = endpoint
        self._arrange()
        self._settle([])
        return endpoint

    def update(self, endpoint_id: str, policy: EndpointPolicy) -> None:
        """Change what is configured, its member's name included; what was learnt stays."""
        endpoint = self.endpoints[endpoint_id]
        for f in dataclasses.fields(policy):
            setattr(endpoint, f.name, getattr(policy, f.name))
        self._arrange()
        self._settle([])

    def promote(self, endpoint_id: str) -> None:
        """A replacement begins to serve and to count."""
        self.endpoints[endpoint_id].staged = False
        self._settle([])

    def remove(self, endpoint_id: str) -> None:
        """Forget it. Attempts that are still under way may end; they change nothing any more."""
        endpoint = self.endpoints.pop(endpoint_id)
        endpoint.leaving = True
        self._arrange()
        self._settle([])

    def reconfigure(self, policy: GroupPolicy) -> None:
        """A new policy for the same endpoints. Runs, rotation, breakers and circuit stay as they
        are; the thresholds apply to what comes next."""
        now = self._clock()
        events: list[Event] = []
        self.policy = policy
        self.circuit.failure_threshold = policy.circuit_failure_threshold
        for endpoint in self.endpoints.values():
            endpoint.rotation.policy = policy.health
            endpoint.breaker.policy = policy.breaker
            if policy.breaker.failure_threshold <= 0:
                endpoint.breaker.reset()
                self._tell_breaker(endpoint, now, events)
            self._hasten(endpoint, now + policy.health.interval_seconds, events)
        self._arrange()
        self._settle(events)

    def _arrange(self) -> None:
        """Manifest order, and who is the canary."""
        canary, names = self.policy.canary, self.policy.members
        places = {name: place for place, name in enumerate(names)}
        ordered = sorted(self.endpoints.values(), key=lambda e: places.get(e.member, len(names)))
        self.endpoints.clear()
        for position, endpoint in enumerate(ordered):
            endpoint.position = position
            endpoint.canary = canary is not None and endpoint.member == canary.member
            self.endpoints[endpoint.id] = endpoint

    def _down(self, endpoint: Endpoint, now: float, reason: str, events: list[Event]) -> None:
        """Its process or session is gone, not on purpose."""
        endpoint.last_error = reason
        endpoint.is_up = endpoint.probe_passed = False
        if endpoint.outage_since is None:
            endpoint.outage_since = now
        if endpoint.state is State.DRAINING:
            self._move(endpoint, State.STOPPED, now, reason, events)
        elif endpoint.state is not State.STOPPED:
            self._move(endpoint, State.FAILED, now, reason, events)

    def _put(self, endpoint_id: str, state: State, reason: str, *, is_up: bool) -> None:
        endpoint, now = self.endpoints[endpoint_id], self._clock()
        events: list[Event] = []
        was_due = endpoint.due_at
        endpoint.is_up = is_up
        if not is_up:  # what we end ourselves proves nothing
            endpoint.evidence_order = self._order
        self._move(endpoint, state, now, reason, events)
        self._schedule(endpoint, now, began_at=now)
        if endpoint.due_at < was_due:
            events.append(ProbeDue(endpoint.id))
        self._settle(events)
