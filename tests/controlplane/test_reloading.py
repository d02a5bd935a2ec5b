"""A new file on its way into pods: their volumes are refreshed at once, and not for ever."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.controlplane.operating import Operator
from tests.controlplane.pods import StubPods
from tests.controlplane.test_operating import group, is_true

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster

GROUPS = "mcpservergroups"
REFRESH = "mcpgroup.dev/config-refresh"
HASH = "mcpgroup.dev/config-hash"


@pytest.fixture
async def stubs(cluster: Cluster, api: Api, namespace: str) -> AsyncIterator[StubPods]:
    """A group `a` with one pod, and an operator that knows that all is well."""
    async with (
        StubPods(cluster, namespace) as stubs,
        Operator(cluster, namespace, pod_admin_port=stubs.admin_port),
    ):
        await api.create(GROUPS, group("a", replicas=1))
        await stubs.running("a", 1)
        await api.wait_for(GROUPS, "a", lambda g: is_true(g, "ConfigApplied"), within=30)
        yield stubs


async def edit(api: Api) -> None:
    await api.patch(GROUPS, "a", {"spec": {"circuitBreaker": {"failureThreshold": 77}}})


def is_current(found: dict[str, Any]) -> bool:
    status = found["status"]
    return bool(status["observedGeneration"] == found["metadata"]["generation"])


def was_patched(number: str) -> Callable[[dict[str, Any]], bool]:
    """Whether any pod's volumes were asked to be refreshed for this time."""
    return lambda pods: any(
        pod["metadata"].get("annotations", {}).get(REFRESH) == number for pod in pods.values()
    )


async def test_a_pod_that_takes_the_file_is_patched_once(api: Api, stubs: StubPods) -> None:
    began = time.monotonic()
    await edit(api)
    found = await api.wait_for(
        GROUPS, "a", lambda g: is_current(g) and is_true(g, "ConfigApplied"), within=30
    )
    print(f"\nConfigApplied {time.monotonic() - began:.1f} s after the edit")
    (pod,) = await api.list("pods")
    assert pod["metadata"]["annotations"][HASH] == found["status"]["configHash"]
    assert pod["metadata"]["annotations"][REFRESH] == "1"
    version = pod["metadata"]["resourceVersion"]
    await asyncio.sleep(6)
    (pod,) = await api.list("pods")
    assert pod["metadata"]["resourceVersion"] == version


async def test_a_pod_that_does_not_is_patched_three_times_and_told_of(
    cluster: Cluster, api: Api, stubs: StubPods
) -> None:
    stubs.refreshes = False
    times = []
    await edit(api)
    for number in ("1", "2", "3"):
        await api.wait_until("pods", was_patched(number), within=20)
        times.append(time.monotonic())
    first, second, third = times
    print(f"\npatches after 0, {second - first:.1f} and {third - first:.1f} s")
    assert 4 < second - first < 8
    assert 14 < third - first < 19
    found = await api.get(GROUPS, "a")
    assert is_current(found)
    assert not is_true(found, "ConfigApplied")
    (pod,) = await api.list("pods")
    audit = cluster.audit_log()
    before = await audit.now(api)
    await asyncio.sleep(6)
    entries = [e for e in await audit.since(before, api) if e.namespace == api.namespace]
    assert [str(e) for e in entries if e.is_write and e.resource != "leases"] == []
    # At last, as a kubelet refreshes volumes by itself.
    (standing,) = stubs.pods("a")
    await standing.refresh()
    await api.wait_for(GROUPS, "a", lambda g: is_true(g, "ConfigApplied"), within=15)
    (after,) = await api.list("pods")
    assert after["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]
