"""The operator runs as tests need it: with shipped rights, observed, stopped, killed, paused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.controlplane.operating import Operator
from tests.controlplane.pods import StubPods
from tests.controlplane.proxy import FaultyApi
from tests.harness.processes import alive

if TYPE_CHECKING:
    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster


def group(name: str, **spec: Any) -> dict[str, Any]:
    members = [{"name": "one", "http": {"url": "http://one.test/mcp"}}]
    return {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "metadata": {"name": name},
        "spec": {"members": members, **spec},
    }


def is_true(group: dict[str, Any], kind: str) -> bool:
    conditions = group.get("status", {}).get("conditions", ())
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


async def test_a_group_becomes_ready_with_stand_ins_for_pods(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    async with (
        StubPods(cluster, namespace) as stubs,
        Operator(cluster, namespace, pod_admin_port=stubs.admin_port) as operator,
    ):
        await api.apply("mcpservergroups", group("a"))
        await stubs.running("a", 2)
        await api.wait_for("mcpservergroups", "a", lambda g: is_true(g, "Ready"), within=30)
        assert await operator.metric("reconcile_operations_total") >= 1
        entries = await cluster.audit_log().since(0, api, operator.user)
        assert {e.code for e in entries} <= {200, 201, 404}
        assert {e.resource for e in entries if e.is_write} >= {"deployments", "mcpservergroups"}


async def test_it_ends_is_killed_pauses_and_starts_again(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    async with Operator(cluster, namespace) as operator:
        operator.pause()
        asked = asyncio.create_task(operator.probe("livez"))
        done, _ = await asyncio.wait({asked}, timeout=0.2)
        assert not done
        operator.resume()
        assert (await asked)[0] == 200
        assert await operator.terminate() == 0
        await operator.start()
        await api.apply("mcpservergroups", group("a"))
        await api.wait_for("deployments", "a", lambda _: True, within=30)
        assert operator.memory() > 0
        first = operator.pid
        await operator.kill()
        assert alive([first]) == []
        await operator.start()
        assert operator.pid != first


def both_ready(live: dict[str, Any]) -> bool:
    """One replica is enough for the group to be Ready; the other one follows."""
    rows = live.get("status", {}).get("gateways", ())
    return is_true(live, "Ready") and [row["state"] for row in rows] == ["Healthy", "Healthy"]


async def test_pods_are_asked_through_the_api_server_from_a_laptop(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    async with (
        StubPods(cluster, namespace) as stubs,
        FaultyApi(cluster.access, pods=stubs) as between,
        Operator(
            cluster, namespace, pods="proxy", pod_admin_port=stubs.admin_port, through=between
        ),
    ):
        await api.apply("mcpservergroups", group("a"))
        await stubs.running("a", 2)
        await api.wait_for("mcpservergroups", "a", both_ready, within=30)
        assert between.count("get", "pods") >= 2
        assert all(stub.asked for stub in stubs.stubs())
