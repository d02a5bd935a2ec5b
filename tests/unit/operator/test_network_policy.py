"""Whom a NetworkPolicy lets through."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operator.groups import SETTINGS, group_of

from mcpgroup_operator.children.networkpolicy import build_network_policy

SELECTOR = {
    "app.kubernetes.io/name": "mcpgroup-gateway",
    "app.kubernetes.io/instance": "search",
    "mcpgroup.dev/component": "gateway",
}
OWN_PODS = {"podSelector": {"matchLabels": SELECTOR}}


def namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def policy(*urls: str, **fields: Any) -> Any:
    first, *rest = urls or ("https://a.example.com/mcp",)
    member = {"name": "a", "http": {"url": first, "fallbackUrls": rest}}
    spec = {"members": [member], "networkPolicy": {"enabled": True, **fields}}
    return build_network_policy(group_of(spec), SETTINGS)["spec"]


def to_members(*urls: str) -> list[Any]:
    """The rules behind those for DNS and peers."""
    rules: list[Any] = policy(*urls, egress=True)["egress"][2:]
    return rules


def tcp(port: int) -> dict[str, Any]:
    return {"port": port, "protocol": "TCP"}


def test_it_is_for_the_gateway_pods_of_the_group() -> None:
    assert policy()["podSelector"] == {"matchLabels": SELECTOR}


def test_everybody_may_call_when_nobody_is_named() -> None:
    assert policy()["ingress"][0] == {"ports": [tcp(8080)]}


def test_only_those_who_are_named_may_call() -> None:
    peers = [
        {"namespaceSelector": {}},
        {"podSelector": {"matchLabels": {"a": "b"}}},
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
    ]
    assert policy(**{"from": peers})["ingress"][0] == {"ports": [tcp(8080)], "from": peers}


def test_only_replicas_reach_the_peers_port() -> None:
    assert policy()["ingress"][1] == {"from": [OWN_PODS], "ports": [tcp(8081)]}


def test_the_operator_and_those_who_are_named_reach_the_admin_port() -> None:
    operator = namespace("mcpgroup-system")
    assert policy()["ingress"][2] == {"from": [operator], "ports": [tcp(9090)]}
    metrics = [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]
    assert policy(metricsFrom=metrics)["ingress"][2]["from"] == [operator, *metrics]


def test_what_goes_out_is_free_unless_it_is_asked_otherwise() -> None:
    assert policy()["policyTypes"] == ["Ingress"]
    assert "egress" not in policy()


def test_name_servers_and_replicas_can_always_be_reached() -> None:
    spec = policy(egress=True)
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    dns, peers = spec["egress"][:2]
    assert {(p["port"], p["protocol"]) for p in dns["ports"]} >= {(53, "UDP"), (53, "TCP")}
    assert "to" not in dns
    assert peers == {"to": [OWN_PODS], "ports": [tcp(8081)]}


@pytest.mark.parametrize(
    ("url", "rules"),
    [
        ("https://a.example.com/mcp", [{"ports": [tcp(443)]}]),
        ("http://a.example.com/mcp", [{"ports": [tcp(80)]}]),
        ("http://a.example.com:8000/mcp", [{"ports": [tcp(8000)]}]),
        ("https://tools.dev/mcp", [{"ports": [tcp(443)]}]),
        ("http://b/mcp", [{"to": [namespace("tools")]}]),
        ("http://b.other.svc:1/mcp", [{"to": [namespace("other")]}]),
        ("http://B.Other.svc.cluster.local/mcp", [{"to": [namespace("other")]}]),
        ("http://localhost:1/mcp", [{"ports": [tcp(1)]}]),
        (
            "http://10.1.2.3:9/mcp",
            [{"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}], "ports": [tcp(9)]}],
        ),
        (
            "https://[2001:db8::1]/mcp",
            [{"to": [{"ipBlock": {"cidr": "2001:db8::1/128"}}], "ports": [tcp(443)]}],
        ),
    ],
)
def test_a_member_can_be_reached_where_it_is(url: str, rules: list[Any]) -> None:
    assert to_members(url) == rules


def test_fallbacks_can_be_reached_too_and_nothing_is_said_twice() -> None:
    urls = ["https://a.example.com/mcp", "https://b.example.com/mcp", "http://c.d.svc/mcp"]
    assert to_members(*urls) == [{"to": [namespace("d")]}, {"ports": [tcp(443)]}]


def test_a_process_in_the_pod_opens_nothing() -> None:
    spec = {
        "members": [{"name": "a", "stdio": {"command": ["x"]}}],
        "networkPolicy": {"enabled": True, "egress": True},
    }
    assert len(build_network_policy(group_of(spec), SETTINGS)["spec"]["egress"]) == 2


def test_the_order_of_members_does_not_matter() -> None:
    urls = [
        "https://a.example.com/mcp",
        "http://b/mcp",
        "http://10.0.0.2/mcp",
        "http://10.0.0.1/mcp",
        "http://c.d.svc/mcp",
        "http://e.example.com:7/mcp",
    ]
    assert to_members(*urls) == to_members(*reversed(urls))
