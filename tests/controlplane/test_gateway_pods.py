"""Real gateways stand in for pods: with volumes, downward API, probes and an end in good order."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.controlplane.gateway_pods import GatewayPods
from tests.harness.members import faulty
from tests.harness.processes import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster

# ruff: noqa: S104, S108 - addresses and folders of a container
LABELS = {"mcpgroup.dev/group": "a"}
HASH = "mcpgroup.dev/config-hash"


def group_file(*members: str) -> str:
    return json.dumps(
        {
            "apiVersion": "mcpgroup.dev/v1alpha1",
            "kind": "McpServerGroup",
            "metadata": {"name": "a"},
            "spec": {"members": [faulty(name) for name in members]},
        }
    )


def deployment() -> dict[str, Any]:
    arguments = ["run", "/etc/mcpgroup/group/group.yaml", "--host", "0.0.0.0", "--port", "8080"]
    arguments += ["--admin-host", "0.0.0.0", "--admin-port", "9090"]
    arguments += ["--secrets", "/etc/mcpgroup/secrets", "--request-log", "/tmp/requests.log"]
    container = {
        "name": "gateway",
        "image": "none",
        "args": arguments,
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/mcpgroup/group"},
            {"name": "secret", "mountPath": "/etc/mcpgroup/secrets/tokens"},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    volumes = [
        {"name": "config", "configMap": {"name": "a"}},
        {"name": "secret", "secret": {"secretName": "tokens", "optional": True}},
        {"name": "tmp", "emptyDir": {}},
    ]
    pod = {"containers": [container], "volumes": volumes}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "labels": LABELS},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def has_a_node(pods: dict[str, dict[str, Any]]) -> bool:
    return any("nodeName" in pod["spec"] for pod in pods.values())


@pytest.fixture
async def gateways(
    cluster: Cluster, api: Api, namespace: str, tmp_path: Path
) -> AsyncIterator[GatewayPods]:
    """One pod of a group `a`, which waited for its ConfigMap."""
    await api.wait_for("serviceaccounts", "default", lambda _: True)
    await api.create("deployments", deployment())
    async with GatewayPods(cluster, namespace, tmp_path) as gateways:
        await api.wait_until(
            "pods", lambda pods: any("nodeName" in p["spec"] for p in pods.values())
        )
        await api.create(
            "configmaps", {"metadata": {"name": "a"}, "data": {"group.yaml": group_file("one")}}
        )
        await gateways.running("a", 1)
        yield gateways


async def test_a_pod_serves_what_its_volume_says(gateways: GatewayPods, api: Api) -> None:
    (gateway,) = gateways.gateways()
    status = await gateway.status()
    assert status["pod"] == gateway.name
    assert [member["name"] for member in status["members"]] == ["one"]
    found = await api.get("pods", gateway.name)
    assert found["status"]["podIP"] == gateway.address


async def test_it_takes_a_new_file_when_the_annotation_says_so(
    gateways: GatewayPods, api: Api
) -> None:
    (gateway,) = gateways.gateways()
    await api.patch("configmaps", "a", {"data": {"group.yaml": group_file("one", "two")}})
    await api.create("secrets", {"metadata": {"name": "tokens"}, "stringData": {"key": "value"}})
    assert not (gateway.folder / "etc/mcpgroup/secrets/tokens/key").exists()
    metadata = {"annotations": {HASH: "new"}}
    await api.patch("pods", gateway.name, {"metadata": metadata}, subresource="status")
    await gateway.running.printed(r'"?two"?')
    assert len((await gateway.status())["members"]) == 2
    assert (gateway.folder / "etc/mcpgroup/secrets/tokens/key").read_text() == "value"
    await api.patch("secrets", "tokens", {"data": {"key": base64.b64encode(b"new").decode()}})
    await gateway.refresh()
    assert (gateway.folder / "etc/mcpgroup/secrets/tokens/key").read_text() == "new"
    await api.patch("secrets", "tokens", {"data": {"key": None}})
    await gateway.refresh()
    assert not (gateway.folder / "etc/mcpgroup/secrets/tokens/key").exists()


async def test_it_ends_in_good_order_with_its_pod(gateways: GatewayPods, api: Api) -> None:
    (gateway,) = gateways.gateways()
    await api.patch("deployments", "a", {"spec": {"replicas": 0}})
    await gateways.running("a", 0)
    await api.wait_until("pods", lambda pods: not pods)
    assert gateway.exit_code == 0


async def test_a_pod_deleted_by_force_takes_its_gateway_along(
    gateways: GatewayPods, api: Api
) -> None:
    (gateway,) = gateways.gateways()
    await api.delete("pods", gateway.name, grace=0)
    await until(lambda: gateway not in gateways.gateways())
    (other,) = await gateways.running("a", 1)
    assert other.name != gateway.name
