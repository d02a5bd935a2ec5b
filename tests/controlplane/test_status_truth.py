"""The status of a group tells the truth about every replica: real gateways stand in for pods."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import signal
import socket
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.controlplane.gateway_pods import GatewayPods
from tests.controlplane.nodes import running_status
from tests.controlplane.operating import Operator
from tests.controlplane.pods import StubPods
from tests.harness.processes import ROOT, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster
    from tests.controlplane.gateway_pods import GatewayPod
    from tests.controlplane.nodes import StandIn

GROUPS = "mcpservergroups"
POLL_SECONDS = 2.0
TWO_POLLS = 2 * 1.2 * POLL_SECONDS
THROTTLE_SECONDS = 5.0
MARGIN_SECONDS = 3.0
"""For processes of a machine that does other things, too."""

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "find", "read")]


class Scene:
    """A group `demo` with two real replicas and the members `one` and `two` in each."""

    def __init__(self, cluster: Cluster, api: Api, pods: GatewayPods, folder: Path) -> None:
        self.cluster = cluster
        self.api = api
        self.pods = pods
        self.folder = folder
        self.well, self.ill = pods.gateways("demo")

    async def until(self, *holds: Callable[[Any], object], within: float = 40) -> dict[str, Any]:
        """The group once its status is so."""
        return await self.api.wait_for(
            GROUPS, "demo", lambda group: all(hold(group) for hold in holds), within=within
        )

    def tell(self, pod: StandIn, *flags: str) -> None:
        """How members of one replica start from now on."""
        (self.folder / f"{pod.name}.json").write_text(json.dumps(flags))

    async def restart_members(self, pod: GatewayPod) -> None:
        """As if they had crashed."""
        for member in (await pod.status())["members"]:
            os.kill(member["pid"], signal.SIGKILL)


def group(folder: Path, **spec: Any) -> dict[str, Any]:
    tools = folder / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    start = [sys.executable, "-S", str(ROOT / "tests/servers/by_replica.py"), str(folder), "stdio"]
    members = [
        {"name": name, "stdio": {"command": [*start, "--tools-file", str(tools)]}}
        for name in ("one", "two")
    ]
    return {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "metadata": {"name": "demo"},
        "spec": {
            "members": members,
            "circuitBreaker": {"failureThreshold": 2},
            "recovery": {"initialBackoffSeconds": 1, "maxBackoffSeconds": 1},
            "health": {"intervalSeconds": 1, "timeoutSeconds": 1},
            **spec,
        },
    }


@pytest.fixture
async def scene(cluster: Cluster, api: Api, namespace: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """Everything is well."""
    async with (
        GatewayPods(cluster, namespace, tmp_path / "pods") as pods,
        Operator(cluster, namespace, pod_admin_port=pods.admin_port, poll_seconds=POLL_SECONDS),
    ):
        await api.apply(GROUPS, group(tmp_path))
        await pods.running("demo", 2, within=60)
        scene = Scene(cluster, api, pods, tmp_path)
        await scene.until(is_well)
        yield scene


def condition(found: dict[str, Any], name: str) -> dict[str, Any]:
    conditions = found.get("status", {}).get("conditions", ())
    return next((entry for entry in conditions if entry["type"] == name), {})


def says(name: str, status: str, reason: str = "", text: str = "") -> Callable[[Any], bool]:
    """Whether a condition has this status, of the newest generation, and this in its message."""

    def holds(found: dict[str, Any]) -> bool:
        said = condition(found, name)
        return (
            said.get("status") == status
            and said["observedGeneration"] == found["metadata"]["generation"]
            and reason in ("", said["reason"])
            and text in said["message"]
        )

    return holds


def is_well(found: dict[str, Any]) -> bool:
    """Whether every condition is as it should be, and of the newest generation."""
    good = {"Progressing": "False"}
    names = [entry["type"] for entry in found.get("status", {}).get("conditions", ())]
    return len(names) == 8 and all(says(name, good.get(name, "True"))(found) for name in names)


def row(found: dict[str, Any], pod: StandIn) -> dict[str, Any]:
    return next(row for row in found["status"]["gateways"] if row["pod"] == pod.name)


async def let_it_be_ready_for_long(pod: StandIn) -> None:
    """As if it had become ready a minute ago."""
    status = running_status(pod.pod, pod.address, ready=True)
    then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=60)
    for entry in status["conditions"]:
        entry["lastTransitionTime"] = then.strftime("%Y-%m-%dT%H:%M:%SZ")
    await pod.node.patch_status(pod, status)


async def circuit_opens(pod: GatewayPod) -> None:
    async with asyncio.timeout(30):
        while not (await pod.status())["circuit"]["open"]:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)


async def told(api: Api, kind: str, reason: str) -> int:
    """Wait for an event of a group, which is posted after the status; how many there are."""

    def found(events: dict[str, dict[str, Any]]) -> int:
        groups = [e for e in events.values() if e["involvedObject"]["kind"] == "McpServerGroup"]
        return sum((e["type"], e["reason"]) == (kind, reason) for e in groups)

    return found(await api.wait_until("events", found))


async def test_a_healthy_group_says_so_in_every_column(scene: Scene) -> None:
    found = await scene.until(is_well)
    status = found["status"]
    assert (status["state"], status["members"], status["replicas"]) == ("Healthy", "2/2", 2)
    assert [entry["pod"] for entry in status["gateways"]] == [scene.well.name, scene.ill.name]
    for pod in (scene.well, scene.ill):
        said = await pod.status()
        assert row(found, pod) | {"since": ""} == {
            "pod": pod.name,
            "ready": True,
            "state": "Healthy",
            "configHash": said["config"]["hash"],
            "circuitOpen": False,
            "inRotation": 2,
            "healthy": 2,
            "selectable": 2,
            "since": "",
        }
        assert said["config"]["hash"] == status["configHash"]
    shown = await scene.cluster.kubectl(
        "get", "mcpsg", "demo", "--no-headers", namespace=scene.api.namespace
    )
    endpoint = f"http://demo.{scene.api.namespace}.svc/mcp"
    assert shown.out.split()[:7] == ["demo", "True", "Healthy", "2/2", "2", "True", endpoint]


async def test_an_open_circuit_on_one_replica_is_a_disagreement_that_names_it(
    scene: Scene,
) -> None:
    scene.tell(scene.ill, "--fail-start-until-file", str(scene.folder / "never"))
    await scene.restart_members(scene.ill)
    await circuit_opens(scene.ill)
    opened = time.monotonic()
    found = await scene.until(
        says("ReplicasAgree", "False", "CircuitsDiffer", f"{scene.ill.name}: circuit open")
    )
    took = time.monotonic() - opened
    print(f"told {took:.1f} s after the circuit opened")
    assert took < TWO_POLLS + THROTTLE_SECONDS + MARGIN_SECONDS
    assert row(found, scene.ill)["circuitOpen"] is True
    assert row(found, scene.well)["circuitOpen"] is False
    assert found["status"]["state"] == "Degraded"
    assert says("Available", "True")(found)
    assert says("Ready", "True")(found)
    assert says("Healthy", "False", "Degraded")(found)
    scene.tell(scene.ill)
    await scene.until(is_well)
    assert await told(scene.api, "Warning", "CircuitsDiffer") == 1
    assert await told(scene.api, "Normal", "ReplicasAgree") == 1
    described = await scene.cluster.kubectl(
        "describe", "mcpsg", "demo", namespace=scene.api.namespace
    )
    assert "CircuitsDiffer" in described.out.partition("Events:")[2]


async def test_a_replica_that_cannot_be_asked_makes_what_is_said_of_all_unknown(
    scene: Scene,
) -> None:
    await let_it_be_ready_for_long(scene.ill)
    scene.ill.pause()
    found = await scene.until(
        says("ReplicasAgree", "Unknown", "ReplicaUnreachable", scene.ill.name),
        says("ConfigApplied", "Unknown", "ReplicaUnreachable", scene.ill.name),
        says("MembersConsistent", "Unknown", "ReplicaUnreachable", scene.ill.name),
    )
    assert row(found, scene.ill) == {
        "pod": scene.ill.name,
        "ready": True,
        "state": "Unknown",
        "since": row(found, scene.ill)["since"],
    }
    assert says("Available", "True")(found)
    assert says("Ready", "Unknown")(found)
    assert (found["status"]["state"], found["status"]["members"]) == ("Healthy", "2/2")
    scene.ill.resume()
    await scene.until(is_well)
    assert await told(scene.api, "Warning", "ReplicaUnreachable") >= 1


async def test_replicas_with_an_old_configuration_are_named_until_they_have_the_new_one(
    scene: Scene,
) -> None:
    before = await scene.until(is_well)
    scene.pods.refreshes = False
    await scene.api.patch(GROUPS, "demo", {"spec": {"description": "another text"}})
    await scene.until(
        says("ConfigApplied", "False", "ConfigOutdated", scene.well.name),
        says("ConfigApplied", "False", "ConfigOutdated", scene.ill.name),
        says("Progressing", "True", "Reloading"),
        says("Ready", "False", "ConfigOutdated"),
    )
    await scene.well.refresh()
    found = await scene.until(
        says("ConfigApplied", "False", "ConfigOutdated", scene.ill.name),
        lambda found: scene.well.name not in condition(found, "ConfigApplied")["message"],
    )
    wanted = found["status"]["configHash"]
    assert wanted != before["status"]["configHash"] == row(found, scene.ill)["configHash"]
    assert row(found, scene.well)["configHash"] == wanted
    await scene.ill.refresh()
    after = await scene.until(is_well)
    assert after["metadata"]["generation"] == 2
    for name in ("Accepted", "Available", "ReplicasAgree", "MembersConsistent", "Healthy"):
        times = [condition(each, name)["lastTransitionTime"] for each in (before, after)]
        assert times[0] == times[1], name
    assert await told(scene.api, "Normal", "ConfigApplied") == 1


async def test_a_member_that_lacks_a_tool_on_one_replica_is_named(scene: Scene) -> None:
    fewer = scene.folder / "fewer.json"
    fewer.write_text(json.dumps(TOOLS[:-1]))
    scene.tell(scene.ill, "--tools-file", str(fewer))
    await scene.restart_members(scene.ill)
    found = await scene.until(
        says("MembersConsistent", "False", "CataloguesDiffer"), says("ReplicasAgree", "True")
    )
    message = condition(found, "MembersConsistent")["message"]
    assert f"one: {scene.ill.name} sees 2 tools where most replicas see 3" in message
    scene.tell(scene.ill)
    await scene.restart_members(scene.ill)
    await scene.until(is_well)


async def test_a_missing_secret_is_named_and_heals_without_a_rollout(scene: Scene) -> None:
    spec = group(scene.folder)["spec"]
    key = {"secretKeyRef": {"name": "tokens", "key": "api"}}
    spec["members"][0]["stdio"]["env"] = [{"name": "TOKEN", "valueFrom": key}]
    await scene.api.patch(GROUPS, "demo", {"spec": {"members": spec["members"]}})
    found = await scene.until(
        says("Accepted", "False", "SecretNotFound", "Secret tokens, key api"),
        says("Progressing", "False", "Settled"),
        within=90,
    )
    assert says("Ready", "False", "SecretNotFound")(found)
    pods = {pod["metadata"]["uid"] for pod in await scene.api.list("pods")}
    await scene.api.create(
        "secrets", {"metadata": {"name": "tokens"}, "stringData": {"api": "s3cr3t-value"}}
    )
    for gateway in scene.pods.gateways("demo"):
        await gateway.refresh()  # as the kubelet does in its time
    found = await scene.until(is_well, within=60)
    assert "s3cr3t" not in json.dumps([found, await scene.api.list("events")])
    assert {pod["metadata"]["uid"] for pod in await scene.api.list("pods")} <= pods


# --- with pretended gateways, where many or hanging ones are wanted


def plain(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "metadata": {"name": name},
        "spec": {"members": [{"name": "one", "http": {"url": "http://one.invalid/mcp"}}], **spec},
    }


async def test_another_generation_is_in_every_condition_and_no_time_moves(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    async with (
        StubPods(cluster, namespace) as stubs,
        Operator(cluster, namespace, pod_admin_port=stubs.admin_port) as operator,
    ):
        await api.apply(GROUPS, plain("demo"))
        await stubs.running("demo", 2)
        before = await api.wait_for(GROUPS, "demo", is_well, within=40)
        position = await cluster.audit_log().now(api)
        annotated = {"spec": {"service": {"annotations": {"a": "b"}}}}
        await api.patch(GROUPS, "demo", annotated)
        after = await api.wait_for(
            GROUPS,
            "demo",
            lambda found: is_well(found) and found["metadata"]["generation"] == 2,
            within=20,
        )
        assert after["status"]["observedGeneration"] == 2
        assert {entry["observedGeneration"] for entry in after["status"]["conditions"]} == {2}
        for old, new in zip(
            before["status"]["conditions"], after["status"]["conditions"], strict=True
        ):
            assert old | {"observedGeneration": 2} == new
        assert after["status"]["gateways"] == before["status"]["gateways"]
        writes = [
            entry
            for entry in await cluster.audit_log().since(position, api, operator.user)
            if entry.is_write and entry.resource == GROUPS
        ]
        assert len(writes) == 1


async def test_a_change_of_the_file_is_told_within_seconds_and_in_two_statuses(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    async with (
        StubPods(cluster, namespace) as stubs,
        Operator(cluster, namespace, pod_admin_port=stubs.admin_port, poll_seconds=30) as operator,
    ):
        await api.apply(GROUPS, plain("demo", replicas=3))
        await stubs.running("demo", 3)
        await api.wait_for(GROUPS, "demo", is_well, within=40)
        position = await cluster.audit_log().now(api)
        await api.patch(GROUPS, "demo", {"spec": {"description": "another text"}})
        await api.wait_for(
            GROUPS,
            "demo",
            lambda found: is_well(found) and found["metadata"]["generation"] == 2,
            within=20,
        )
        entries = await cluster.audit_log().since(position, api, operator.user)
        writes = Counter(e.resource for e in entries if e.is_write and e.resource != "leases")
        assert writes.pop("events", 0) <= 1
        assert writes.pop(GROUPS) <= 2
        assert writes == {"configmaps": 1, "pods": 3}


async def test_scaled_to_zero_is_not_available_and_comes_back(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    async with (
        StubPods(cluster, namespace) as stubs,
        Operator(cluster, namespace, pod_admin_port=stubs.admin_port),
    ):
        await api.apply(GROUPS, plain("demo"))
        await stubs.running("demo", 2)
        await api.wait_for(GROUPS, "demo", is_well, within=40)
        await cluster.kubectl("scale", "mcpsg/demo", "--replicas=0", namespace=namespace)
        found = await api.wait_for(
            GROUPS,
            "demo",
            lambda found: (
                says("Available", "False", "ScaledToZero")(found)
                and "gateways" not in found["status"]
                and found["status"]["replicas"] == 0
            ),
            within=30,
        )
        assert says("Ready", "False", "ScaledToZero")(found)
        assert (found["status"]["state"], found["status"]["members"]) == ("Inactive", "0/0")
        await cluster.kubectl("scale", "mcpsg/demo", "--replicas=1", namespace=namespace)
        await api.wait_for(GROUPS, "demo", is_well, within=40)


class OneAddress:
    """For the only pod of a test: an address of this machine that is no loopback address."""

    def __init__(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))  # a route is looked for, nothing is sent
            except OSError:
                pytest.skip("this machine has no address beyond itself")
            self._address = probe.getsockname()[0]

    def take(self) -> str:
        return str(self._address)


async def test_pods_are_asked_through_the_api_server_by_an_operator_outside(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    stubs = StubPods(cluster, namespace)
    # The API server proxies to no loopback address.
    stubs._addresses = OneAddress()  # type: ignore[assignment]
    async with (
        stubs,
        Operator(
            cluster,
            namespace,
            pods="proxy",
            pod_admin_port=stubs.admin_port,
            access=cluster.access,  # no role that is shipped allows it
        ),
    ):
        await api.apply(GROUPS, plain("demo", replicas=1))
        await stubs.running("demo", 1)
        await api.wait_for(GROUPS, "demo", is_well, within=40)
        await let_it_be_ready_for_long(stubs.pods("demo")[0])
        stubs.stubs("demo")[0].hang = True
        unreachable = says("ReplicasAgree", "Unknown", "ReplicaUnreachable", "no answer within 2 s")
        await api.wait_for(GROUPS, "demo", unreachable, within=40)


async def test_pods_that_accept_and_never_answer_delay_no_other_group(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    async with (
        StubPods(cluster, namespace) as stubs,
        Operator(
            cluster, namespace, pod_admin_port=stubs.admin_port, poll_seconds=POLL_SECONDS
        ) as operator,
    ):
        await api.apply(GROUPS, plain("hangs", replicas=100))
        await api.apply(GROUPS, plain("serves"))
        await stubs.running("serves", 2, within=60)
        await stubs.running("hangs", 100, within=120)
        for stub in stubs.stubs("hangs"):
            stub.hang = True
        for pod in stubs.pods("hangs"):
            await let_it_be_ready_for_long(pod)
        await api.wait_for(GROUPS, "serves", is_well, within=60)
        silent = says("ReplicasAgree", "Unknown", "ReplicaUnreachable", "and 95 more")
        await api.wait_for(
            GROUPS,
            "hangs",
            lambda found: (
                silent(found)
                and {entry["state"] for entry in found["status"]["gateways"]} == {"Unknown"}
            ),
            within=60,
        )
        # Again with nothing known of any pod: it must not matter whom it asks first.
        position = await cluster.audit_log().now(api)
        await operator.terminate()
        await operator.start()
        stub = stubs.stubs("serves")[1]
        asked = stub.asked
        began = time.monotonic()
        await until(lambda: stub.asked >= asked + 6, 60)
        took = time.monotonic() - began
        print(f"six polls in {took:.1f} s after a restart beside 100 pods that hang")
        assert took < 6 * 1.2 * POLL_SECONDS + MARGIN_SECONDS
        # What it does not know yet it does not take back.
        entries = await cluster.audit_log().since(position, api, operator.user)
        assert [str(e) for e in entries if e.is_write and e.resource == GROUPS] == []
        stub.open_circuit()
        opened = time.monotonic()
        await api.wait_for(GROUPS, "serves", says("ReplicasAgree", "False"), within=40)
        took = time.monotonic() - opened
        print(f"told {took:.1f} s after the circuit opened, beside 100 pods that hang")
        assert took < TWO_POLLS + THROTTLE_SECONDS + MARGIN_SECONDS
