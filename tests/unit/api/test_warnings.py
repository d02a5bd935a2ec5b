"""What is allowed and still told."""

from typing import Any

import pytest
from tests.unit.api.cases import BASE, Case

from mcpgroup_api import McpServerGroup, warnings


def told(**spec: Any) -> list[tuple[str, str]]:
    group = McpServerGroup.model_validate(Case("", spec).data())
    return [(".".join(map(str, path)), text) for path, text in warnings(group)]


def member(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"name": name, "stdio": {"command": ["server"]}, **more}


def test_a_plain_group_has_no_warnings() -> None:
    assert told(**BASE) == []


@pytest.mark.parametrize(
    ("strategy", "ignored"),
    [
        ("RoundRobin", {"weight", "priority"}),
        ("WeightedRoundRobin", {"priority"}),
        ("Random", {"priority"}),
        ("Priority", {"weight"}),
        ("LeastConnections", {"weight", "priority"}),
        ("LeastLatency", {"weight", "priority"}),
        ("ConsistentHash", {"weight", "priority"}),
    ],
)
def test_weights_and_priorities_that_the_strategy_ignores_are_told(
    strategy: str, ignored: set[str]
) -> None:
    found = told(strategy=strategy, members=[member(), member("b", weight=2, priority=3)])

    assert {path for path, _ in found} == {f"spec.members.1.{name}" for name in ignored}
    assert all(strategy in text for _, text in found)


def test_a_hash_key_without_the_strategy_is_told() -> None:
    assert [path for path, _ in told(consistentHash={"key": "Session"})] == ["spec.consistentHash"]
    assert told(consistentHash={"key": "Session"}, strategy="ConsistentHash") == []


def test_a_network_policy_that_is_not_made_is_told() -> None:
    said = {"egress": True, "from": [{"podSelector": {}}], "metricsFrom": [{"podSelector": {}}]}

    assert [path for path, _ in told(networkPolicy=said)] == [
        "spec.networkPolicy.egress",
        "spec.networkPolicy.from",
        "spec.networkPolicy.metricsFrom",
    ]
    assert told(networkPolicy={**said, "enabled": True}) == []
    assert told(networkPolicy={"egress": False, "from": []}) == []


@pytest.mark.parametrize(
    ("cidr", "cut", "is_part"),
    [
        ("10.0.0.0/8", "10.1.0.0/16", True),
        ("10.9.9.9/8", "10.1.2.3/16", True),
        ("0.0.0.0/0", "10.0.0.0/8", True),
        ("2001:db8::/32", "2001:db8:1::/48", True),
        ("10.0.0.0/8", "10.0.0.0/8", False),
        ("10.0.0.0/8", "0.0.0.0/0", False),
        ("10.0.0.0/8", "11.0.0.0/16", False),
        ("0.0.0.0/0", "::/64", False),
    ],
)
def test_addresses_that_kubernetes_cannot_leave_out_are_told(
    cidr: str, cut: str, is_part: bool
) -> None:
    peers = [{"podSelector": {}}, {"ipBlock": {"cidr": cidr, "except": ["10.0.0.1/32", cut]}}]

    found = told(networkPolicy={"enabled": True, "metricsFrom": peers})

    place = "spec.networkPolicy.metricsFrom.1.ipBlock.except.1"
    assert (place not in [path for path, _ in found]) == is_part


def test_one_member_may_isolate_sessions_and_several_are_told() -> None:
    alone = member(isolation="PerSession")
    assert told(members=[alone, member("b")]) == []

    found = told(members=[alone, member("b"), member("c", isolation="PerSession")])
    assert [path for path, _ in found] == ["spec.members.0.isolation", "spec.members.2.isolation"]
    assert "a, c" in found[0][1]


def test_a_drain_shorter_than_a_call_is_told_only_when_both_are_written() -> None:
    assert told(drain={"timeoutSeconds": 30}) == []
    assert told(members=[member(callTimeoutSeconds=100)]) == []
    assert told(drain={"timeoutSeconds": 100}, members=[member(callTimeoutSeconds=100)]) == []

    found = told(drain={"timeoutSeconds": 30}, members=[member("b", callTimeoutSeconds=100)])
    assert [path for path, _ in found] == ["spec.drain.timeoutSeconds"]
    assert "member b" in found[0][1]


def test_probes_that_outlast_their_interval_are_told() -> None:
    found = told(health={"intervalSeconds": 5, "timeoutSeconds": 6, "unhealthyThreshold": 3})

    assert [path for path, _ in found] == ["spec.health.timeoutSeconds"]
    assert "18 s" in found[0][1]


def test_a_call_that_ends_before_its_silence_can_is_told() -> None:
    found = told(members=[member(callTimeoutSeconds=900)])

    assert [path for path, _ in found] == ["spec.members.0.maxCallSeconds"]


def test_variables_that_nobody_expands_are_told() -> None:
    process = {
        "command": ["server", "--key=${KEY}"],
        "env": [{"name": "A", "value": "${HOME}/x"}, {"name": "B", "value": "$5"}],
    }
    http = {"url": "http://x/", "headers": [{"name": "X-A", "value": "Bearer ${TOKEN}"}]}

    found = told(members=[{"name": "a", "stdio": process}, {"name": "b", "http": http}])

    assert [path for path, _ in found] == [
        "spec.members.0.stdio.env.0.value",
        "spec.members.0.stdio.command.1",
        "spec.members.1.http.headers.0.value",
    ]
    assert all("TOKEN" not in text for _, text in found)


def test_a_shell_expands_its_own_variables() -> None:
    shell = {"command": ["/bin/sh", "-c", "exec server --key=${KEY}"]}

    assert told(members=[{"name": "a", "stdio": shell}]) == []
