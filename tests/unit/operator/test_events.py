"""Events tell transitions, once each, and no more than a person wants to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.observations import (
    HASH,
    NOW,
    OLD_HASH,
    deployment,
    member,
    missed,
    observed,
    pod,
    status_of,
)

from mcpgroup_operator.conditions import TYPES, Reason, no
from mcpgroup_operator.events import Notice, event, managed_by_other, transitions

if TYPE_CHECKING:
    from mcpgroup_operator.observation import Observed

GROUP = {
    "apiVersion": "mcpgroup.dev/v1alpha1",
    "kind": "McpServerGroup",
    "metadata": {"name": "search", "namespace": "tools", "uid": "u1"},
}
GOOD = observed(pod("search-1"), pod("search-2"))
STARTING = observed(pod("search-1", ready=False), deployment=deployment(1, availableReplicas=0))
OPEN = observed(pod("search-1"), pod("search-2", circuit_open=True, state="Degraded"))
SILENT = observed(pod("search-1"), pod("search-2", poll=missed("search-2")))
OUTDATED = observed(pod("search-1"), pod("search-2", config_hash=OLD_HASH))
REFUSING = observed(pod("search-1"), pod("search-2", config_hash=OLD_HASH, rejected="no members"))
GONE = observed(deployment=deployment(2, availableReplicas=0))
ROLLING = observed(pod("search-1"), pod("search-2"), deployment=deployment(2, updatedReplicas=1))
STUCK = observed(
    pod("search-1"),
    pod("search-2"),
    deployment=deployment(
        2,
        updatedReplicas=1,
        conditions=[{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}],
    ),
)
UNACCEPTED = observed(
    pod("search-1"), pod("search-2"), accepted=no(Reason.INVALID_SPEC, "spec.members: none")
)
SECRETLESS = observed(pod("search-1", missing_secrets=("a/b",)), pod("search-2"))
CONFLICTING = observed(
    pod("search-1", members=(member("a", shadowed=("x",)),)), pod("search-2", members=())
)


def told(before: Observed | None, after: Observed) -> list[tuple[str, str]]:
    """Type and reason of each event."""
    first = status_of(before)["conditions"] if before is not None else []
    return [(n.type, n.reason) for n in transitions(first, status_of(after)["conditions"])]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, STARTING, []),
        (None, GOOD, []),
        (None, SILENT, []),
        (None, UNACCEPTED, [("Warning", "InvalidSpec")]),
        (observed(deployment=None, config_hash=None), STARTING, []),
        (GOOD, GOOD, []),
        (STARTING, GOOD, [("Normal", "ReplicaAvailable"), ("Normal", "Healthy")]),
        (GOOD, OPEN, [("Warning", "CircuitsDiffer"), ("Warning", "Degraded")]),
        (OPEN, GOOD, [("Normal", "ReplicasAgree"), ("Normal", "Healthy")]),
        (GOOD, SILENT, [("Warning", "ReplicaUnreachable")]),
        (
            SILENT,
            GOOD,
            [
                ("Normal", "ConfigApplied"),
                ("Normal", "ReplicasAgree"),
                ("Normal", "MembersConsistent"),
            ],
        ),
        (GOOD, OUTDATED, []),
        (OUTDATED, GOOD, [("Normal", "ConfigApplied")]),
        (GOOD, REFUSING, [("Warning", "ConfigRejected")]),
        (OUTDATED, REFUSING, [("Warning", "ConfigRejected")]),
        (REFUSING, OUTDATED, []),
        (GOOD, GONE, [("Warning", "NoReadyReplicas")]),
        (GOOD, ROLLING, [("Normal", "Deploying")]),
        (ROLLING, GOOD, []),
        (ROLLING, STUCK, [("Warning", "ProgressDeadlineExceeded")]),
        (GOOD, UNACCEPTED, [("Warning", "InvalidSpec")]),
        (UNACCEPTED, SECRETLESS, [("Warning", "SecretNotFound")]),
        (SECRETLESS, GOOD, [("Normal", "Accepted")]),
        (GOOD, CONFLICTING, [("Warning", "RotationsDiffer"), ("Warning", "NameConflict")]),
    ],
)
def test_what_is_told_of_a_change(
    before: Observed | None, after: Observed, expected: list[tuple[str, str]]
) -> None:
    assert told(before, after) == expected


def test_scaling_to_zero_warns_of_nothing() -> None:
    before = status_of(GOOD)["conditions"]
    after = status_of(observed(deployment=deployment(0)), replicas=0)["conditions"]
    assert {notice.type for notice in transitions(before, after)} == {"Normal"}


def test_an_event_says_why() -> None:
    notices = transitions(status_of(GOOD)["conditions"], status_of(REFUSING)["conditions"])
    assert notices == [
        Notice(
            "Warning",
            "ConfigRejected",
            "search-2 refuses it and keeps that of generation 3: no members",
        )
    ]


_CONDITIONS = st.sampled_from(
    [STARTING, GOOD, OPEN, SILENT, OUTDATED, REFUSING, GONE, ROLLING, STUCK, UNACCEPTED, SECRETLESS]
)


@given(_CONDITIONS)
def test_nothing_is_told_while_nothing_changes(what: Observed) -> None:
    assert told(what, what) == []


@given(_CONDITIONS, _CONDITIONS)
def test_no_reason_is_told_twice_at_once(before: Observed, after: Observed) -> None:
    reasons = [reason for _, reason in told(before, after)]
    assert len(reasons) == len(set(reasons)) < len(TYPES)


def test_an_event_belongs_to_its_group() -> None:
    notice = Notice("Warning", "ConfigRejected", "x" * 2000)
    made: dict[str, Any] = event(GROUP, notice, now=NOW, instance="operator-1")
    assert made["metadata"]["namespace"] == made["involvedObject"]["namespace"] == "tools"
    assert made["metadata"]["name"].startswith("search.")
    assert made["involvedObject"] == {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "namespace": "tools",
        "name": "search",
        "uid": "u1",
    }
    assert made["firstTimestamp"] == made["lastTimestamp"] == "2027-01-15T08:00:00Z"
    assert len(made["message"]) <= 1000


def test_the_same_event_has_the_same_name_and_a_later_one_another() -> None:
    def name(now: float, *, once: bool = False) -> str:
        notice = managed_by_other("other.release") if once else Notice("Normal", "Healthy", "")
        made = event(GROUP, notice, now=now, instance="operator-1", once=once)
        return str(made["metadata"]["name"])

    assert name(NOW) == name(NOW)
    assert name(NOW) != name(NOW + 60)
    assert name(NOW, once=True) == name(NOW + 60, once=True)


def test_hashes_of_configurations_are_no_part_of_what_is_told() -> None:
    for before, after in ((GOOD, OUTDATED), (OUTDATED, GOOD), (GOOD, REFUSING)):
        for notice in transitions(status_of(before)["conditions"], status_of(after)["conditions"]):
            assert HASH not in notice.message
