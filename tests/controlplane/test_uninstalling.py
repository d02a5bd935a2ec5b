"""What goes away goes without an operator, in whatever order, and nothing is stuck."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import yaml
from tests.controlplane.groups import NAME, children, group, places, says
from tests.controlplane.manifests import install_kinds
from tests.controlplane.operating import Operator

if TYPE_CHECKING:
    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster
    from tests.controlplane.private import PrivatePlane

GROUPS = "mcpservergroups"
CRD = "mcpservergroups.mcpgroup.dev"


async def nothing_is_left(api: Api, name: str = NAME, *, within: float = 60) -> None:
    async with asyncio.TaskGroup() as tasks:
        for place in places(name):
            tasks.create_task(api.wait_gone(*place, within=within))
        tasks.create_task(api.wait_until("pods", lambda pods: not pods, within=within))


async def test_a_group_is_deleted_while_no_operator_runs(api: Api, operator: Operator) -> None:
    await api.create(GROUPS, group(networkPolicy={"enabled": True}))
    await children(api)
    await api.wait_for("networkpolicies", NAME, lambda _: True)
    found = await api.get(GROUPS, NAME)
    assert "finalizers" not in found["metadata"]
    await operator.kill()
    await api.delete(GROUPS, NAME, propagation="Foreground")
    await api.wait_gone(GROUPS, NAME, within=60)
    await nothing_is_left(api)
    assert await api.list("networkpolicies") == []


async def test_a_deleted_namespace_goes_with_all_its_groups(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    audit = cluster.audit_log()
    doomed = f"test-{uuid.uuid4().hex[:10]}"
    await api.create("namespaces", {"metadata": {"name": doomed}})
    async with (
        Operator(cluster, namespace, watch_namespaces=(namespace, doomed)) as operator,
        cluster.api(doomed) as there,
    ):
        for name in ("a", "b", "c"):
            await there.create(GROUPS, group(name))
            await there.wait_for(GROUPS, name, says("Accepted", "True"), within=20)
        position = await audit.now(api)
        await api.delete("namespaces", doomed)
        await api.wait_gone("namespaces", doomed, within=60)
        entries = await audit.since(position, api, operator.user)
        refused = [e for e in entries if e.is_write and e.namespace == doomed and e.code >= 400]
        print(f"{len(refused)} writes were refused while the namespace ended")
        assert len(refused) < 20
        # The other namespace is served as before.
        await api.create(GROUPS, group())
        await children(api)
        await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=20)


async def test_the_kind_may_go_first_and_come_back(private: PrivatePlane) -> None:
    _, cluster = await private.start()
    async with cluster.api("team") as api:
        await api.create("namespaces", {"metadata": {"name": "team"}})
        async with Operator(cluster, "team") as operator:
            await api.create(GROUPS, group())
            await children(api)
            await api.delete("customresourcedefinitions", CRD)
            await api.wait_gone("customresourcedefinitions", CRD, within=60)
            await nothing_is_left(api)
            assert operator.running.exit_code is None
            await install_kinds(api)
            await api.create(GROUPS, group("again"))
            await children(api, "again", within=60)
            # Now the operator goes first.
            assert await operator.terminate() == 0
        await api.delete("customresourcedefinitions", CRD)
        await api.wait_gone("customresourcedefinitions", CRD, within=60)
        await nothing_is_left(api, "again")
        await api.delete("namespaces", "team")
        await api.wait_gone("namespaces", "team", within=60)


async def test_everything_may_go_at_once(cluster: Cluster, api: Api, namespace: str) -> None:
    """`kubectl delete -f` of all manifests, the operator's own rights among them."""
    async with Operator(cluster, namespace) as operator:
        await api.create(GROUPS, group())
        await children(api)
        manifest = yaml.safe_dump(group())
        role = f"{namespace}.mcpgroup"
        await api.delete("rolebindings", role)
        await api.delete("roles", role)
        await api.delete("serviceaccounts", "mcpgroup-operator")
        await cluster.kubectl(
            "delete", "--wait=true", "-f", "-", namespace=namespace, stdin=manifest
        )
        await api.wait_gone(GROUPS, NAME)
        await nothing_is_left(api)
        await operator.kill()
    await api.delete("namespaces", namespace)
    await api.wait_gone("namespaces", namespace, within=60)
