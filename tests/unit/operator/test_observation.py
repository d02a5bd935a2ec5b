"""When a pod counts, when its silence does, and when nothing should be said yet."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operator.observations import NOW, missed, never, observed, pod, report

from mcpgroup_operator import names
from mcpgroup_operator.observation import is_gateway, observe_pod
from mcpgroup_operator.reports import Poll


def manifest(**status: Any) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T07:59:00Z"}
    return {
        "metadata": {"name": "search-1", "uid": "u1"},
        "status": {"podIP": "10.0.0.1", "conditions": [ready], **status},
    }


def test_a_pod_is_read_from_what_the_api_server_shows() -> None:
    poll = Poll(report())
    found = observe_pod(manifest(), poll)
    assert (found.name, found.uid, found.ip) == ("search-1", "u1", "10.0.0.1")
    assert found.ready_since == NOW - 60
    assert found.counted
    assert found.report == report()


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": []},
        {"conditions": None},
        {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "x"}]},
        {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        {"phase": "Failed"},
        {"phase": "Succeeded"},
    ],
)
def test_a_pod_that_is_not_ready_or_has_ended_is_not_counted(status: dict[str, Any]) -> None:
    assert not observe_pod(manifest(**status), None).counted


def test_a_pod_that_terminates_is_not_counted_though_it_is_ready() -> None:
    going = manifest()
    going["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    found = observe_pod(going, None)
    assert found.ready
    assert not found.counted


def test_a_gateway_is_what_the_service_selects() -> None:
    gateway = manifest()
    gateway["metadata"]["labels"] = names.labels("search") | {"pod-template-hash": "7c9f"}
    assert is_gateway(gateway, "search")
    assert not is_gateway(gateway, "other")
    gateway["metadata"]["labels"][names.COMPONENT_LABEL] = "member"
    assert not is_gateway(gateway, "search")
    assert not is_gateway(manifest(), "search")


@pytest.mark.parametrize("time", [None, "yesterday", 7])
def test_a_pod_whose_time_cannot_be_read_was_ready_long_ago(time: object) -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": time}
    assert observe_pod(manifest(conditions=[ready]), never()).is_silent(NOW)


def test_silence_needs_three_misses_and_thirty_seconds() -> None:
    assert not pod(poll=missed(misses=2)).is_silent(NOW)
    assert pod(poll=missed(misses=3)).is_silent(NOW)
    young = pod(since=NOW - 12, poll=never(3))
    assert not young.is_silent(NOW)
    assert not young.is_silent(NOW + 17.9)
    assert young.is_silent(NOW + 18)
    assert not pod(ready=False, poll=never(3)).is_silent(NOW)
    assert not pod(terminating=True, poll=never(3)).is_silent(NOW)


def test_a_group_is_due_when_its_first_pod_becomes_silent() -> None:
    young, younger = pod(since=NOW - 12, poll=never()), pod("search-2", since=NOW, poll=never())
    assert observed(young, younger).due_in(NOW) == 18
    assert observed(young, younger).due_in(NOW + 18) == 12
    assert observed(young, younger).due_in(NOW + 30) is None
    assert observed(pod(), pod(poll=missed(misses=2))).due_in(NOW) is None


@pytest.mark.parametrize(
    ("poll", "settled"),
    [
        (never(0), False),
        (never(1), False),
        (never(2), False),
        (never(3), True),
        (missed(misses=1), True),
        (Poll(report()), True),
    ],
)
def test_a_group_is_settled_when_each_pod_answered_or_was_missed_thrice(
    poll: Poll, settled: bool
) -> None:
    assert observed(pod("search-1"), pod("search-2", poll=poll)).is_settled() is settled


def test_pods_that_do_not_count_are_not_waited_for() -> None:
    assert observed(pod(ready=False, poll=never(0))).is_settled()
    assert observed(pod(terminating=True, poll=never(0))).is_settled()
    assert observed(pod(ip=None, poll=never(0))).is_settled()
    assert observed().is_settled()
