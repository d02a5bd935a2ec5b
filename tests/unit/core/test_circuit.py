from __future__ import annotations

from tests.unit.core.groups import Scene

from mcpgroup_gateway.core.circuit import Circuit
from mcpgroup_gateway.core.counts import GroupState
from mcpgroup_gateway.core.events import CircuitChanged
from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.core.policy import CanaryPolicy, EndpointPolicy, GroupPolicy


def scene(*members: str, threshold: int = 4, min_healthy: int = 1) -> Scene:
    policy = GroupPolicy("g", members, circuit_failure_threshold=threshold, min_healthy=min_healthy)
    return Scene(*members, policy=policy)


def test_a_run_of_failures_opens_it_once() -> None:
    circuit = Circuit(2, since=0)
    assert [circuit.failed(now) for now in (1, 2, 3)] == [False, True, False]
    assert (circuit.open, circuit.since, circuit.consecutive_failures) == (True, 2, 3)


def test_failures_across_members_by_calls_probes_and_starts_open_it() -> None:
    s = scene("a", "b", threshold=4)
    s.call("a", Failure.RESET)
    s.probe("b", Failure.REFUSED)
    s.group.exited("a", reason="exit status 1")
    assert s.group.available
    s.start("a", Failure.START_FAILED)
    assert s.group.circuit.open
    assert not s.group.available
    assert s.group.state is GroupState.DEGRADED
    assert s.told(CircuitChanged) == [CircuitChanged(open=True, consecutive_failures=4)]


def test_any_success_ends_the_run_also_that_of_an_evicted_member() -> None:
    s = scene("a", "b", threshold=5)
    s.group.reconfigure(GroupPolicy("g", ("a", "b"), circuit_failure_threshold=5))
    s.evict("a")
    s.call("b", Failure.RESET)
    s.call("b", Failure.HTTP_ERROR)
    s.probe("a")
    assert s.group.circuit.consecutive_failures == 0


def test_failed_starts_of_members_that_are_out_open_it_without_any_call() -> None:
    s = scene("a", "b", "c", threshold=10)
    for member in "abc":
        s.group.exited(member, reason="killed")
    starts = 0
    while not s.group.circuit.open:
        starts += 1
        s.now += 1
        s.start("abc"[starts % 3], Failure.START_FAILED)
    assert starts == 7


def test_soft_failures_do_not_count() -> None:
    s = scene("a", "b", threshold=1)
    s.group.attempt_started("a", safe=True)
    for _ in range(5):
        s.probe("a", Failure.PROBE_TIMEOUT)
    assert not s["a"].rotation.in_rotation
    assert not s.group.circuit.open


def test_it_closes_when_enough_are_in_rotation_and_one_of_them_reports_a_success() -> None:
    s = scene("a", "b", "c", threshold=6, min_healthy=2)
    for member in "abc":
        s.evict(member)
    assert s.group.circuit.open
    s.now += 5
    s.probe("a")
    assert s.group.circuit.open
    s.probe("b")
    assert not s.group.circuit.open
    assert s.group.circuit.since == s.now
    assert s.group.state is GroupState.HEALTHY


def test_a_success_of_a_member_out_of_rotation_does_not_close_it() -> None:
    s = scene("a", "b", threshold=3)
    slow = GroupPolicy("g", ("a", "b"), circuit_failure_threshold=3)
    s.group.reconfigure(slow)
    s.evict("a")
    s["a"].rotation.penalty = 2
    s.call("b", Failure.RESET)
    assert s.group.circuit.open
    s.probe("a")
    assert s.group.circuit.open
    s.call("b")
    assert not s.group.circuit.open


def test_a_completed_start_closes_it() -> None:
    s = scene("a", threshold=1)
    s.group.exited("a", reason="killed")
    assert s.group.circuit.open
    s.start("a")
    assert not s.group.circuit.open


def test_a_success_of_the_canary_ends_a_run_but_closes_nothing() -> None:
    policy = GroupPolicy(
        "g", ("a", "new"), circuit_failure_threshold=1, canary=CanaryPolicy("new", 10)
    )
    s = Scene("a", "new", policy=policy)
    s.call("a", Failure.RESET)
    s.call("new")
    assert s.group.circuit.consecutive_failures == 0
    assert s.group.circuit.open


def test_staged_replacements_neither_open_nor_close_it() -> None:
    s = scene("a", threshold=2)
    s.group.add("a~2", EndpointPolicy("a"), staged=True)
    for _ in range(5):
        s.start("a~2", Failure.START_FAILED)
    assert not s.group.circuit.open
    s.call("a", Failure.RESET)
    s.call("a", Failure.RESET)
    s.start("a~2")
    assert s.group.circuit.open


def test_rebalance_closes_it() -> None:
    s = scene("a", threshold=1)
    s.call("a", Failure.RESET)
    s.group.rebalance()
    assert not s.group.circuit.open
    assert s.group.circuit.consecutive_failures == 0
