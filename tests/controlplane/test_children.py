"""What the operator makes of a group, on a real API server."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.controlplane.api import ApiError
from tests.controlplane.children import apply, apply_all, children_of, make_group
from tests.controlplane.hand_edits import UNMERGEABLE
from tests.unit.operator.groups import SETTINGS, SPECS, group_of
from tests.unit.operator.recorded import PREVIOUS, read

from mcpgroup_operator import names
from mcpgroup_operator.lacking import lacks
from mcpgroup_operator.ownership import Ours, ownership
from mcpgroup_operator.repairs import repairs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster

EVERY_GROUP = pytest.mark.parametrize("name", SPECS)


@EVERY_GROUP
async def test_children_are_accepted_without_a_warning(
    cluster: Cluster, api: Api, namespace: str, name: str
) -> None:
    group = await make_group(api, name, SPECS[name])
    for child in children_of(group):
        done = await cluster.kubectl(
            "apply",
            "--server-side",
            f"--field-manager={names.FIELD_MANAGER}",
            "--validate=strict",
            "--filename=-",
            namespace=namespace,
            stdin=json.dumps(child.manifest),
        )
        assert done.err == "", child.kind.name


TERM = {"key": "zone", "operator": "In", "values": ["a", "b"]}
POD_TERM = {
    "topologyKey": "zone",
    "labelSelector": {"matchExpressions": [TERM]},
    "namespaces": ["other"],
    "matchLabelKeys": ["pod-template-hash"],
}
UNUSUAL: dict[str, dict[str, Any]] = {
    "affinities": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [TERM]}]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": {"matchExpressions": [TERM]}}
                ],
            },
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [POD_TERM]},
        }
    },
    "tolerations": {
        "tolerations": [
            {"operator": "Exists"},
            {"key": "a", "effect": "NoSchedule", "value": ""},
            {"key": "b", "operator": "Equal", "value": "c"},
            {"key": "d", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
        ]
    },
    "amounts": {
        "resources": {
            "requests": {"cpu": 2, "memory": "1.5Gi", "ephemeral-storage": "1e9"},
            "limits": {"cpu": "2000m", "memory": "2048Mi", "ephemeral-storage": "5G"},
        }
    },
    "fractions": {"resources": {"requests": {"cpu": "0.1"}, "limits": {"memory": "0.5Gi"}}},
    "empty texts": {
        "env": [{"name": "A", "value": ""}],
        "podLabels": {"a": ""},
        "podAnnotations": {"a": ""},
        "nodeSelector": {"a": ""},
    },
    "expansions": {"env": [{"name": "A", "value": "$(POD_NAME) $$(B) ${C}\n\ttab"}]},
}


@pytest.mark.parametrize("what", UNUSUAL)
async def test_nothing_is_lacking_of_what_is_unusual(api: Api, what: str) -> None:
    spec = {**SPECS["smallest"], "gateway": UNUSUAL[what]}
    children = children_of(await make_group(api, "unusual", spec))
    for child in children:
        assert lacks(child.manifest, await apply(api, child)) == []


@EVERY_GROUP
async def test_nothing_is_lacking_of_what_was_applied(api: Api, name: str) -> None:
    children = children_of(await make_group(api, name, SPECS[name]))
    live = await apply_all(api, children)
    for child in children:
        there = live[child.kind.name, child.name]
        assert lacks(child.manifest, there) == []
        assert repairs(child.manifest, there) == []
        assert ownership(there, name, SETTINGS.operator_mark) == Ours(there["metadata"]["uid"])


@EVERY_GROUP
async def test_applying_again_changes_nothing(api: Api, name: str) -> None:
    children = children_of(await make_group(api, name, SPECS[name]))
    live = await apply_all(api, children)
    again = await apply_all(api, children)
    # Controllers write the status of some meanwhile: their version may be another.
    counted = {"Deployment", "NetworkPolicy", "PodDisruptionBudget"}
    for (kind, child), there in again.items():
        field = "generation" if kind in counted else "resourceVersion"
        assert there["metadata"][field] == live[kind, child]["metadata"][field], kind


@EVERY_GROUP
async def test_pods_are_admitted_where_the_restricted_level_is_enforced(
    api: Api, name: str
) -> None:
    group = await make_group(api, name, SPECS[name])
    await apply_all(api, children_of(group))
    selector = names.selector_text(name)
    await api.wait_until(
        "pods", lambda pods: len(pods) == group.spec.replicas, labels=selector, within=30
    )


async def test_nothing_is_left_of_an_earlier_spec(cluster: Cluster, api: Api) -> None:
    async def applied(spec: dict[str, Any], uid: str) -> dict[tuple[str, str], Any]:
        group = group_of(spec, namespace=str(api.namespace), uid=uid)
        live = await apply_all(api, children_of(group))
        return {key: without_what_is_allotted(there) for key, there in live.items()}

    uid = (await make_group(api, "search", SPECS["everything"])).metadata.uid or ""
    everything = await applied(SPECS["everything"], uid)
    smallest = await applied(SPECS["smallest"], uid)
    assert everything["Service", "search"]["spec"]["sessionAffinityConfig"]
    for plural in ("deployments", "services", "poddisruptionbudgets", "networkpolicies"):
        await api.delete(plural, "search", propagation="Foreground")
        await api.wait_gone(plural, "search")
    assert await applied(SPECS["smallest"], uid) == smallest
    await api.delete("services", "search")
    await api.delete("deployments", "search")
    await api.wait_gone("deployments", "search")
    assert (await applied(SPECS["everything"], uid)) == everything


def without_what_is_allotted(live: dict[str, Any]) -> dict[str, Any]:
    """An object without what no two of the same manifest have in common."""
    metadata = {name: live["metadata"][name] for name in ("labels", "annotations")}
    metadata["annotations"].pop("deployment.kubernetes.io/revision", None)
    rest = {name: part for name, part in live.items() if name not in ("metadata", "status")}
    if live["kind"] == "Service":
        spec = rest["spec"]
        for name in ("clusterIP", "clusterIPs"):
            spec.pop(name)
        for port in spec["ports"]:
            port.pop("nodePort", None)
    return {**rest, "metadata": metadata}


async def test_a_service_can_become_any_other(api: Api) -> None:
    services: dict[str, dict[str, Any]] = {
        "plain": {},
        "NodePort": {"type": "NodePort", "sessionAffinity": "ClientIP"},
        "LoadBalancer": {"type": "LoadBalancer", "annotations": {"example.com/a": "b"}},
        "another port": {"type": "LoadBalancer", "port": 8080},
    }
    uid = (await make_group(api, "search", SPECS["smallest"])).metadata.uid or ""

    async def become(name: str) -> dict[str, Any]:
        spec = {**SPECS["smallest"], "service": services[name]}
        group = group_of(spec, namespace=str(api.namespace), uid=uid)
        (child,) = [c for c in children_of(group) if (c.kind.name, c.name) == ("Service", "search")]
        live = await apply(api, child)
        assert lacks(child.manifest, live) == []
        return without_what_is_allotted(live)

    fresh = {}
    for name in services:
        fresh[name] = await become(name)
        await api.delete("services", "search")
    for before, after in itertools.permutations(services, 2):
        await become(before)
        assert await become(after) == fresh[after], f"{before} -> {after}"


@pytest.mark.parametrize("path", sorted(PREVIOUS.glob("*.yaml")), ids=lambda path: path.stem)
async def test_what_an_earlier_version_made_is_taken_over_without_a_new_pod(
    api: Api, path: Path
) -> None:
    name = path.stem.rpartition("-")[2]
    group = await make_group(api, name, SPECS[name])
    (earlier,) = [m for m in read(path) if m["kind"] == "Deployment"]
    earlier["metadata"]["namespace"] = api.namespace
    earlier["metadata"]["ownerReferences"][0]["uid"] = group.metadata.uid
    before = await api.apply("deployments", earlier, manager=names.FIELD_MANAGER, force=True)
    (now,) = [child for child in children_of(group) if child.kind.name == "Deployment"]
    after = await apply(api, now)
    assert after["spec"] == before["spec"]


async def test_what_others_add_stays_and_is_not_lacking(api: Api) -> None:
    children = children_of(await make_group(api, "search", SPECS["everything"]))
    await apply_all(api, children)
    for child in children:
        added = {"labels": {"example.com/of": "others"}, "annotations": {"example.com/of": "o"}}
        await api.patch(child.kind.plural, child.name, {"metadata": added}, fieldManager="others")
    pod = {
        "containers": [
            {"name": "sidecar", "image": "sidecar:1"},
            {
                "name": "gateway",
                "env": [{"name": "INJECTED", "value": "1"}],
                "volumeMounts": [{"name": "injected", "mountPath": "/injected"}],
            },
        ],
        "volumes": [{"name": "injected", "emptyDir": {}}],
        "initContainers": [{"name": "before", "image": "before:1"}],
    }
    restarted = {"kubectl.kubernetes.io/restartedAt": "2026-11-30T12:00:00Z"}
    template = {"metadata": {"annotations": restarted}, "spec": pod}
    body = {"spec": {"template": template}}
    await api.patch("deployments", "search", body, kind="strategic", fieldManager="others")
    for child in children:
        before = await api.get(child.kind.plural, child.name)
        assert lacks(child.manifest, before) == []
        after = await apply(api, child)
        assert after.get("spec") == before.get("spec")
        assert after["metadata"]["labels"] == before["metadata"]["labels"]


@pytest.mark.parametrize("what", UNMERGEABLE)
async def test_an_edit_by_hand_that_cannot_be_merged_is_mended(api: Api, what: str) -> None:
    edit = UNMERGEABLE[what]
    children = children_of(await make_group(api, "search", {**SPECS["smallest"], **edit.spec}))
    await apply_all(api, children)
    child = next(c for c in children if (c.kind.plural, c.name) == (edit.plural, "search"))
    live = await api.get(edit.plural, "search")
    edited = await edit.make(api, "search")
    assert lacks(child.manifest, edited) != []
    with pytest.raises(ApiError) as refused:
        await apply(api, child)
    assert refused.value.code == 422

    operations = repairs(child.manifest, await api.get(edit.plural, "search"))
    manager = names.FIELD_MANAGER
    await api.patch(edit.plural, "search", operations, kind="json", fieldManager=manager)
    mended = await apply(api, child)

    assert lacks(child.manifest, mended) == []
    assert repairs(child.manifest, mended) == []
    assert mended["spec"] == live["spec"]
