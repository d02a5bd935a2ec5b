"""What is made of a group, in full, beside what was checked in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client
from tests.unit.operator.groups import SETTINGS, SPECS, group_of
from tests.unit.operator.recorded import GOLDEN, children_of, read

from mcpgroup_operator import names
from mcpgroup_operator.children import desired
from mcpgroup_operator.kinds import POD_MONITOR

if TYPE_CHECKING:
    from mcpgroup_operator.children import Desired

BY_NAME = pytest.mark.parametrize("name", SPECS)


def kind_and_name(child: Desired) -> tuple[str, str]:
    return child.kind.name, child.name


@BY_NAME
def test_children_are_what_is_checked_in(name: str) -> None:
    made = [child.manifest for child in children_of(name).desired]
    assert made == read(GOLDEN / f"{name}.yaml"), "python -m tests.unit.operator.recorded"


@BY_NAME
def test_children_are_the_same_each_time(name: str) -> None:
    assert children_of(name) == children_of(name)


@BY_NAME
def test_no_field_of_a_child_is_unknown_to_kubernetes(name: str) -> None:
    for child in children_of(name).desired:
        if child.kind is not POD_MONITOR:
            model = getattr(client, f"V1{child.kind.name}")
            model.model_validate(child.manifest)


@BY_NAME
def test_every_child_can_be_found_and_goes_with_its_group(name: str) -> None:
    for child in children_of(name).desired:
        metadata = child.manifest["metadata"]
        assert metadata["namespace"] == "tools"
        assert metadata["labels"] == names.labels(name)
        assert metadata["annotations"]["mcpgroup.dev/operator"] == "mcpgroup-system.mcpgroup"
        assert metadata["annotations"]["mcpgroup.dev/desired-hash"] == child.hash
        assert re.fullmatch(r"[0-9a-f]{64}", child.hash)
        (owner,) = metadata["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("McpServerGroup", name)
        assert owner["controller"] is owner["blockOwnerDeletion"] is True


def test_what_pods_need_is_applied_before_they_are_made() -> None:
    assert [kind_and_name(child) for child in children_of("smallest").desired] == [
        ("ServiceAccount", "smallest"),
        ("Secret", "smallest-keys"),
        ("ConfigMap", "smallest"),
        ("Service", "smallest"),
        ("Service", "smallest-peers"),
        ("PodDisruptionBudget", "smallest"),
        ("Deployment", "smallest"),
    ]


def test_what_is_no_longer_asked_for_is_unwanted() -> None:
    smallest, everything = children_of("smallest"), children_of("everything")
    assert [(child.kind.name, child.name) for child in smallest.unwanted] == [
        ("NetworkPolicy", "smallest"),
        ("PodMonitor", "smallest"),
    ]
    assert [(child.kind.name, child.name) for child in everything.unwanted] == [
        ("ServiceAccount", "everything")
    ]


@BY_NAME
def test_no_child_is_both_desired_and_unwanted(name: str) -> None:
    children = children_of(name)
    unwanted = {(child.kind.name, child.name) for child in children.unwanted}
    assert not unwanted & {kind_and_name(child) for child in children.desired}


def test_the_hash_of_a_child_changes_with_anything_in_it() -> None:
    def hashes(spec: dict[str, Any]) -> dict[tuple[str, str], str]:
        children = desired(
            group_of(spec), SETTINGS, config_map=None, keys=None, new_token=lambda: "t" * 40
        )
        return {kind_and_name(child): child.hash for child in children.desired}

    two, three = hashes(SPECS["smallest"]), hashes({**SPECS["smallest"], "replicas": 3})
    assert {key for key in two if two[key] != three[key]} == {("Deployment", "search")}


def test_a_group_that_is_from_no_api_server_owns_nothing() -> None:
    group = group_of(SPECS["smallest"])
    local = group.model_copy(update={"metadata": group.metadata.model_copy(update={"uid": None})})
    with pytest.raises(ValueError, match="uid"):
        desired(local, SETTINGS, config_map=None, keys=None, new_token=lambda: "t" * 40)
