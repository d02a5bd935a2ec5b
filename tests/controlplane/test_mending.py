"""Whatever somebody does to a child by hand, an operator puts back what its group asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.controlplane.children import children_of, make_group
from tests.controlplane.hand_edits import MERGEABLE, UNMERGEABLE
from tests.controlplane.operating import Operator
from tests.unit.operator.groups import SPECS

from mcpgroup_operator.kinds import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster

SPEC = {**SPECS["smallest"], "networkPolicy": {"enabled": True}, "service": {"type": "NodePort"}}


def essence(live: dict[str, Any]) -> dict[str, Any]:
    """All that was asked for, and nothing of what controllers write."""
    metadata = live["metadata"]
    annotations = dict(metadata["annotations"])
    annotations.pop("deployment.kubernetes.io/revision", None)
    return {
        "labels": metadata["labels"],
        "annotations": annotations,
        "owners": metadata.get("ownerReferences"),
        "content": [live.get(name) for name in ("spec", "data", "automountServiceAccountToken")],
    }


def has_again(before: dict[str, Any]) -> Callable[[dict[str, Any]], bool]:
    return lambda live: essence(live) == before


def is_not(gone: dict[str, Any]) -> Callable[[dict[str, Any]], bool]:
    return lambda live: live["metadata"]["uid"] != gone["metadata"]["uid"]


async def test_every_edit_is_put_back(cluster: Cluster, api: Api, namespace: str) -> None:
    async with Operator(cluster, namespace):
        group = await make_group(api, "search", SPEC)
        for child in children_of(group):
            await api.wait_for(child.kind.plural, child.name, lambda _: True, within=30)
        for what, edit in {**MERGEABLE, **UNMERGEABLE}.items():
            before = essence(await api.get(edit.plural, "search"))
            assert essence(await edit.make(api, "search")) != before, what
            await api.wait_for(edit.plural, "search", has_again(before), within=20)


async def test_every_child_that_is_deleted_comes_back(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    async with Operator(cluster, namespace):
        children = children_of(await make_group(api, "search", SPEC))
        for child in children:
            await api.wait_for(child.kind.plural, child.name, lambda _: True, within=30)
        for child in children:
            if child.kind is SECRET:
                continue  # nothing tells of it; the next reconcile sees it
            gone = await api.get(child.kind.plural, child.name)
            await api.delete(child.kind.plural, child.name)
            await api.wait_for(child.kind.plural, child.name, is_not(gone), within=20)
