"""Stand-ins for pods are what the API server, the controllers and the operator see as pods."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.controlplane.deploying import Deployments
from tests.controlplane.pods import StubPods
from tests.harness.processes import until

from mcpgroup_api import config_hash

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster
    from tests.controlplane.private import PrivatePlane
    from tests.controlplane.stubs import StatusStub

LABELS = {"mcpgroup.dev/group": "a"}


def group_file(generation: int) -> str:
    members = [{"name": "one", "http": {"url": "http://one/mcp"}}]
    metadata = {"name": "a", "generation": generation}
    return json.dumps({"metadata": metadata, "spec": {"members": members}})


def deployment(replicas: int) -> dict[str, Any]:
    container = {"name": "gateway", "image": "none"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "labels": LABELS},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}},
        },
    }


@pytest.fixture
async def stubs(cluster: Cluster, api: Api, namespace: str) -> AsyncIterator[StubPods]:
    """Two pods of a group `a`."""
    await api.wait_for("serviceaccounts", "default", lambda _: True)
    await api.create(
        "configmaps", {"metadata": {"name": "a"}, "data": {"group.yaml": group_file(1)}}
    )
    await api.create("deployments", deployment(2))
    async with StubPods(cluster, namespace) as stubs:
        await stubs.running("a", 2)
        yield stubs


async def ask(stub: StatusStub, timeout: float = 5) -> dict[str, Any]:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout)) as http,
        http.get(f"http://{stub.address}:{stub.port}/status") as answer,
    ):
        status: dict[str, Any] = await answer.json()
        return status


async def test_a_deployment_becomes_available(stubs: StubPods, api: Api) -> None:
    found = await api.wait_for("deployments", "a", lambda d: d["status"].get("availableReplicas"))
    assert found["status"]["readyReplicas"] >= 1
    pods = await api.list("pods")
    assert {p["status"]["podIP"] for p in pods} == {s.address for s in stubs.stubs()}
    assert len({s.address for s in stubs.stubs()}) == 2


async def test_each_answers_for_itself(stubs: StubPods) -> None:
    one, two = stubs.stubs()
    two.open_circuit()
    first, second = await ask(one), await ask(two)
    assert first["pod"] != second["pod"]
    assert (first["state"], second["state"]) == ("Healthy", "Degraded")
    assert first["config"]["hash"] == config_hash(group_file(1).encode())
    assert (one.asked, two.asked) == (1, 1)


async def test_one_hangs_and_one_refuses_and_both_come_back(stubs: StubPods) -> None:
    one, two = stubs.stubs()
    one.hang = True
    two.refuse()
    with pytest.raises(TimeoutError):
        await ask(one, timeout=0.2)
    with pytest.raises(aiohttp.ClientConnectionError):
        await ask(two)
    one.hang = False
    await two.listen()
    await ask(one)
    await ask(two)


async def test_a_new_file_arrives_when_the_annotation_says_so(stubs: StubPods, api: Api) -> None:
    one, _two = stubs.pods()
    await api.patch("configmaps", "a", {"data": {"group.yaml": group_file(2)}})
    metadata = {"annotations": {"mcpgroup.dev/config-hash": "new"}}
    await api.patch("pods", one.name, {"metadata": metadata}, subresource="status")
    await api.wait_for("pods", one.name, lambda p: "annotations" in p["metadata"])
    first, second = stubs.stubs()
    await until(lambda: first.status["config"]["generation"] == 2)
    assert (await ask(first))["config"]["hash"] == config_hash(group_file(2).encode())
    assert (await ask(second))["config"]["hash"] == config_hash(group_file(1).encode())


async def test_pods_come_and_go_with_replicas(stubs: StubPods, api: Api) -> None:
    await api.patch("deployments", "a", {"spec": {"replicas": 3}})
    await stubs.running("a", 3)
    await api.patch("deployments", "a", {"spec": {"replicas": 0}})
    await stubs.running("a", 0)
    await api.wait_until("pods", lambda pods: not pods)


async def test_a_pod_that_ends_slowly_is_seen_terminating(stubs: StubPods, api: Api) -> None:
    stubs.termination_seconds = 1
    await api.patch("deployments", "a", {"spec": {"replicas": 1}})
    seen = await api.wait_until(
        "pods", lambda pods: any("deletionTimestamp" in p["metadata"] for p in pods.values())
    )
    assert len(seen) == 2
    await api.wait_until("pods", lambda pods: len(pods) == 1)


async def test_a_pod_that_is_not_ready_counts_as_such(stubs: StubPods, api: Api) -> None:
    await api.wait_for("deployments", "a", lambda d: d["status"].get("readyReplicas") == 2)
    await stubs.pods()[0].set_ready(False)
    await api.wait_for("deployments", "a", lambda d: d["status"].get("readyReplicas") == 1)


async def test_pods_of_deployments_come_without_controllers(private: PrivatePlane) -> None:
    _, cluster = await private.start(controllers=False)
    async with (
        cluster.api("default") as api,
        Deployments(cluster, "*"),
        StubPods(cluster, "*") as stubs,
    ):
        await api.create("serviceaccounts", {"metadata": {"name": "default"}})
        file = {"group.yaml": group_file(1)}
        await api.create("configmaps", {"metadata": {"name": "a"}, "data": file})
        await api.create("deployments", deployment(2))
        old = {pod.name for pod in await stubs.running("a", 2)}
        await api.wait_for("deployments", "a", lambda d: d["status"].get("readyReplicas") == 2)
        template = {"metadata": {"annotations": {"new": "yes"}}}
        await api.patch("deployments", "a", {"spec": {"template": template}})
        await api.wait_until("pods", lambda pods: len(pods) == 2 and not old & set(pods))
        await api.patch("deployments", "a", {"spec": {"replicas": 0}})
        await stubs.running("a", 0)
        done = await api.wait_for("deployments", "a", lambda d: not d["status"].get("replicas"))
        assert done["status"]["observedGeneration"] == done["metadata"]["generation"]
