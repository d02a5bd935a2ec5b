"""The harness of these tests does what the tests believe."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.controlplane.api import ApiError

if TYPE_CHECKING:
    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster


async def test_kubectl_talks_to_the_cluster(cluster: Cluster, namespace: str) -> None:
    await cluster.kubectl("create", "configmap", "made", "--from-literal=a=b", namespace=namespace)
    found = await cluster.kubectl("get", "configmap", "made", "-o", "json", namespace=namespace)
    assert json.loads(found.out)["data"] == {"a": "b"}


async def test_a_wait_ends_when_the_object_changes(api: Api) -> None:
    await api.create("configmaps", {"metadata": {"name": "a"}, "data": {"step": "1"}})
    await api.patch("configmaps", "a", {"data": {"step": "2"}})
    changed = await api.wait_for("configmaps", "a", lambda found: found["data"]["step"] == "2")
    await api.delete("configmaps", "a")
    await api.wait_gone("configmaps", "a")
    assert changed["metadata"]["name"] == "a"


async def test_a_wait_in_vain_shows_what_was_there(api: Api) -> None:
    await api.create("configmaps", {"metadata": {"name": "a", "labels": {"left": "alone"}}})
    with pytest.raises(AssertionError, match="left: alone"):
        await api.wait_for("configmaps", "a", lambda _: False, within=0.2)


async def test_apply_refuses_unknown_fields_and_tells_conflicts(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    with pytest.raises(ApiError, match="unknown"):
        await api.apply("configmaps", {**body, "unknown": 1})
    await api.apply("configmaps", {**body, "data": {"owned": "1"}}, manager="one")
    with pytest.raises(ApiError) as refused:
        await api.apply("configmaps", {**body, "data": {"owned": "2"}}, manager="two")
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")


async def test_the_audit_log_tells_who_did_what(cluster: Cluster, api: Api, namespace: str) -> None:
    audit = cluster.audit_log()
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]}]
    user = await cluster.grant("writer", namespace, rules)
    access = await cluster.service_account("writer", namespace)
    before = await audit.now(api)
    async with cluster.api(namespace, access) as writer:
        await writer.create("configmaps", {"metadata": {"name": "a"}, "data": {"k": "v"}})
        await writer.find("configmaps", "b")
    created, read = await audit.since(before, api, user)
    assert str(created) == f"create configmaps {namespace}/a: 201"
    assert created.body["data"] == {"k": "v"}
    assert created.is_write
    assert str(read) == f"get configmaps {namespace}/b: 404"
    assert not read.is_write
    assert await audit.since(await audit.now(api), api, user) == []


async def test_secrets_never_reach_the_audit_log(cluster: Cluster, api: Api) -> None:
    audit = cluster.audit_log()
    before = await audit.now(api)
    await api.create("secrets", {"metadata": {"name": "a"}, "stringData": {"k": "v"}})
    entries = [e for e in await audit.since(before, api) if e.namespace == api.namespace]
    assert [(e.verb, e.resource, e.body) for e in entries] == [("create", "secrets", None)]


async def test_a_service_account_may_do_what_its_rules_say_and_no_more(
    cluster: Cluster, namespace: str
) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    await cluster.grant("reader", namespace, rules, wide=False)
    async with cluster.api(namespace, await cluster.service_account("reader", namespace)) as reader:
        await reader.list("configmaps")
        with pytest.raises(ApiError, match='cannot create resource "configmaps"'):
            await reader.create("configmaps", {"metadata": {"name": "a"}})
        with pytest.raises(ApiError, match='cannot list resource "configmaps"'):
            await reader.list("configmaps", "kube-system")


async def test_a_user_has_no_right_that_nobody_gave(cluster: Cluster, namespace: str) -> None:
    async with cluster.api(namespace, cluster.user("alice")) as alice:
        with pytest.raises(ApiError, match='User "alice" cannot list'):
            await alice.list("configmaps")
    denied = await cluster.kubectl(
        "get", "pods", access=cluster.user("alice"), namespace=namespace, check=False
    )
    assert denied.code == 1
    assert "alice" in denied.err


async def test_controllers_run(api: Api) -> None:
    await api.wait_for("serviceaccounts", "default", lambda _: True)
    labels = {"app": "a"}
    pod = {"containers": [{"name": "c", "image": "none"}]}
    await api.create(
        "deployments",
        {
            "metadata": {"name": "a"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    )
    await api.wait_until("pods", lambda pods: len(pods) == 2, labels="app=a")
    await api.delete("deployments", "a")
    await api.wait_until("pods", lambda pods: not pods, labels="app=a")
