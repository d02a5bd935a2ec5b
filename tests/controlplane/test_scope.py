"""Which groups an operator serves, and that it lets alone what it does not."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from tests.controlplane.groups import NAME, children, group, says
from tests.controlplane.operating import Operator

if TYPE_CHECKING:
    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster

GROUPS = "mcpservergroups"


async def test_only_groups_with_the_label_are_served_and_one_that_loses_it_is_left_as_it_is(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    async with Operator(cluster, namespace, selector="team=a") as operator:
        await api.create(GROUPS, group("without"))
        served = group()
        served["metadata"]["labels"] = {"team": "a"}
        await api.create(GROUPS, served)
        await children(api)
        await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=20)
        assert await api.find("deployments", "without") is None
        await api.patch(GROUPS, "without", {"metadata": {"labels": {"team": "a"}}})
        await children(api, "without")
        await api.wait_for(GROUPS, "without", says("Accepted", "True"), within=20)

        await api.patch(GROUPS, NAME, {"metadata": {"labels": {"team": "b"}}})
        await api.patch(GROUPS, NAME, {"spec": {"replicas": 7}})
        await api.patch(GROUPS, "without", {"spec": {"replicas": 7}})
        await api.wait_for("deployments", "without", lambda d: d["spec"]["replicas"] == 7)
        kept = await children(api)
        assert kept["deployments", NAME]["spec"]["replicas"] == 2
        samples = (await operator.metrics())["mcpgroup_operator_group_desired_replicas"]
        assert {dict(labels)["group"] for labels in samples} == {"without"}
        # Back again: it goes on where it stopped.
        await api.patch(GROUPS, NAME, {"metadata": {"labels": {"team": "a"}}})
        await api.wait_for("deployments", NAME, lambda d: d["spec"]["replicas"] == 7)
        after = await api.get("deployments", NAME)
        assert after["metadata"]["uid"] == kept["deployments", NAME]["metadata"]["uid"]


async def test_groups_of_other_namespaces_are_not_served(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    other = f"test-{uuid.uuid4().hex[:10]}"
    await api.create("namespaces", {"metadata": {"name": other}})
    try:
        async with Operator(cluster, namespace), cluster.api(other) as there:
            await there.create(GROUPS, group())
            await api.create(GROUPS, group())
            await children(api)
            await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=20)
            assert "status" not in await there.get(GROUPS, NAME)
            assert await there.find("deployments", NAME) is None
    finally:
        await api.delete("namespaces", other)


async def test_an_operator_of_the_whole_cluster_serves_namespaces_that_come_later(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    other = f"test-{uuid.uuid4().hex[:10]}"
    served = group()
    served["metadata"]["labels"] = {"test": namespace}
    async with Operator(
        cluster, namespace, watch_namespaces=(), selector=f"test={namespace}"
    ) as operator:
        await api.create("namespaces", {"metadata": {"name": other}})
        try:
            async with cluster.api(other) as there:
                await there.create(GROUPS, served)
                await children(there)
                await there.wait_for(GROUPS, NAME, says("Accepted", "True"), within=20)
                await there.delete(GROUPS, NAME)
                await there.wait_gone("deployments", NAME, within=60)
                samples = (await operator.metrics()).get(
                    "mcpgroup_operator_group_desired_replicas", {}
                )
                assert not samples
        finally:
            await api.delete("namespaces", other)
    entries = await cluster.audit_log().since(0, api, operator.user)
    assert [str(e) for e in entries if e.code == 403] == []
