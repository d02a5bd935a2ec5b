"""Groups on a real API server, and what is made of them, without an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.unit.operator.groups import SETTINGS, TOKEN

from mcpgroup_api import McpServerGroup
from mcpgroup_operator import names
from mcpgroup_operator.children import desired
from mcpgroup_operator.kinds import POD_MONITOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.controlplane.api import Api

    from mcpgroup_operator.children import Desired

RESTRICTED = {
    f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")
}


async def make_group(api: Api, name: str, spec: dict[str, Any]) -> McpServerGroup:
    """A new group in the client's namespace, in which the restricted level holds from now on and
    the service account `of-the-team` is there."""
    body = {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "metadata": {"name": name},
        "spec": spec,
    }
    assert api.namespace is not None
    namespace = {"metadata": {"labels": RESTRICTED}}
    await api.patch("namespaces", api.namespace, namespace)
    if await api.find("serviceaccounts", "of-the-team") is None:
        await api.create("serviceaccounts", {"metadata": {"name": "of-the-team"}})
    created = await api.create("mcpservergroups", body)
    return McpServerGroup.model_validate(created)


def children_of(group: McpServerGroup) -> list[Desired]:
    """All but the kind that is not Kubernetes' own."""
    children = desired(group, SETTINGS, config_map=None, keys=None, new_token=lambda: TOKEN).desired
    return [child for child in children if child.kind is not POD_MONITOR]


async def apply(api: Api, child: Desired) -> dict[str, Any]:
    """As the operator does; the live object."""
    return await api.apply(
        child.kind.plural, child.manifest, manager=names.FIELD_MANAGER, force=True
    )


async def apply_all(api: Api, children: Sequence[Desired]) -> dict[tuple[str, str], Any]:
    """The live objects by kind and name."""
    return {(child.kind.name, child.name): await apply(api, child) for child in children}
