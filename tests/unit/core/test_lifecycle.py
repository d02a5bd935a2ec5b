"""Which endpoints a group has, and what becomes of them in a reload."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.core.groups import Scene

from mcpgroup_gateway.core.breaker import BreakerState
from mcpgroup_gateway.core.counts import GroupState
from mcpgroup_gateway.core.endpoint import State
from mcpgroup_gateway.core.events import GroupStateChanged, RotationChanged, StateChanged
from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.core.policy import (
    BreakerPolicy,
    CanaryPolicy,
    EndpointPolicy,
    GroupPolicy,
    HealthPolicy,
)


def states(s: Scene) -> list[tuple[State, State]]:
    return [(event.old, event.new) for event in s.told(StateChanged)]


def test_a_member_is_cold_then_starting_then_ready() -> None:
    s = Scene("a", up=False)
    assert s["a"].state is State.COLD
    s.now += 3
    s.start("a")
    assert states(s) == [(State.COLD, State.STARTING), (State.STARTING, State.READY)]
    assert s["a"].state_since == s.now


def test_a_failed_start_is_followed_by_another_and_remembers_why() -> None:
    s = Scene("a", "b", up=False)
    s.start("a", Failure.COMMAND_NOT_FOUND)
    assert s["a"].state is State.FAILED
    assert s["a"].last_error == "no start"
    assert s.group.next_wait("a") <= 1


def test_an_exit_that_was_reported_is_not_counted_again_as_a_failed_start() -> None:
    s = Scene("a", "b", up=False)
    s.group.start_began("a")
    s.group.exited("a", reason="killed")
    s.group.start_failed("a", Failure.START_FAILED, reason="killed")
    assert s["a"].rotation.consecutive_failures == 1


def test_a_member_stopped_on_purpose_stays_stopped_and_its_lost_calls_prove_nothing() -> None:
    s = Scene("a", "b")
    running = s.group.attempt_started("a", safe=True)
    s.group.stop("a")
    s.group.exited("a", reason="stopped")
    s.group.attempt_failed(running, Failure.EXIT, reason="stopped")
    assert s["a"].state is State.STOPPED
    assert s["a"].rotation.consecutive_failures == 0
    s.group.start_succeeded("a")
    s.group.resume("a")
    assert states(s) == [(State.READY, State.STOPPED), (State.STOPPED, State.COLD)]


def test_a_drained_member_takes_no_calls_until_it_is_resumed() -> None:
    s = Scene("a", "b")
    s.group.drain("a")
    assert not s.group.is_selectable(s["a"], s.now)
    s.group.resume("a")
    assert s["a"].state is State.READY
    assert s.group.next_wait("a") <= 10


def test_a_member_that_dies_while_it_drains_is_stopped() -> None:
    s = Scene("a", "b")
    s.group.drain("a")
    s.group.exited("a", reason="killed")
    assert s["a"].state is State.STOPPED


def test_draining_a_dead_member_stops_it() -> None:
    s = Scene("a", "b")
    s.group.exited("a", reason="killed")
    s.group.drain("a")
    assert s["a"].state is State.STOPPED


def test_a_changed_weight_keeps_all_that_was_learnt() -> None:
    s = Scene("a", "b", policy=GroupPolicy("g", ("a", "b"), breaker=BreakerPolicy(1, 30)))
    s.call("a", Failure.RESET)
    s.evict("a")
    s.events.clear()
    s.group.update("a", EndpointPolicy("a", weight=7, resource_tags=frozenset({"gpu"})))
    a = s["a"]
    assert (a.weight, a.resource_tags) == (7, frozenset({"gpu"}))
    assert not a.rotation.in_rotation
    assert a.breaker.state(s.now) is BreakerState.OPEN
    assert a.selections == 1
    assert s.events == []


def test_a_renamed_member_keeps_its_id_and_attempts_end_on_it() -> None:
    s = Scene("a", "b")
    running = s.group.attempt_started("a", safe=True)
    s.group.reconfigure(GroupPolicy("g", ("y", "x")))
    s.group.update("a", EndpointPolicy("x"))
    s.group.update("b", EndpointPolicy("y"))
    s.group.attempt_answered(running)
    assert [(e.id, e.member) for e in s.group.endpoints.values()] == [("b", "y"), ("a", "x")]
    assert s["a"].in_flight == 0
    assert s.group.new_id("a") == "a~2"
    assert s.group.new_id("x") == "x"


def test_endpoints_stand_in_manifest_order() -> None:
    s = Scene("a", "b", "c")
    s.group.reconfigure(GroupPolicy("g", ("c", "new", "a", "b")))
    s.group.add("new", EndpointPolicy("new"))
    assert list(s.group.endpoints) == ["c", "new", "a", "b"]
    assert [e.position for e in s.group.endpoints.values()] == [0, 1, 2, 3]


def test_an_id_in_use_is_refused() -> None:
    s = Scene("a")
    with pytest.raises(ValueError, match="in use"):
        s.group.add("a", EndpointPolicy("a"))


def test_a_staged_replacement_neither_counts_nor_serves_before_its_promotion() -> None:
    s = Scene("a")
    s.group.add("a~2", EndpointPolicy("a"), staged=True)
    s.evict("a~2")
    assert s.told(RotationChanged) == []
    s.start("a~2")
    assert s.group.counts().total == 1
    assert not s.group.is_selectable(s["a~2"], s.now)
    s.group.promote("a~2")
    s.group.drain("a", leaving=True)
    assert s.group.counts().total == 1
    assert s.group.counts().selectable == 1
    s.group.remove("a")
    assert list(s.group.endpoints) == ["a~2"]
    assert s.group.state is GroupState.HEALTHY


def test_a_member_that_leaves_counts_in_nothing_and_may_be_called_back() -> None:
    s = Scene("a", "b")
    s.group.drain("b", leaving=True)
    for _ in range(20):
        s.call("b", Failure.RESET)
    assert s.group.circuit.consecutive_failures == 0
    assert s.group.counts().total == 1
    s.group.resume("b")
    assert s.group.counts().total == 2
    assert s["b"].ready


def test_attempts_may_outlive_the_endpoint_they_began_on() -> None:
    s = Scene("a", "b")
    one, two = (s.group.attempt_started("b", safe=True) for _ in range(2))
    s.group.remove("b")
    s.events.clear()
    s.group.attempt_failed(one, Failure.RESET, reason="reset")
    s.group.attempt_failed(two, Failure.DEADLINE, reason="slow")
    assert s.events == []
    assert s.group.circuit.consecutive_failures == 0


def test_new_thresholds_apply_to_what_comes_next() -> None:
    s = Scene("a", "b")
    s.evict("a")
    s.group.reconfigure(
        dataclasses.replace(
            s.group.policy,
            health=HealthPolicy(interval_seconds=1, unhealthy_threshold=1),
            min_healthy=2,
        )
    )
    assert not s["a"].rotation.in_rotation
    assert s.group.state is GroupState.PARTIAL
    assert s.group.next_wait("b") <= 1
    s.probe("b", Failure.REFUSED)
    assert not s["b"].rotation.in_rotation


def test_switching_the_breakers_off_closes_them() -> None:
    s = Scene("a", "b", policy=GroupPolicy("g", ("a", "b"), breaker=BreakerPolicy(1, 30)))
    s.call("a", Failure.RESET)
    s.group.reconfigure(dataclasses.replace(s.group.policy, breaker=BreakerPolicy(0)))
    assert s["a"].breaker.state(s.now) is BreakerState.CLOSED


def test_making_a_member_the_canary_takes_it_out_of_the_counts() -> None:
    s = Scene("a", "b")
    s.group.reconfigure(dataclasses.replace(s.group.policy, canary=CanaryPolicy("b", 5)))
    assert s["b"].canary
    assert s.group.counts().total == 1
    s.group.stop("a")
    assert s.group.state is GroupState.INACTIVE
    assert [e.new for e in s.told(GroupStateChanged)] == [GroupState.INACTIVE]
