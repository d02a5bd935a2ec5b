"""The Services of a group, and the smaller children."""

from __future__ import annotations

from typing import Any

from tests.unit.operator.groups import SETTINGS, SPECS, group_of

from mcpgroup_operator import names
from mcpgroup_operator.children.disruption import build_disruption_budget
from mcpgroup_operator.children.monitoring import build_pod_monitor
from mcpgroup_operator.children.pod import pod_template
from mcpgroup_operator.children.service import build_peers_service, build_service
from mcpgroup_operator.children.serviceaccount import build_service_account

SMALLEST = SPECS["smallest"]
GROUP = group_of(SMALLEST)


def service(**fields: Any) -> dict[str, Any]:
    return build_service(group_of({**SMALLEST, "service": fields}), SETTINGS)


def test_clients_reach_the_mcp_port_on_port_80() -> None:
    spec = service()["spec"]
    assert spec["type"] == "ClusterIP"
    (port,) = spec["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == ("mcp", 80, "mcp")


def test_a_group_says_what_its_service_is_like() -> None:
    made = service(
        type="LoadBalancer", port=443, sessionAffinity="ClientIP", annotations={"a/b": "c"}
    )
    assert made["spec"]["type"] == "LoadBalancer"
    assert made["spec"]["sessionAffinity"] == "ClientIP"
    assert made["spec"]["ports"][0]["port"] == 443
    assert made["metadata"]["annotations"]["a/b"] == "c"


def test_replicas_find_each_other_even_when_they_are_not_ready() -> None:
    made = build_peers_service(GROUP, SETTINGS)
    assert made["metadata"]["name"] == "search-peers"
    assert made["spec"]["clusterIP"] == "None"
    assert made["spec"]["publishNotReadyAddresses"] is True
    assert made["spec"]["ports"][0]["port"] == 8081


def test_everything_selects_the_gateway_pods_by_the_labels_they_have() -> None:
    labels = pod_template(GROUP, SETTINGS)["metadata"]["labels"]
    selectors = [
        build_service(GROUP, SETTINGS)["spec"]["selector"],
        build_peers_service(GROUP, SETTINGS)["spec"]["selector"],
        build_disruption_budget(GROUP, SETTINGS)["spec"]["selector"]["matchLabels"],
        build_pod_monitor(GROUP, SETTINGS)["spec"]["selector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector == names.selector("search")
        assert selector.items() <= labels.items()


def test_every_named_port_is_one_of_the_container() -> None:
    (container,) = pod_template(GROUP, SETTINGS)["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"mcp": 8080, "peers": 8081, "admin": 9090}
    (endpoint,) = build_pod_monitor(GROUP, SETTINGS)["spec"]["podMetricsEndpoints"]
    for build in (build_service, build_peers_service):
        assert build(GROUP, SETTINGS)["spec"]["ports"][0]["targetPort"] in ports
    assert endpoint["port"] in ports


def test_no_drain_of_a_machine_waits_for_a_group() -> None:
    spec = build_disruption_budget(group_of({**SMALLEST, "replicas": 1}), SETTINGS)["spec"]
    assert spec["maxUnavailable"] == 1
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_no_pod_gets_a_token_of_the_account_by_itself() -> None:
    assert build_service_account(GROUP, SETTINGS)["automountServiceAccountToken"] is False
