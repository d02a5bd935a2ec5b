from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.core.breaker import Breaker, BreakerState
from mcpgroup_gateway.core.policy import BreakerPolicy

POLICY = BreakerPolicy(failure_threshold=3, cooldown_seconds=30)


def tripped(*, now: float = 0, timeout: bool = False) -> Breaker:
    """Open since `now`; the newest call has the order 3."""
    breaker = Breaker(POLICY)
    for order in (1, 2, 3):
        breaker.failed(order, order, now, timeout=timeout)
    return breaker


def test_failures_in_a_row_open_it_for_the_cooldown_then_it_is_half_open() -> None:
    breaker = tripped(now=100)
    assert breaker.state(129.9) is BreakerState.OPEN
    assert not breaker.allows(129.9)
    assert breaker.state(130) is BreakerState.HALF_OPEN
    assert breaker.allows(130)


def test_half_open_takes_exactly_one_call() -> None:
    breaker = tripped()
    breaker.begin(4, 30)
    assert not breaker.allows(30)
    breaker.begin(5, 30)
    assert breaker.trial == 4


def test_the_trial_closes_it_by_any_message() -> None:
    breaker = tripped()
    breaker.begin(4, 30)
    breaker.succeeded(4)
    assert breaker.state(30) is BreakerState.CLOSED
    assert breaker.consecutive_failures == 0


def test_the_failed_trial_opens_it_for_another_cooldown() -> None:
    breaker = tripped()
    breaker.begin(4, 30)
    breaker.failed(4, 9, 35, timeout=False)
    assert breaker.state(64.9) is BreakerState.OPEN
    assert breaker.allows(65)


def test_the_failed_trial_counts_though_a_probe_was_counted_after_its_begin() -> None:
    breaker = tripped()
    breaker.begin(4, 30)
    breaker.failure_order = 10
    breaker.failed(4, 10, 31, timeout=True)
    assert breaker.state(31) is BreakerState.OPEN


def test_a_trial_that_proved_nothing_gives_its_slot_back() -> None:
    breaker = tripped()
    breaker.begin(4, 30)
    breaker.release(5)
    assert not breaker.allows(31)
    breaker.release(4)
    assert breaker.allows(31)


def test_calls_from_before_the_opening_neither_close_nor_reopen_it() -> None:
    breaker = tripped(now=0)
    breaker.succeeded(2)
    assert breaker.state(1) is BreakerState.OPEN
    breaker.begin(4, 30)
    breaker.succeeded(3)
    breaker.failed(3, 4, 31, timeout=False)
    assert breaker.state(31) is BreakerState.HALF_OPEN
    assert breaker.trial == 4


def test_calls_lost_together_are_one_failure() -> None:
    breaker = Breaker(POLICY)
    for order in range(1, 51):
        breaker.failed(order, 50, 10, timeout=False)
    assert breaker.consecutive_failures == 1


def test_a_threshold_of_zero_never_opens() -> None:
    breaker = Breaker(BreakerPolicy(failure_threshold=0))
    for order in range(1, 100):
        breaker.failed(order, order, order, timeout=False)
    assert breaker.state(200) is BreakerState.CLOSED


def test_it_knows_whether_its_run_is_of_timeouts_only() -> None:
    assert tripped(timeout=True).timeouts_only
    mixed = Breaker(POLICY)
    for order, timeout in ((1, True), (2, False), (3, True)):
        mixed.failed(order, order, 0, timeout=timeout)
    assert not mixed.timeouts_only
    mixed.begin(4, 30)
    mixed.succeeded(4)
    mixed.failed(5, 5, 31, timeout=True)
    assert mixed.timeouts_only


def test_the_cooldown_can_be_ended_early() -> None:
    breaker = tripped(now=0)
    breaker.force_half_open(5)
    assert breaker.state(5) is BreakerState.HALF_OPEN
    breaker.begin(4, 5)
    breaker.force_half_open(6)
    assert breaker.trial == 4


@given(
    st.integers(1, 6), st.lists(st.sampled_from(["ok", "failed", "released", "wait"]), max_size=150)
)
def test_it_opens_after_enough_failures_in_a_row_and_never_on_successes(
    threshold: int, steps: list[str]
) -> None:
    breaker = Breaker(BreakerPolicy(failure_threshold=threshold, cooldown_seconds=30))
    now, run = 0.0, 0
    for order, step in enumerate(steps, start=1):
        now += 31 if step == "wait" else 1
        if step == "wait" or not breaker.allows(now):
            continue
        was_open = breaker.open_until is not None
        breaker.begin(order, now)
        if step == "ok":
            run = 0
            breaker.succeeded(order)
            assert breaker.state(now) is BreakerState.CLOSED
        elif step == "failed":
            run += 1
            breaker.failed(order, order, now, timeout=False)
            opened = breaker.state(now) is BreakerState.OPEN
            assert opened == (was_open or run >= threshold)
        else:
            breaker.release(order)
            assert (breaker.open_until is not None) == was_open
        assert not breaker.trial
