"""What calls, probes and exits prove, and for what."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.groups import Scene

from mcpgroup_gateway.core.breaker import BreakerState
from mcpgroup_gateway.core.counts import Counts, GroupState
from mcpgroup_gateway.core.endpoint import State
from mcpgroup_gateway.core.events import (
    BreakerChanged,
    EvidenceHardened,
    GroupStateChanged,
    ProbeDue,
    RotationChanged,
)
from mcpgroup_gateway.core.outcomes import Evidence, Failure
from mcpgroup_gateway.core.policy import BreakerPolicy, CanaryPolicy, GroupPolicy, HealthPolicy


def test_fifty_calls_lost_by_one_reset_are_one_failure() -> None:
    s = Scene("a", "b")
    attempts = [s.group.attempt_started("a", safe=True) for _ in range(50)]
    for attempt in attempts:
        s.group.attempt_failed(attempt, Failure.RESET, reason="reset")
    a = s["a"]
    assert a.rotation.consecutive_failures == 1
    assert a.breaker.consecutive_failures == 1
    assert s.group.circuit.consecutive_failures == 1
    assert a.in_flight == 0


def test_successes_do_not_make_old_attempts_evidence_again() -> None:
    s = Scene("a", "b")
    old = s.group.attempt_started("a", safe=True)
    s.call("a", Failure.RESET)
    s.call("a")
    s.group.attempt_failed(old, Failure.RESET, reason="reset")
    assert s["a"].rotation.consecutive_failures == 0


def test_an_exit_counts_once_and_its_calls_do_not_count_again() -> None:
    s = Scene("a", "b")
    attempts = [s.group.attempt_started("a", safe=True) for _ in range(50)]
    s.group.exited("a", reason="killed by signal 9")
    s.group.exited("a", reason="killed by signal 9")
    for attempt in attempts:
        s.group.attempt_failed(attempt, Failure.EXIT, reason="exit")
    a = s["a"]
    assert a.state is State.FAILED
    assert a.rotation.consecutive_failures == 1
    assert a.breaker.consecutive_failures == 1
    assert s.group.circuit.consecutive_failures == 1


def test_an_exit_counts_though_a_failure_of_its_calls_was_counted_before() -> None:
    s = Scene("a", "b")
    s.call("a", Failure.MALFORMED)
    s.group.exited("a", reason="exit status 1")
    assert s["a"].rotation.consecutive_failures == 2


def test_an_exit_without_calls_is_none_of_the_breakers_business() -> None:
    s = Scene("a", "b")
    s.group.exited("a", reason="exit status 1")
    assert s["a"].breaker.consecutive_failures == 0


def test_calls_from_before_a_restart_prove_nothing() -> None:
    s = Scene("a", "b")
    old = s.group.attempt_started("a", safe=True)
    s.start("a")
    s.group.attempt_failed(old, Failure.RESET, reason="reset")
    assert s["a"].rotation.consecutive_failures == 0


def test_a_call_that_waited_for_a_cold_member_is_evidence_of_it() -> None:
    s = Scene("a", "b", up=False)
    waiting = s.group.attempt_started("a", safe=True)
    s.start("a")
    s.group.attempt_failed(waiting, Failure.RESET, reason="reset")
    assert s["a"].rotation.consecutive_failures == 1


def test_a_start_that_fails_under_waiting_calls_counts_once() -> None:
    s = Scene("a", "b", up=False)
    waiting = [s.group.attempt_started("a", safe=True) for _ in range(5)]
    s.start("a", Failure.COMMAND_NOT_FOUND)
    for attempt in waiting:
        s.group.attempt_failed(attempt, Failure.START_FAILED, reason="no start")
    assert s["a"].rotation.consecutive_failures == 1
    assert s["a"].state is State.FAILED


@pytest.mark.parametrize(
    "failure",
    [
        Failure.BUSY,
        Failure.NOT_RUN,
        Failure.SESSION_LOST,
        Failure.EVICTED,
        Failure.CANCELLED,
        Failure.STALLED,
    ],
)
def test_what_is_no_failure_of_a_call_counts_nothing(failure: Failure) -> None:
    s = Scene("a", "b")
    for _ in range(20):
        s.call("a", failure)
    assert s["a"].rotation.in_rotation
    assert s["a"].breaker.consecutive_failures == 0
    assert s.group.circuit.consecutive_failures == 0
    assert s.events == []


def test_not_run_is_a_failure_of_a_probe_and_of_a_start() -> None:
    s = Scene("a", "b")
    s.probe("a", Failure.NOT_RUN)
    assert s["a"].rotation.consecutive_failures == 1
    s.start("b", Failure.NOT_RUN)
    assert s["b"].rotation.consecutive_failures == 1


def test_being_busy_or_stalled_is_no_failure_of_a_probe() -> None:
    s = Scene("a", "b")
    for failure in (Failure.BUSY, Failure.STALLED, Failure.CANCELLED, Failure.SESSION_LOST):
        s.probe("a", failure)
    assert s["a"].rotation.consecutive_failures == 0


def test_late_deadlines_evict_nobody() -> None:
    s = Scene("a", "b")
    for _ in range(10):
        probe = s.group.probe_started("a")
        s.group.probe_failed(probe, Failure.PROBE_TIMEOUT, reason="late", late=True)
        attempt = s.group.attempt_started("a", safe=True)
        s.group.attempt_failed(attempt, Failure.DEADLINE, reason="late", late=True)
    assert s["a"].rotation.consecutive_failures == 0
    assert s["a"].breaker.consecutive_failures == 0


def test_a_busy_member_is_passed_over_for_the_wait_it_named() -> None:
    s = Scene("a", "b")
    for retry_after, seconds in ((None, 1), (7.5, 7.5), (3600, 60), (-1, 0)):
        attempt = s.group.attempt_started("a", safe=True)
        s.group.attempt_failed(attempt, Failure.BUSY, reason="429", retry_after=retry_after)
        assert s["a"].busy_until - s.now == seconds


def test_a_call_past_its_deadline_counts_for_the_breaker_only_and_is_followed_by_a_probe() -> None:
    s = Scene("a", "b")
    s.call("a", Failure.DEADLINE)
    assert s["a"].breaker.consecutive_failures == 1
    assert s["a"].rotation.consecutive_failures == 0
    assert s.group.circuit.consecutive_failures == 0
    assert s.group.next_wait("a") == 0
    assert s.told(ProbeDue) == [ProbeDue("a")]


def test_a_deadline_proves_nothing_when_another_call_was_answered_meanwhile() -> None:
    s = Scene("a", "b")
    slow = s.group.attempt_started("a", safe=True)
    s.call("a")
    s.group.attempt_failed(slow, Failure.DEADLINE, reason="50 s")
    assert s["a"].breaker.consecutive_failures == 0


def test_an_answer_from_before_the_call_does_not_excuse_its_deadline() -> None:
    s = Scene("a", "b")
    s.call("a")
    s.call("a", Failure.DEADLINE)
    assert s["a"].breaker.consecutive_failures == 1


def test_a_probe_that_times_out_while_a_call_runs_takes_a_member_out_softly() -> None:
    s = Scene("a", "b")
    working = s.group.attempt_started("a", safe=True)
    s.probe("a", Failure.PROBE_TIMEOUT)
    s.probe("a", Failure.PROBE_TIMEOUT)
    assert s["a"].rotation.evicted_on is Evidence.SOFT
    assert [e.evidence for e in s.told(RotationChanged)] == [Evidence.SOFT]
    s.group.attempt_answered(working)
    assert s["a"].rotation.in_rotation


def test_a_call_that_ended_during_the_probe_still_makes_it_soft() -> None:
    s = Scene("a", "b")
    working = s.group.attempt_started("a", safe=True)
    probe = s.group.probe_started("a")
    s.group.attempt_released(working)
    s.group.probe_failed(probe, Failure.PROBE_TIMEOUT, reason="no pong")
    assert s.group.circuit.consecutive_failures == 0
    assert s["a"].rotation.consecutive_failures == 1


def test_a_hard_failure_after_a_soft_eviction_is_told_so_that_waiting_calls_move() -> None:
    s = Scene("a", "b")
    s.group.attempt_started("a", safe=True)
    s.probe("a", Failure.PROBE_TIMEOUT)
    s.probe("a", Failure.PROBE_TIMEOUT)
    s.probe("a", Failure.REFUSED)
    s.probe("a", Failure.REFUSED)
    assert s["a"].rotation.evicted_on is Evidence.HARD
    assert len(s.told(EvidenceHardened)) == 1
    assert len(s.told(RotationChanged)) == 1


def test_soft_evidence_never_takes_the_last_one_out() -> None:
    s = Scene("a", "b", "c")
    for member in "abc":
        s.group.attempt_started(member, safe=True)
    for _ in range(3):
        for member in "abc":
            s.probe(member, Failure.PROBE_TIMEOUT)
    assert [s[member].rotation.in_rotation for member in "abc"] == [False, False, True]
    assert s.group.available


def test_dead_draining_staged_and_canary_members_do_not_stand_in_for_the_last_one() -> None:
    names = ("a", "dead", "away", "new")
    policy = GroupPolicy("g", names, canary=CanaryPolicy("new", 10))
    s = Scene(*names, policy=policy)
    s.group.stop("dead")
    s.group.drain("away")
    s["dead"].staged = True
    s.group.attempt_started("a", safe=True)
    for _ in range(5):
        s.probe("a", Failure.PROBE_TIMEOUT)
    assert s["a"].rotation.in_rotation


def test_the_canary_may_leave_on_soft_evidence_while_a_stable_member_is_left() -> None:
    policy = GroupPolicy("g", ("a", "new"), canary=CanaryPolicy("new", 10))
    s = Scene("a", "new", policy=policy)
    s.group.attempt_started("new", safe=True)
    for _ in range(2):
        s.probe("new", Failure.PROBE_TIMEOUT)
    assert not s["new"].rotation.in_rotation


def test_a_member_that_answers_pings_but_fails_every_call_is_evicted_twice_at_most() -> None:
    s = Scene("a", "b", "c")
    for _ in range(300):
        s.now += 0.2
        if s.group.is_selectable(s["a"], s.now):
            s.call("a", Failure.HTTP_ERROR)
        if s.group.next_wait("a") <= 0:
            s.probe("a")
        if s["a"].breaker.state(s.now) is BreakerState.OPEN:
            break
    assert s["a"].breaker.state(s.now) is BreakerState.OPEN
    assert len([e for e in s.told(RotationChanged) if e.to == "out"]) <= 2


def test_half_open_lets_one_call_decide_and_tells_each_change_once() -> None:
    s = Scene("a", "b", policy=GroupPolicy("g", ("a", "b"), breaker=BreakerPolicy(1, 30)))
    s.call("a", Failure.RESET)
    assert not s.group.is_selectable(s["a"], s.now)
    s.now += 30
    trial = s.group.attempt_started("a", safe=True)
    assert not s["a"].breaker.allows(s.now)
    s.group.attempt_released(trial)
    assert s["a"].breaker.allows(s.now)
    trial = s.group.attempt_started("a", safe=True)
    s.group.attempt_heard(trial)
    changes = [(e.old, e.new) for e in s.told(BreakerChanged)]
    assert changes == [
        (BreakerState.CLOSED, BreakerState.OPEN),
        (BreakerState.OPEN, BreakerState.HALF_OPEN),
        (BreakerState.HALF_OPEN, BreakerState.CLOSED),
    ]
    s.group.attempt_failed(trial, Failure.DEADLINE, reason="50 s")
    assert s["a"].breaker.state(s.now) is BreakerState.OPEN


@pytest.mark.parametrize("failure", [Failure.BUSY, Failure.CANCELLED, Failure.NOT_RUN])
def test_a_trial_that_was_not_run_gives_the_slot_back(failure: Failure) -> None:
    s = Scene("a", "b", policy=GroupPolicy("g", ("a", "b"), breaker=BreakerPolicy(1, 30)))
    s.call("a", Failure.RESET)
    s.now += 30
    s.call("a", failure)
    assert s["a"].breaker.allows(s.now)


def test_the_run_of_a_breaker_survives_eviction_and_restart_and_the_member_comes_back() -> None:
    policy = GroupPolicy("g", ("a", "b"), breaker=BreakerPolicy(3, 30))
    s = Scene("a", "b", policy=policy)
    for _ in range(3):
        attempt = s.group.attempt_started("a", safe=True)
        s.group.exited("a", reason="killed")
        s.group.attempt_failed(attempt, Failure.EXIT, reason="killed")
        s.now += 1
        s.start("a")
    assert s["a"].breaker.state(s.now) is BreakerState.OPEN
    assert s["a"].ready
    s.now += 30
    s.call("a")
    assert s.group.is_selectable(s["a"], s.now)
    assert s["a"].breaker.state(s.now) is BreakerState.CLOSED


def test_an_exit_under_the_trial_opens_the_breaker_again() -> None:
    s = Scene("a", "b", policy=GroupPolicy("g", ("a", "b"), breaker=BreakerPolicy(1, 30)))
    s.call("a", Failure.RESET)
    s.now += 30
    trial = s.group.attempt_started("a", safe=True)
    s.group.exited("a", reason="killed")
    s.group.attempt_failed(trial, Failure.EXIT, reason="killed")
    assert s["a"].breaker.state(s.now) is BreakerState.OPEN


def test_breakers_that_all_opened_on_timeouts_are_ignored_while_the_probes_pass() -> None:
    policy = GroupPolicy("g", ("a", "b"), breaker=BreakerPolicy(2, 30))
    s = Scene("a", "b", policy=policy)
    for member in ("a", "a", "b"):
        s.call(member, Failure.DEADLINE)
    assert not s.group.is_selectable(s["a"], s.now)
    s.call("b", Failure.DEADLINE)
    assert s.group.counts().selectable == 2
    s.call("a")
    assert s["a"].breaker.state(s.now) is BreakerState.CLOSED
    s.call("a", Failure.DEADLINE)
    s.call("a", Failure.DEADLINE)
    s.probe("b", Failure.REFUSED)
    assert s.group.counts().selectable == 0


def test_an_attempt_ends_once() -> None:
    s = Scene("a", "b")
    attempt = s.group.attempt_started("a", safe=True)
    s.group.attempt_answered(attempt)
    s.group.attempt_answered(attempt)
    s.group.attempt_released(attempt)
    s.group.attempt_failed(attempt, Failure.RESET, reason="reset")
    assert s["a"].in_flight == 0
    assert s["a"].rotation.consecutive_failures == 0


def test_failed_attempts_do_not_enter_the_latencies() -> None:
    s = Scene("a", "b")
    for failure in (None, Failure.DEADLINE):
        attempt = s.group.attempt_started("a", safe=True)
        s.now += 2 if failure is None else 50
        if failure is None:
            s.group.attempt_answered(attempt)
        else:
            s.group.attempt_failed(attempt, failure, reason="slow")
    assert s["a"].latencies.p95(s.now) == 2


def test_calls_that_change_nothing_tell_nothing() -> None:
    s = Scene("a", "b")
    for _ in range(10):
        s.call("a")
        s.probe("a")
    assert s.events == []
    assert s["a"].selections == 10


def test_an_eviction_by_calls_moves_the_next_probe_forward() -> None:
    s = Scene("a", "b", source="http")
    s.call("a", Failure.RESET)
    s.call("a", Failure.RESET)
    assert 0.8 <= s.group.next_wait("a") <= 1
    assert s.told(ProbeDue) == [ProbeDue("a")]


def test_the_states_of_a_group_in_their_order() -> None:
    policy = GroupPolicy("g", ("a", "b"), min_healthy=2, circuit_failure_threshold=5)
    s = Scene("a", "b", policy=policy)
    seen = [s.group.state]
    s.group.stop("a")
    seen.append(s.group.state)
    s.evict("b")
    seen.append(s.group.state)
    for _ in range(3):
        s.probe("b", Failure.REFUSED)
    seen.append(s.group.state)
    assert seen == [
        GroupState.HEALTHY,
        GroupState.PARTIAL,
        GroupState.INACTIVE,
        GroupState.DEGRADED,
    ]
    changes = [(e.old, e.new) for e in s.told(GroupStateChanged)]
    assert changes == list(pairwise(seen))


def test_cold_members_count_as_in_rotation_and_the_canary_in_nothing() -> None:
    names = ("a", "b", "new")
    policy = GroupPolicy("g", names, canary=CanaryPolicy("new", 10))
    s = Scene(*names, policy=policy, up=False)
    s.start("a")
    s.start("new")
    assert s.group.counts() == Counts(total=2, in_rotation=2, healthy=1, selectable=2)
    s.group.drain("a")
    assert s.group.counts() == Counts(total=2, in_rotation=2, healthy=0, selectable=1)


def test_rebalance_brings_back_all_that_are_not_dead_and_starts_nothing() -> None:
    policy = GroupPolicy("g", ("a", "b", "c"), breaker=BreakerPolicy(1, 30))
    s = Scene("a", "b", "c", policy=policy)
    s.call("a", Failure.RESET)
    s.evict("a")
    s.group.exited("b", reason="killed")
    s.start("b", Failure.START_FAILED)
    due = s.group.next_wait("b")
    s.group.rebalance()
    assert s["a"].rotation.in_rotation
    assert s["a"].breaker.state(s.now) is BreakerState.CLOSED
    assert not s["b"].rotation.in_rotation
    assert s["b"].state is State.FAILED
    assert s.group.next_wait("b") == due
    assert s["b"].rotation.consecutive_failures == 0
    assert s.group.circuit.consecutive_failures == 0


STEPS = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from(["call", "probe", "start", "exit", "stop", "resume", "drain", "cold"]),
    st.sampled_from([None, *Failure]),
    st.floats(0, 40),
)


@given(st.lists(STEPS, max_size=80), st.integers(1, 3), st.booleans())
def test_whatever_happens_the_counts_and_the_state_agree(
    steps: list[tuple[str, str, Failure | None, float]], min_healthy: int, canary: bool
) -> None:
    policy = GroupPolicy(
        "g",
        ("a", "b", "c"),
        min_healthy=min_healthy,
        health=HealthPolicy(unhealthy_threshold=1),
        circuit_failure_threshold=4,
        canary=CanaryPolicy("c", 10) if canary else None,
    )
    s = Scene("a", "b", "c", policy=policy)
    for member, step, failure, seconds in steps:
        s.now += seconds
        if step in ("call", "probe", "start"):
            getattr(s, step)(member, failure)
        elif step == "exit":
            s.group.exited(member, reason="killed")
        else:
            getattr(s.group, step)(member)
        counts = s.group.counts()
        assert counts.healthy <= counts.in_rotation <= counts.total == 3 - canary
        assert counts.selectable <= counts.in_rotation
        pool = [e for e in s.group.endpoints.values() if e.counts]
        alive = sum(e.rotation.in_rotation and not e.dead for e in pool)
        assert s.group.available == (alive > 0 and not s.group.circuit.open)
        assert (s.group.state is GroupState.DEGRADED) == s.group.circuit.open
        if not s.group.circuit.open:
            assert (s.group.state is GroupState.INACTIVE) == (alive == 0)
            assert (s.group.state is GroupState.HEALTHY) == (alive >= max(min_healthy, 1))
        assert all(e.in_flight == 0 for e in s.group.endpoints.values())


def test_a_crash_of_a_callers_own_process_counts_for_the_breaker_and_asks_for_a_probe() -> None:
    s = Scene("a", "b")
    attempt = s.group.attempt_started("a", safe=True)
    s.group.attempt_failed(attempt, Failure.EXIT, reason="exit", own_process=True)
    a = s["a"]
    assert a.breaker.consecutive_failures == 1
    assert a.rotation.consecutive_failures == 0
    assert s.group.circuit.consecutive_failures == 0
    assert s.told(ProbeDue) == [ProbeDue("a")]


def test_an_answer_over_the_size_limit_proves_nothing_against_its_member() -> None:
    s = Scene("a", "b")
    for _ in range(5):
        s.call("a", Failure.TOO_LARGE)
    assert s["a"].rotation.in_rotation
    assert s["a"].breaker.consecutive_failures == 0
