from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.core.outcomes import Evidence
from mcpgroup_gateway.core.policy import HealthPolicy
from mcpgroup_gateway.core.rotation import MAX_PENALTY, Rotation

HARD, SOFT = Evidence.HARD, Evidence.SOFT


def evicted(rotation: Rotation, now: float) -> None:
    while rotation.in_rotation:
        rotation.failed(HARD, now, may_leave=True)


def successes_until_it_is_back(rotation: Rotation, now: float) -> int:
    for count in range(1, 10_000):
        if rotation.succeeded(now, ready=True):
            return count
    raise AssertionError("it never came back")


def test_failures_in_a_row_evict_and_a_success_ends_the_row() -> None:
    rotation = Rotation(HealthPolicy(unhealthy_threshold=2))
    assert not rotation.failed(HARD, 0, may_leave=True)
    rotation.succeeded(1, ready=True)
    assert not rotation.failed(HARD, 2, may_leave=True)
    assert rotation.failed(HARD, 3, may_leave=True)
    assert not rotation.in_rotation
    assert rotation.evicted_on is HARD


def test_successes_in_a_row_bring_a_member_back() -> None:
    rotation = Rotation(HealthPolicy(healthy_threshold=3))
    evicted(rotation, 0)
    rotation.succeeded(1, ready=True)
    rotation.succeeded(2, ready=True)
    rotation.failed(HARD, 3, may_leave=True)
    assert successes_until_it_is_back(rotation, 4) == 3
    assert rotation.evicted_on is None


def test_successes_of_a_member_that_is_not_ready_bring_nobody_back() -> None:
    rotation = Rotation(HealthPolicy())
    evicted(rotation, 0)
    assert not rotation.succeeded(1, ready=False)
    assert not rotation.in_rotation


def test_a_member_evicted_twice_within_ten_intervals_needs_more_successes() -> None:
    rotation = Rotation(HealthPolicy(interval_seconds=10))
    needed = []
    for cycle in range(8):
        evicted(rotation, cycle)
        needed.append(successes_until_it_is_back(rotation, cycle))
    assert needed == [1, 2, 4, 8, 16, 32, 32, 32]


def test_a_member_that_stayed_in_for_longer_than_ten_intervals_starts_anew() -> None:
    rotation = Rotation(HealthPolicy(interval_seconds=10))
    needed = []
    for now in (0, 10, 20):
        evicted(rotation, now)
        needed.append(successes_until_it_is_back(rotation, now))
    assert needed == [1, 2, 4]
    evicted(rotation, 120.5)
    assert successes_until_it_is_back(rotation, 121) == 1


def test_soft_evidence_against_the_last_one_leaves_it_in() -> None:
    rotation = Rotation(HealthPolicy(unhealthy_threshold=2))
    for now in range(5):
        assert not rotation.failed(SOFT, now, may_leave=False)
    assert rotation.in_rotation
    assert rotation.failed(SOFT, 6, may_leave=True)
    assert rotation.evicted_on is SOFT


def test_a_hard_failure_hardens_a_soft_eviction_once() -> None:
    rotation = Rotation(HealthPolicy(unhealthy_threshold=1))
    assert rotation.failed(SOFT, 0, may_leave=True)
    assert not rotation.failed(SOFT, 1, may_leave=True)
    assert rotation.failed(HARD, 2, may_leave=True)
    assert rotation.evicted_on is HARD
    assert not rotation.failed(HARD, 3, may_leave=True)
    assert not rotation.failed(SOFT, 4, may_leave=True)
    assert rotation.evicted_on is HARD


def test_restore_brings_back_and_forgets_the_penalty() -> None:
    rotation = Rotation(HealthPolicy())
    for now in range(4):
        evicted(rotation, now)
        successes_until_it_is_back(rotation, now)
    evicted(rotation, 5)
    assert rotation.restore()
    assert not rotation.restore()
    evicted(rotation, 6)
    assert rotation.required_successes == 1


@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.lists(st.tuples(st.booleans(), st.floats(0, 300)), max_size=200),
)
def test_it_leaves_by_enough_failures_and_returns_by_enough_successes_only(
    unhealthy: int, healthy: int, steps: list[tuple[bool, float]]
) -> None:
    rotation = Rotation(HealthPolicy(unhealthy_threshold=unhealthy, healthy_threshold=healthy))
    now, failures, successes = 0.0, 0, 0
    for ok, seconds in steps:
        now += seconds
        was_in, required = rotation.in_rotation, rotation.required_successes
        if ok:
            failures, successes = 0, successes + 1
            changed = rotation.succeeded(now, ready=True)
            assert changed == (not was_in and rotation.in_rotation)
            assert not changed or successes >= required
        else:
            failures, successes = failures + 1, 0
            changed = rotation.failed(HARD, now, may_leave=True)
            assert changed == (was_in and not rotation.in_rotation)
            assert not was_in or changed == (failures >= unhealthy)
        assert rotation.required_successes <= healthy * MAX_PENALTY
        assert (rotation.evicted_on is None) == rotation.in_rotation
