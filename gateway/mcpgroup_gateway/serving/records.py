"""What a replica writes down about its calls and members: metrics, events, request log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpgroup_gateway.core.events import (
    BreakerChanged,
    CircuitChanged,
    RotationChanged,
    StateChanged,
)
from mcpgroup_gateway.wire.refusals import Denied, NoMember, Overloaded

if TYPE_CHECKING:
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.core.events import Event
    from mcpgroup_gateway.core.retries import Move
    from mcpgroup_gateway.core.selection import Selection
    from mcpgroup_gateway.serving.calls import ServedCall
    from mcpgroup_gateway.telemetry.eventlog import EventLog
    from mcpgroup_gateway.telemetry.metrics import Metrics
    from mcpgroup_gateway.telemetry.requestlog import RequestLog
    from mcpgroup_gateway.wire.refusals import GatewayError


class Records:
    """One place that counts, so that each thing is counted once."""

    def __init__(self, metrics: Metrics, events: EventLog, requests: RequestLog | None) -> None:
        self.metrics = metrics
        self.events = events
        self.requests = requests

    # -- calls ---------------------------------------------------------------------------

    def request_finished(
        self,
        call: ServedCall,
        *,
        outcome: str,
        seconds: float,
        overhead: float,
        attempts: int,
        member: str | None,
        error: str | None,
    ) -> None:
        metrics, target = self.metrics, call.target
        metrics.request_finished(call.method, outcome, seconds)
        metrics.overhead(overhead)
        if target is not None and target.tool is not None:
            metrics.tool_call_finished(target.tool, outcome)
        if self.requests is not None:
            caller = call.caller
            self.requests.record(
                method=call.method,
                outcome=outcome,
                seconds=seconds,
                name=target.facts.name if target is not None else "",
                attempts=attempts,
                member=member,
                tenant=caller.tenant,
                session_id=caller.session.id if caller.session is not None else None,
                error=error,
                arguments=target.arguments if target is not None else None,
            )

    def answered_here(self, method: str, outcome: str, seconds: float) -> None:
        """A request that no member was asked for: lists, pings, refusals."""
        self.metrics.request_finished(method, outcome, seconds)
        if self.requests is not None:
            self.requests.record(method=method, outcome=outcome, seconds=seconds)

    def selected(self, call: ServedCall, selection: Selection, attempt: int) -> None:
        self.metrics.selected(selection.endpoint.member, selection.reason)
        if self.events.wants_routing and call.target is not None:
            self.events.routing(
                tool=call.target.facts.name or call.method,
                member=selection.endpoint.member,
                candidates=selection.candidates,
                score=selection.score,
                attempt=attempt,
            )

    def refused(self, error: GatewayError) -> None:
        """A request ended with an error of our own; counted when nothing may have run."""
        if error.reason == "draining":
            self.metrics.refused("draining")
        elif isinstance(error, Denied):
            self.metrics.refused("poison" if error.reason == "suspectedPoison" else "denied")
        elif isinstance(error, Overloaded):
            self.metrics.refused("overloaded")
        elif isinstance(error, NoMember):
            self.metrics.refused("no_member")

    def failover(self, call: ServedCall, endpoint: Endpoint, move: Move, left: int) -> None:
        self.metrics.failover(move.reason)
        name = call.target.facts.name if call.target is not None else ""
        self.events.failover(
            tool=name or call.method,
            member=endpoint.member,
            error=move.error.reason,
            candidates=left,
        )

    def retries_exhausted(self) -> None:
        self.metrics.retries_exhausted()

    def attempt_finished(self, endpoint: Endpoint, outcome: str, seconds: float) -> None:
        self.metrics.attempt_finished(endpoint.member, outcome, seconds)

    # -- members -------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        metrics, events = self.metrics, self.events
        if isinstance(event, RotationChanged):
            if event.to == "out" and event.evidence is not None:
                metrics.evicted(event.member, event.evidence.value)
            elif event.to == "in":
                metrics.rejoined(event.member)
            events.rotation(
                member=event.member,
                endpoint=event.endpoint,
                to=event.to,
                reason=event.reason,
                evidence=event.evidence.value if event.evidence is not None else "",
            )
        elif isinstance(event, BreakerChanged):
            events.circuit(
                member=event.member,
                endpoint=event.endpoint,
                old=event.old.value,
                new=event.new.value,
                consecutive_failures=event.consecutive_failures,
            )
        elif isinstance(event, CircuitChanged):
            to = "open" if event.open else "closed"
            metrics.circuit_changed(to)
            events.circuit(
                old="closed" if event.open else "open",
                new=to,
                consecutive_failures=event.consecutive_failures,
            )
        elif isinstance(event, StateChanged):
            events.recovery(
                member=event.member,
                endpoint=event.endpoint,
                old=event.old.value,
                new=event.new.value,
                reason=event.reason,
            )
