"""A group with a clock that a test moves, and a record of what it told its listener."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

from mcpgroup_gateway.core.group import Group
from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.core.policy import EndpointPolicy, GroupPolicy

if TYPE_CHECKING:
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.core.events import Event

E = TypeVar("E")


class Scene:
    """A group of the given members, all Ready, as a supervisor would have left them."""

    def __init__(
        self,
        *members: str,
        policy: GroupPolicy | None = None,
        seed: int = 0,
        source: str = "stdio",
        up: bool = True,
    ) -> None:
        self.now = 1000.0
        self.events: list[Event] = []
        self.group = Group(
            policy or GroupPolicy(name="g", members=members),
            clock=lambda: self.now,
            random=random.Random(seed),  # noqa: S311
            listener=self.events.append,
        )
        for member in members:
            self.group.add(member, EndpointPolicy(member, source=source))
            if up:
                self.start(member)
        self.events.clear()

    def __getitem__(self, endpoint_id: str) -> Endpoint:
        return self.group.endpoints[endpoint_id]

    def told(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def start(self, endpoint_id: str, failure: Failure | None = None) -> None:
        self.group.start_began(endpoint_id)
        if failure is None:
            self.group.start_succeeded(endpoint_id)
        else:
            self.group.start_failed(endpoint_id, failure, reason="no start")

    def call(self, endpoint_id: str, failure: Failure | None = None) -> None:
        attempt = self.group.attempt_started(endpoint_id, safe=True)
        if failure is None:
            self.group.attempt_answered(attempt)
        else:
            self.group.attempt_failed(attempt, failure, reason="no answer")

    def probe(self, endpoint_id: str, failure: Failure | None = None) -> None:
        probe = self.group.probe_started(endpoint_id)
        if failure is None:
            self.group.probe_passed(probe)
        else:
            self.group.probe_failed(probe, failure, reason="no pong")

    def evict(self, endpoint_id: str) -> None:
        for _ in range(self.group.policy.health.unhealthy_threshold):
            self.probe(endpoint_id, Failure.REFUSED)
