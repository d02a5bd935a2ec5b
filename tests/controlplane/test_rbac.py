"""The roles of the operator and of users, on a real API server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.controlplane.api import ApiError
from tests.controlplane.children import children_of, make_group
from tests.unit.operator.groups import SPECS

from mcpgroup_operator import names
from mcpgroup_operator.rbac import operator_roles, user_roles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.controlplane.access import Access
    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster


@asynccontextmanager
async def applied(api: Api, manifests: list[dict[str, Any]]) -> AsyncIterator[None]:
    try:
        for manifest in manifests:
            await api.apply(plural(manifest), manifest, manifest["metadata"].get("namespace"))
        yield
    finally:
        for manifest in manifests:
            if await api.find(plural(manifest), manifest["metadata"]["name"]) is not None:
                await api.delete(plural(manifest), manifest["metadata"]["name"])


def plural(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind'].lower()}s"


async def refused(call: Any) -> str:
    with pytest.raises(ApiError) as error:
        await call
    assert error.value.code == 403
    return error.value.message


@pytest.fixture
async def operator(cluster: Cluster, api: Api, namespace: str) -> AsyncIterator[Access]:
    """The account of an operator that watches the test's namespace alone."""
    await api.create("serviceaccounts", {"metadata": {"name": "operator"}})
    async with applied(api, operator_roles("mcpgroup", namespace, "operator", [namespace])):
        yield await cluster.service_account("operator", namespace)


async def test_an_operator_may_make_every_child_and_own_it(
    cluster: Cluster, api: Api, namespace: str, operator: Access
) -> None:
    group = await make_group(api, "everything", SPECS["everything"])
    async with cluster.api(namespace, operator) as own:
        for child in children_of(group):
            await own.apply(
                child.kind.plural, child.manifest, manager=names.FIELD_MANAGER, force=True
            )
            assert await own.get(child.kind.plural, child.name)
        await own.delete("networkpolicies", "everything")


async def test_an_operator_may_not_read_what_it_has_no_business_with(
    cluster: Cluster, namespace: str, operator: Access
) -> None:
    async with cluster.api(namespace, operator) as own:
        assert 'cannot list resource "secrets"' in await refused(own.list("secrets"))
        await refused(own.list("configmaps", "default"))
        await refused(own.delete("deployments", "any"))
        await refused(own.patch("pods", "any", {"metadata": {"labels": {"a": "b"}}}))
        await refused(own.patch("mcpservergroups", "any", {"spec": {}}))


async def test_an_operator_holds_its_own_lease_and_no_other(
    cluster: Cluster, namespace: str, operator: Access
) -> None:
    async with cluster.api(namespace, operator) as own:
        lease = await own.create("leases", {"metadata": {"name": "mcpgroup"}})
        await own.replace("leases", lease)
        await own.create("leases", {"metadata": {"name": "other"}})
        await refused(own.get("leases", "other"))
        await refused(own.list("leases"))


async def test_who_may_edit_or_view_a_namespace_may_do_so_with_groups(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    bindings = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": namespace},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role,
            },
            "subjects": [
                {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "User",
                    "name": f"{role}-{namespace}",
                }
            ],
        }
        for role in ("edit", "view")
    ]
    body = {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "metadata": {"name": "search"},
        "spec": SPECS["smallest"],
    }
    async with (
        applied(api, user_roles("mcpgroup", namespace)),
        applied(api, bindings),
        cluster.api(namespace, cluster.user(f"edit-{namespace}")) as editor,
        cluster.api(namespace, cluster.user(f"view-{namespace}")) as viewer,
    ):
        await allowed_at_last(editor, body)
        await editor.patch(
            "mcpservergroups", "search", {"spec": {"replicas": 3}}, subresource="scale"
        )
        await refused(editor.patch("mcpservergroups", "search", {}, subresource="status"))
        assert await viewer.get("mcpservergroups", "search")
        await refused(viewer.delete("mcpservergroups", "search"))
        await editor.delete("mcpservergroups", "search")


async def allowed_at_last(editor: Api, body: dict[str, Any]) -> None:
    """A controller adds the rules to Kubernetes' own roles; nothing tells when it has."""
    async with asyncio.timeout(20):
        while True:
            try:
                await editor.create("mcpservergroups", body)
                return
            except ApiError as error:
                if error.code != 403:
                    raise
                await asyncio.sleep(0.05)
