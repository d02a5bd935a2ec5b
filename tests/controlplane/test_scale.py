"""Two hundred groups: what they cost, that nothing is written while nothing happens, that edits are
kept up with."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from tests.controlplane.crowd import (
    GROUPS,
    Figures,
    create,
    edit,
    is_settled,
    name_of,
    settled,
)
from tests.controlplane.deploying import Deployments
from tests.controlplane.operating import Operator
from tests.controlplane.pods import StubPods

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.controlplane.api import Api
    from tests.controlplane.audit import Entry
    from tests.controlplane.cluster import Cluster
    from tests.controlplane.private import PrivatePlane

COUNT = 200
POLLS = 120
RESTART_SECONDS = 12
NAMESPACE = "default"


def operator_of(cluster: Cluster, stubs: StubPods, *flags: str, poll: float = 5.0) -> Operator:
    return Operator(
        cluster,
        NAMESPACE,
        pod_admin_port=stubs.admin_port,
        poll_seconds=poll,
        flags=flags,
    )


def writes(entries: Sequence[Entry]) -> list[str]:
    return [str(e) for e in entries if e.is_write and e.resource != "leases"]


@pytest.mark.timeout(480)
async def test_two_hundred_groups(private: PrivatePlane) -> None:
    _, cluster = await private.start(controllers=False)
    async with (
        cluster.api(NAMESPACE) as api,
        Deployments(cluster, NAMESPACE),
        StubPods(cluster, NAMESPACE) as stubs,
    ):
        empty = await appear(cluster, api, stubs)
        await rest(cluster, api, stubs)
        async with operator_of(cluster, stubs) as operator:
            await restart(api, operator, empty)
            await one_edit(cluster, api, operator)
            await many_edits(api, operator)


async def appear(cluster: Cluster, api: Api, stubs: StubPods) -> Figures:
    """All at once, for an operator that knew of none; what it took before."""
    async with operator_of(cluster, stubs) as operator:
        await operator.metric_reaches("leader", 1)
        empty = await Figures.of(operator)
        began = time.monotonic()
        await create(api, COUNT)
        made = time.monotonic() - began
        await settled(api, operator, COUNT, within=240)
        took = time.monotonic() - began
        after = await Figures.of(operator)
        print(
            f"\ncreation: {COUNT} groups applied in {made:.1f} s, settled after {took:.1f} s,"
            f" {(after.requests - empty.requests) / COUNT:.1f} requests and"
            f" {(after.megabytes - empty.megabytes) / COUNT:.3f} MB a group,"
            f" {after.processor_seconds:.1f} s of a core"
        )
        await running(api, stubs)
        await settled(api, operator, COUNT, within=60)
        assert await operator.terminate() == 0
    return empty


async def running(api: Api, stubs: StubPods) -> None:
    """Every group has its pod, and its status knows."""
    async with asyncio.timeout(180):
        while len(stubs.pods()) < COUNT:  # noqa: ASYNC110 - nobody else's business
            await asyncio.sleep(0.1)
        while not await all_healthy(api):  # noqa: ASYNC110
            await asyncio.sleep(0.3)


async def all_healthy(api: Api) -> bool:
    return all(g["status"]["state"] == "Healthy" for g in await api.list(GROUPS))


async def rest(cluster: Cluster, api: Api, stubs: StubPods) -> None:
    """Nothing happens; pods are asked again and again, and everything is listed anew."""
    audit = cluster.audit_log()
    async with operator_of(cluster, stubs, "--resync-seconds=15", poll=0.1) as operator:
        await settled(api, operator, COUNT, within=60)
        before = await audit.now(api)
        asked = {stub.address: stub.asked for stub in stubs.stubs()}
        lists = await operator.metric("list_operations_total")
        reconciles = await operator.metric("reconcile_operations_total")
        began = time.monotonic()
        async with asyncio.timeout(180):
            while min(s.asked - asked[s.address] for s in stubs.stubs()) < POLLS:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        await operator.metric_reaches("list_operations_total", lists + 8)
        await operator.metric_reaches("reconcile_operations_total", reconciles + COUNT)
        entries = await audit.since(before, api, operator.user)
        print(
            f"rest: {POLLS} polls of {COUNT} pods in {time.monotonic() - began:.1f} s,"
            f" {sum(e.verb == 'list' for e in entries)} lists, writes: {writes(entries)}"
        )
        assert len(asked) == COUNT
        assert sum(e.resource == "leases" and e.is_write for e in entries) >= 1
        assert writes(entries) == []
        assert await operator.terminate() == 0


async def restart(api: Api, operator: Operator, empty: Figures) -> None:
    """`operator` has just been started. The best of three starts counts: other tests use the
    machine, too."""
    took = operator.ready_after + await settled(api, operator, COUNT, within=60)
    for _ in range(2):
        if took > RESTART_SECONDS:
            await operator.terminate()
            await operator.start()
            took = operator.ready_after + await settled(api, operator, COUNT, within=60)
    figures = await Figures.of(operator)
    requests = (figures.requests - empty.requests) / COUNT
    growth = (figures.megabytes - empty.megabytes) / COUNT
    print(
        f"restart: settled after {took:.1f} s, {requests:.2f} requests and {growth:.3f} MB a group"
        f" ({empty.megabytes:.0f} MB without), {figures.processor_seconds:.1f} s of a core"
    )
    assert took <= RESTART_SECONDS
    assert requests <= 6
    assert growth <= 0.25


async def one_edit(cluster: Cluster, api: Api, operator: Operator) -> None:
    """Each changed child, each pod and the status are written as often as that takes."""
    audit = cluster.audit_log()
    before = await audit.now(api)
    limits = {"circuitBreaker": {"failureThreshold": 1000}}
    await api.patch(GROUPS, name_of(7), {"spec": limits})
    await api.wait_for(
        GROUPS,
        name_of(7),
        lambda g: (
            g["status"]["observedGeneration"] == g["metadata"]["generation"]
            and any(
                c["type"] == "Ready" and c["status"] == "True" for c in g["status"]["conditions"]
            )
        ),
        within=20,
    )
    # A last status, and what is repeated for a file that does not arrive, would come by then.
    await asyncio.sleep(6)
    found = writes(await audit.since(before, api, operator.user))
    print(f"one edit: {found}")
    kinds = [entry.split()[1] for entry in found]
    assert kinds.count("configmaps") == 1
    assert kinds.count("pods/status") == 1
    assert 1 <= kinds.count("mcpservergroups/status") <= 2
    # Beside them Events of what changed in the status, once each.
    assert set(kinds) - {"events"} == {"configmaps", "pods/status", "mcpservergroups/status"}
    assert kinds.count("events") <= 2 * kinds.count("mcpservergroups/status")


async def many_edits(api: Api, operator: Operator) -> None:
    """Fifty a second for ten seconds."""
    reconciles = await operator.metric("reconcile_operations_total")
    began = time.monotonic()
    changed = await edit(api, COUNT, rate=50, seconds=10)
    edited = time.monotonic() - began
    async with asyncio.timeout(120):
        while not await is_settled(api, COUNT):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    took = time.monotonic() - began - edited
    reconciles = await operator.metric("reconcile_operations_total") - reconciles
    print(
        f"edits: 500 of {len(changed)} groups in {edited:.1f} s, {reconciles:.0f} reconciles,"
        f" settled {took:.1f} s later"
    )
    groups = {g["metadata"]["name"]: g for g in await api.list(GROUPS)}
    files = {c["metadata"]["name"]: c["data"] for c in await api.list("configmaps")}
    for name in changed:
        threshold = groups[name]["spec"]["circuitBreaker"]["failureThreshold"]
        # 10 is the default, and no file has defaults.
        assert threshold == 10 or f"failureThreshold: {threshold}\n" in files[name]["group.yaml"]
