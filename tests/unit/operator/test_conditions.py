"""Conditions keep their time while their status stays, and their messages stay short."""

from __future__ import annotations

import pytest

from mcpgroup_operator.conditions import (
    MAX_MESSAGE,
    TYPES,
    Finding,
    bounded,
    listed,
    next_conditions,
    no,
    status_of,
    unknown,
    yes,
)

FIRST, SECOND = "2026-11-30T12:00:00Z", "2026-11-30T12:00:05Z"


def findings(**changed: Finding) -> dict[str, Finding]:
    return {name: yes("Fine") for name in TYPES} | changed


def test_the_time_moves_with_the_status_alone() -> None:
    before = next_conditions([], findings(), generation=1, now=FIRST)
    changed = findings(Ready=no("Bad", "a"), Healthy=yes("StillFine", "another message"))
    after = next_conditions(before, changed, generation=2, now=SECOND)
    moved = {entry["type"]: entry["lastTransitionTime"] for entry in after}
    assert moved == dict.fromkeys(TYPES, FIRST) | {"Ready": SECOND}
    assert {entry["observedGeneration"] for entry in after} == {2}
    assert status_of(after, "Ready") == "False"


def test_a_condition_that_was_not_there_or_had_no_time_begins_now() -> None:
    before = [{"type": "Ready", "status": "True"}, {"type": "Foreign", "status": "True"}]
    after = next_conditions(before, findings(), generation=1, now=SECOND)
    assert [entry["type"] for entry in after] == list(TYPES)
    assert {entry["lastTransitionTime"] for entry in after} == {SECOND}


def test_all_of_them_must_be_told() -> None:
    with pytest.raises(KeyError):
        next_conditions([], {"Ready": unknown("Why")}, generation=1, now=FIRST)


def test_an_absent_condition_has_no_status() -> None:
    assert status_of([], "Ready") is None


def test_texts_are_cut_and_lists_count_what_they_leave_out() -> None:
    assert bounded("x" * 5000) == "x" * (MAX_MESSAGE - 1) + "…"
    assert bounded("short") == "short"
    assert listed(["a", "b"]) == "a, b"
    assert listed([]) == ""
    assert listed(list("abcdefgh"), "; ", most=2) == "a; b and 6 more"
