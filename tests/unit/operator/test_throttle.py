"""A group's status is written at once when it becomes ready or not, else every five seconds."""

from __future__ import annotations

from typing import Any

from mcpgroup_operator.throttle import StatusThrottle

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
