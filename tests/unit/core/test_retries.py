"""What follows a failed attempt, and how much retrying a group may do."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.endpoints import Clock

from mcpgroup_gateway.core.outcomes import LOSSES, PROVEN_NOT_RUN, Failure
from mcpgroup_gateway.core.policy import RetryPolicy, RoutePolicy
from mcpgroup_gateway.core.retries import (
    CallHistory,
    FailedAttempt,
    GiveUp,
    Move,
    Retries,
    RetryBudget,
    decide,
)
from mcpgroup_gateway.wire.refusals import (
    DeadlinePassed,
    MemberHttpError,
    MemberLost,
    NoMember,
    Overloaded,
)

#: What an attempt can end in once the call was handed over.
AFTER_SENDING = [Failure.EXIT, Failure.RESET, Failure.HTTP_ERROR, Failure.MALFORMED]


def failed(
    failure: Failure,
    *,
    sent: bool = True,
    safe: bool = True,
    status: int | None = None,
    retry_after: float | None = None,
) -> FailedAttempt:
    return FailedAttempt("m", failure, "it broke", sent, safe, status, retry_after)


def after(
    attempt: FailedAttempt,
    history: CallHistory | None = None,
    *,
    retries: int = 1,
    budget: bool = True,
) -> Move | GiveUp:
    return decide(
        attempt,
        history or CallHistory(),
        retries=retries,
        backoff_seconds=0.1,
        jitter=0.5,
        spend=lambda: budget,
    )


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize(
    "failure", [Failure.REFUSED, Failure.CONNECT_TIMEOUT, Failure.TLS, Failure.START_FAILED]
)
def test_a_call_of_which_nothing_was_sent_moves_for_nothing(
    failure: Failure, *, safe: bool
) -> None:
    attempt = failed(failure, sent=False, safe=safe)
    step = after(attempt, retries=0, budget=False)
    assert isinstance(step, Move)
    assert (step.delay, step.needs_safe, step.reason) == (0.0, False, "connect")
    assert step.history == CallHistory()
    assert isinstance(step.error, NoMember)
    assert (step.error.may_have_run, step.error.retryable) == (False, True)


def test_an_unsafe_call_goes_through_every_member_that_refuses_it() -> None:
    history = CallHistory()
    for _ in range(20):
        step = after(failed(Failure.REFUSED, sent=False, safe=False), history)
        assert isinstance(step, Move)
        history = step.history


@pytest.mark.parametrize("failure", sorted(PROVEN_NOT_RUN))
def test_a_call_that_is_proven_not_to_have_run_moves_whatever_it_is(failure: Failure) -> None:
    step = after(failed(failure, safe=False), retries=0, budget=False)
    assert isinstance(step, Move)
    assert not step.needs_safe
    assert not step.error.may_have_run


def test_a_busy_member_is_told_apart_and_its_wait_is_passed_on() -> None:
    step = after(failed(Failure.BUSY, safe=False, status=429, retry_after=7))
    assert isinstance(step, Move)
    assert step.reason == "busy"
    assert isinstance(step.error, Overloaded)
    assert step.error.data("g")["retryAfterMs"] == 7000


def test_a_member_that_refuses_our_credentials_is_named_with_its_status() -> None:
    step = after(failed(Failure.NOT_RUN, safe=False, status=401))
    assert isinstance(step, Move)
    assert isinstance(step.error, MemberHttpError)
    assert step.error.data("g") == {
        "group": "g",
        "reason": "not_run",
        "retryable": True,
        "mayHaveRun": False,
        "member": "m",
        "status": 401,
    }


@pytest.mark.parametrize("failure", [Failure.EXIT, Failure.RESET])
def test_an_unsafe_call_that_was_sent_and_lost_is_not_sent_again(failure: Failure) -> None:
    step = after(failed(failure, safe=False))
    assert isinstance(step, GiveUp)
    assert isinstance(step.error, MemberLost)
    assert step.error.data("g") == {
        "group": "g",
        "reason": "lost",
        "retryable": False,
        "mayHaveRun": True,
        "member": "m",
    }
    assert not step.exhausted


@pytest.mark.parametrize("failure", [Failure.HTTP_ERROR, Failure.MALFORMED, Failure.TOO_LARGE])
def test_a_bad_answer_to_an_unsafe_call_is_the_end(failure: Failure) -> None:
    step = after(failed(failure, safe=False, status=502))
    assert isinstance(step, GiveUp)
    assert isinstance(step.error, MemberHttpError)
    assert (step.error.may_have_run, step.error.retryable) == (True, False)


@pytest.mark.parametrize("failure", AFTER_SENDING)
def test_a_safe_call_that_was_sent_moves_after_a_backoff(failure: Failure) -> None:
    step = after(failed(failure))
    assert isinstance(step, Move)
    assert step.delay == pytest.approx(0.075)
    assert step.needs_safe
    assert step.reason == "lost"
    assert step.history.retries == 1


@pytest.mark.parametrize("failure", AFTER_SENDING)
def test_a_safe_call_gets_no_more_attempts_than_configured(failure: Failure) -> None:
    step = after(failed(failure), CallHistory(retries=1, may_have_run=True))
    assert isinstance(step, GiveUp)
    assert step.exhausted
    assert step.error.retryable


def test_a_safe_call_is_not_repeated_when_the_budget_is_spent() -> None:
    step = after(failed(Failure.HTTP_ERROR), budget=False)
    assert isinstance(step, GiveUp)
    assert step.exhausted


@pytest.mark.parametrize("failure", sorted(LOSSES))
def test_a_call_that_lost_two_members_stays_where_it_is(failure: Failure) -> None:
    first = after(failed(failure), retries=9)
    assert isinstance(first, Move)
    second = after(failed(failure), first.history, retries=9)
    assert isinstance(second, GiveUp)
    assert not second.exhausted


@pytest.mark.parametrize("failure", [Failure.DEADLINE, Failure.STALLED])
@pytest.mark.parametrize("safe", [True, False])
def test_a_passed_deadline_is_never_retried(failure: Failure, *, safe: bool) -> None:
    step = after(failed(failure, safe=safe), retries=9)
    assert isinstance(step, GiveUp)
    assert isinstance(step.error, DeadlinePassed)
    assert step.error.reason == "deadline"
    assert step.error.retryable is safe


def test_an_answer_that_is_too_large_would_be_too_large_elsewhere() -> None:
    assert isinstance(after(failed(Failure.TOO_LARGE), retries=9), GiveUp)


def test_a_call_moved_away_from_an_evicted_member_neither_waits_nor_pays() -> None:
    step = after(failed(Failure.EVICTED), budget=False)
    assert isinstance(step, Move)
    assert (step.delay, step.reason, step.history.retries) == (0.0, "evicted", 1)
    again = after(failed(Failure.EVICTED), step.history, budget=False)
    assert isinstance(again, GiveUp)


def test_once_a_member_may_have_run_it_a_call_needs_safe_members_for_good() -> None:
    moved = after(failed(Failure.EXIT), retries=3)
    assert isinstance(moved, Move)
    refused = after(failed(Failure.REFUSED, sent=False), moved.history, retries=3)
    assert isinstance(refused, Move)
    assert refused.needs_safe
    assert refused.error.may_have_run


def test_the_backoff_grows_to_a_limit() -> None:
    delays = []
    for retries in range(8):
        step = after(failed(Failure.HTTP_ERROR), CallHistory(retries=retries), retries=99)
        assert isinstance(step, Move)
        delays.append(step.delay)
    assert delays == pytest.approx([0.075 * factor for factor in (1, 2, 4, 8, 8, 8, 8, 8)])


@given(
    st.sampled_from(sorted(set(Failure) - {Failure.CANCELLED})),
    st.booleans(),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_what_may_have_run_and_is_not_safe_never_moves(
    failure: Failure, sent: bool, retries: int, losses: int
) -> None:
    step = after(failed(failure, sent=sent, safe=False), CallHistory(0, losses), retries=retries)
    if sent and failure not in PROVEN_NOT_RUN:
        assert isinstance(step, GiveUp)
        assert not step.error.retryable
        assert step.error.may_have_run


# -- the group's rules ----------------------------------------------------------------------


def make_retries(policy: RetryPolicy, clock: Clock | None = None) -> Retries:
    chance = random.Random(1)  # noqa: S311 - chance, not a secret
    return Retries(policy, clock=clock or Clock(), random=chance)


def test_a_route_replaces_the_numbers_of_the_group() -> None:
    retries = make_retries(RetryPolicy(attempts=0))
    route = RoutePolicy(retries=1, backoff_milliseconds=400)
    assert isinstance(retries.after(failed(Failure.RESET), CallHistory()), GiveUp)
    step = retries.after(failed(Failure.RESET), CallHistory(), route)
    assert isinstance(step, Move)
    assert 0.2 <= step.delay <= 0.4


def test_a_route_does_not_make_an_unsafe_call_safe() -> None:
    retries = make_retries(RetryPolicy())
    route = RoutePolicy(retries=10)
    step = retries.after(failed(Failure.RESET, safe=False), CallHistory(), route)
    assert isinstance(step, GiveUp)


def test_a_reload_changes_the_rules_and_keeps_what_was_spent() -> None:
    retries = make_retries(RetryPolicy(attempts=1, budget_percent=0))
    for _ in range(10):
        assert isinstance(retries.after(failed(Failure.RESET), CallHistory()), Move)
    retries.reconfigure(RetryPolicy(attempts=1, budget_percent=50))
    assert isinstance(retries.after(failed(Failure.RESET), CallHistory()), GiveUp)
    for _ in range(2):
        retries.first_attempt()
    assert isinstance(retries.after(failed(Failure.RESET), CallHistory()), Move)
    assert isinstance(retries.after(failed(Failure.RESET), CallHistory()), GiveUp)


# -- the budget -----------------------------------------------------------------------------


def test_ten_retries_are_always_there() -> None:
    budget = RetryBudget(20)
    assert [budget.spend(100.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert not budget.spend(109.9)
    assert budget.spend(110.2)


def test_first_attempts_earn_their_percentage() -> None:
    budget = RetryBudget(20)
    for _ in range(100):
        budget.first_attempt(100.0)
    assert sum(budget.spend(101.0) for _ in range(100)) == 30


@given(
    st.integers(0, 100),
    st.lists(
        st.tuples(st.floats(0, 3), st.integers(0, 30), st.integers(0, 30)),
        min_size=1,
        max_size=60,
    ),
)
def test_the_budget_is_never_exceeded_over_any_ten_seconds(
    percent: int, story: list[tuple[float, int, int]]
) -> None:
    budget = RetryBudget(percent)
    now = 50.0
    firsts: list[float] = []
    retries: list[float] = []
    for pause, first_attempts, wanted in story:
        now += pause
        for _ in range(first_attempts):
            budget.first_attempt(now)
            firsts.append(now)
        for _ in range(wanted):
            if budget.spend(now):
                retries.append(now)
                recent = sum(now - at <= 10 for at in retries)
                earned = sum(now - at <= 10 for at in firsts)
                assert recent <= earned * percent / 100 + 10
