"""Whose an object of a child's name is."""

from __future__ import annotations

from typing import Any

import pytest

from mcpgroup_operator.ownership import (
    Absent,
    Deleting,
    ManagedByOther,
    NotOwned,
    Ours,
    Ownership,
    ownership,
)

MARK = "system.mcpgroup"


def owner(**fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "name": "search",
        "uid": "of-the-group",
        "controller": True,
        **fields,
    }


def child(**metadata: Any) -> dict[str, Any]:
    """A child as the operator makes it, with other metadata where it is given."""
    return {
        "metadata": {
            "name": "search",
            "uid": "of-the-child",
            "labels": {"mcpgroup.dev/group": "search"},
            "annotations": {"mcpgroup.dev/operator": MARK},
            "managedFields": [{"manager": "kubectl-edit"}, {"manager": "mcpgroup-operator"}],
            "ownerReferences": [owner()],
            **metadata,
        }
    }


def whose(live: dict[str, Any] | None) -> Ownership:
    return ownership(live, "search", MARK)


def test_nothing_is_absent() -> None:
    assert whose(None) == Absent()


def test_what_the_operator_made_is_ours_and_known_by_its_uid() -> None:
    assert whose(child()) == Ours("of-the-child")


@pytest.mark.parametrize(
    "references",
    [
        [owner(uid="of-an-earlier-group-of-that-name")],
        [owner(apiVersion="mcpgroup.dev/v1")],
        [],
        None,
        [owner(kind="Application", name="argo", controller=False)],
        [owner(kind="Application", name="argo", controller=None), owner()],
    ],
)
def test_what_no_other_controls_is_taken_back(references: Any) -> None:
    assert whose(child(ownerReferences=references)) == Ours("of-the-child")


@pytest.mark.parametrize(
    "reference",
    [
        owner(name="another"),
        owner(kind="Deployment"),
        owner(apiVersion="example.com/v1alpha1"),
        owner(apiVersion="mcpgroup.dev.example.com/v1"),
    ],
)
def test_what_another_controls_is_not_owned(reference: dict[str, Any]) -> None:
    assert whose(child(ownerReferences=[reference])) == NotOwned()


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": None, "ownerReferences": None},
        {"labels": {}, "ownerReferences": []},
        {"labels": {"mcpgroup.dev/group": "another"}, "ownerReferences": None},
        {"managedFields": None},
        {"managedFields": []},
        {"managedFields": [{"manager": "kubectl"}]},
    ],
)
def test_what_only_looks_like_a_child_is_not_owned(metadata: dict[str, Any]) -> None:
    assert whose(child(**metadata)) == NotOwned()


@pytest.mark.parametrize("labels", [None, {}, {"mcpgroup.dev/group": "another"}])
def test_a_label_that_somebody_changed_is_put_back(labels: dict[str, str] | None) -> None:
    assert whose(child(labels=labels)) == Ours("of-the-child")


def test_what_another_installation_writes_is_left_to_it() -> None:
    marked = child(annotations={"mcpgroup.dev/operator": "other.mcpgroup"})
    assert whose(marked) == ManagedByOther("other.mcpgroup")


def test_a_mark_on_an_object_that_is_no_child_says_nothing() -> None:
    marked = child(
        annotations={"mcpgroup.dev/operator": "other.mcpgroup"}, labels={}, ownerReferences=None
    )
    assert whose(marked) == NotOwned()


def test_a_mark_that_somebody_took_away_is_put_back() -> None:
    assert whose(child(annotations=None)) == Ours("of-the-child")


@pytest.mark.parametrize("metadata", [{}, {"labels": {}}, {"annotations": {}}])
def test_what_is_being_deleted_is_waited_for_whosever_it_is(metadata: dict[str, Any]) -> None:
    live = child(**metadata, deletionTimestamp="2026-11-30T12:00:00Z")
    assert whose(live) == Deleting()
