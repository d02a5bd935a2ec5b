"""Prometheus reads the series of groups; a group that is gone takes its series with it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from mcpgroup_operator.group_metrics import GroupMetrics
from mcpgroup_operator.metrics import Metrics
from mcpgroup_operator.store import Key

A, B = Key("tools", "a"), Key("tools", "b")

Samples = dict[tuple[str, str, str], float]


def samples(text: str) -> Samples:
    """By name, group and condition."""
    return {
        (s.name.removeprefix("x_group_"), s.labels["group"], s.labels.get("condition", "")): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if s.labels.get("group_namespace") == "tools"
    }


def metrics() -> GroupMetrics:
    found = GroupMetrics("x_")
    conditions = {"Ready": "True", "Accepted": "False", "Healthy": "Unknown"}
    found.set(A, desired=2, ready=1, generation=7, conditions=conditions)
    found.set(B, desired=0, ready=0, generation=None, conditions={})
    return found


def test_each_group_has_its_series() -> None:
    assert samples(metrics().exposition()) == {
        ("desired_replicas", "a", ""): 2,
        ("desired_replicas", "b", ""): 0,
        ("ready_replicas", "a", ""): 1,
        ("ready_replicas", "b", ""): 0,
        ("config_generation", "a", ""): 7,
        ("condition", "a", "Ready"): 1,
        ("condition", "a", "Accepted"): 0,
        ("condition", "a", "Healthy"): -1,
    }


def test_the_last_values_count() -> None:
    found = metrics()
    found.set(A, desired=3, ready=3, generation=8, conditions={"Ready": "False"})
    told = samples(found.exposition())
    assert told["desired_replicas", "a", ""] == 3
    assert told["condition", "a", "Ready"] == 0
    assert ("condition", "a", "Accepted") not in told


def test_a_group_that_is_gone_leaves_nothing() -> None:
    found = metrics()
    found.forget(A)
    found.forget(A)
    assert {group for _, group, _ in samples(found.exposition())} == {"b"}


def test_all_series_of_a_name_stand_together() -> None:
    families = [f.name for f in text_string_to_metric_families(metrics().exposition())]
    assert len(families) == len(set(families)) == 4


def test_they_stand_beside_all_others() -> None:
    both = Metrics("1")
    both.groups.set(A, desired=2, ready=1, generation=7, conditions={})
    names = {f.name for f in text_string_to_metric_families(both.exposition().decode())}
    assert {"mcpgroup_operator_build_info", "mcpgroup_operator_group_ready_replicas"} <= names
