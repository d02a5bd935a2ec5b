"""The selection together with the group that it chooses from."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.unit.core.endpoints import Clock

from mcpgroup_gateway.core.breaker import BreakerState
from mcpgroup_gateway.core.events import BreakerChanged
from mcpgroup_gateway.core.group import Group
from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.core.policy import BreakerPolicy, EndpointPolicy, GroupPolicy, HealthPolicy
from mcpgroup_gateway.core.selection import CallFacts, Refusal, Selection, Selector

if TYPE_CHECKING:
    from mcpgroup_gateway.core.events import Event

POLICY = GroupPolicy(
    "g",
    members=("a", "b"),
    breaker=BreakerPolicy(failure_threshold=3, cooldown_seconds=30),
    health=HealthPolicy(unhealthy_threshold=100),
)


class Served:
    def __init__(self) -> None:
        self.clock = Clock()
        self.events: list[Event] = []
        chance = random.Random(1)  # noqa: S311 - chance, not a secret
        self.group = Group(POLICY, clock=self.clock, random=chance, listener=self.events.append)
        for name in POLICY.members:
            self.group.add(name, EndpointPolicy(name))
            self.group.start_began(name)
            self.group.start_succeeded(name)
        self.selector = Selector(self.group, POLICY, clock=self.clock, random=chance)

    def call(self, failure: Failure | None = None) -> str:
        outcome = self.selector.select(CallFacts())
        if isinstance(outcome, Refusal):
            return f"!{outcome.reason}"
        attempt = self.group.attempt_started(outcome.endpoint.id, safe=False)
        self.clock.now += 0.1
        if failure is None:
            self.group.attempt_answered(attempt)
        else:
            self.group.attempt_failed(attempt, failure, reason="it broke")
        return outcome.endpoint.id


def test_a_group_whose_breakers_are_all_open_tries_one_call_and_heals_by_it() -> None:
    served = Served()
    for _ in range(6):
        served.call(Failure.HTTP_ERROR)
    opened = [
        endpoint.breaker.state(served.clock.now) for endpoint in served.group.endpoints.values()
    ]
    assert opened == [BreakerState.OPEN, BreakerState.OPEN]
    first = served.selector.select(CallFacts())
    assert isinstance(first, Selection)
    trial = served.group.attempt_started(first.endpoint.id, safe=False)
    assert [served.call() for _ in range(5)] == ["!breaker"] * 5
    served.group.attempt_answered(trial)
    assert [served.call() for _ in range(3)] == [first.endpoint.id] * 3
    states = [event.new for event in served.events if isinstance(event, BreakerChanged)]
    assert states[-2:] == [BreakerState.HALF_OPEN, BreakerState.CLOSED]


def test_a_failed_trial_lets_the_next_member_try() -> None:
    served = Served()
    for _ in range(6):
        served.call(Failure.HTTP_ERROR)
    first = served.call(Failure.HTTP_ERROR)
    second = served.call(Failure.HTTP_ERROR)
    assert {first, second} == {"a", "b"}


def test_calls_past_their_deadline_on_members_that_answer_probes_keep_being_served() -> None:
    served = Served()
    for _ in range(6):
        served.call(Failure.DEADLINE)
    assert served.group.counts().selectable == 2
    chosen = [served.selector.select(CallFacts()) for _ in range(4)]
    assert [c.endpoint.id for c in chosen if isinstance(c, Selection)] in (
        ["a", "b", "a", "b"],
        ["b", "a", "b", "a"],
    )
