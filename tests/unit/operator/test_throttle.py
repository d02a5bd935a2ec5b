"""Status and Events of a group come at once when they matter, and not too many of them."""

from __future__ import annotations

from typing import Any

from mcpgroup_operator.throttle import EventBudget, StatusThrottle

KEY, OTHER = ("tools", "search"), ("tools", "other")


def status(ready: str | None = "True", **facts: Any) -> dict[str, Any]:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    return {"conditions": conditions, **facts}


def test_the_first_write_need_not_wait_and_the_next_one_must() -> None:
    throttle = StatusThrottle[tuple[str, str]]()
    assert throttle.wait(KEY, status(), status(state="Partial"), 100.0) == 0
    throttle.written(KEY, 100.0)
    assert throttle.wait(KEY, status(), status(state="Partial"), 101.0) == 4
    assert throttle.wait(OTHER, status(), status(state="Partial"), 101.0) == 0
    assert throttle.wait(KEY, status(), status(state="Partial"), 105.0) == 0


def test_a_transition_of_ready_does_not_wait() -> None:
    throttle = StatusThrottle[tuple[str, str]]()
    throttle.written(KEY, 100.0)
    for before, after in ((None, "Unknown"), ("True", "False"), ("False", "Unknown")):
        assert throttle.wait(KEY, status(before), status(after), 100.1) == 0
    assert throttle.wait(KEY, status("False"), status("False"), 100.1) > 4
    assert throttle.wait(KEY, None, status("Unknown"), 100.1) == 0


def test_a_group_that_is_forgotten_starts_anew() -> None:
    throttle = StatusThrottle[tuple[str, str]](interval=2.0)
    throttle.written(KEY, 100.0)
    assert throttle.wait(KEY, status(), status(), 101.0) == 1
    throttle.forget(KEY)
    throttle.forget(KEY)
    assert throttle.wait(KEY, status(), status(), 101.0) == 0


def test_after_a_burst_one_event_may_be_posted_each_five_minutes() -> None:
    budget = EventBudget[tuple[str, str]]()
    assert [budget.take(KEY, 100.0) for _ in range(27)] == [True] * 25 + [False] * 2
    assert budget.take(OTHER, 100.0)
    taken = [budget.take(KEY, 100.0 + second) for second in range(1, 3601)]
    assert sum(taken) == 12
    assert taken.index(True) == 299
    assert sum(budget.take(KEY, 1e6) for _ in range(100)) == 25
    budget.forget(KEY)
    budget.forget(KEY)
    assert budget.take(KEY, 1e6)
