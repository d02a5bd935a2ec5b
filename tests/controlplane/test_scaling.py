"""Who changes the number of replicas keeps it, and what others add to children stays."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import yaml
from tests.controlplane.groups import NAME, children, group, says
from tests.controlplane.operating import Operator
from tests.controlplane.pods import StubPods

if TYPE_CHECKING:
    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster

GROUPS = "mcpservergroups"


async def reconcile(operator: Operator, api: Api, times: int) -> None:
    """So often the operator looks at the group, each time because something of it changed."""
    for number in range(times):
        before = await operator.metric("reconcile_operations_total")
        annotations = {"look": str(number)}
        await api.patch("services", NAME, {"metadata": {"annotations": annotations}})
        await operator.metric_reaches("reconcile_operations_total", before + 1)


def replicas_are(count: int) -> Any:
    return lambda found: found["spec"]["replicas"] == count


async def test_a_scale_step_writes_only_the_deployment_and_the_status(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    audit = cluster.audit_log()
    async with (
        StubPods(cluster, namespace) as stubs,
        Operator(cluster, namespace, pod_admin_port=stubs.admin_port) as operator,
    ):
        await api.create(GROUPS, group())
        await stubs.running(NAME, 2)
        await api.wait_for(GROUPS, NAME, says("Ready", "True"), within=30)
        config = await api.get("configmaps", NAME)
        position = await audit.now(api)
        await cluster.kubectl("scale", f"mcpsg/{NAME}", "--replicas=3", namespace=namespace)
        await stubs.running(NAME, 3)
        await api.wait_for(
            GROUPS,
            NAME,
            lambda found: (
                len(found["status"]["gateways"]) == 3
                and says("Ready", "True")(found)
                and found["status"]["replicas"] == 3
            ),
            within=30,
        )
        entries = await audit.since(position, api, operator.user)
        written = [(e.resource, e.subresource) for e in entries if e.is_write]
        written = [place for place in written if place[0] not in ("leases", "events")]
        assert written.count(("deployments", "")) == 1
        assert set(written) == {("deployments", ""), (GROUPS, "status")}
        scale = await api.request(
            "GET", f"/apis/mcpgroup.dev/v1alpha1/namespaces/{namespace}/{GROUPS}/{NAME}/scale"
        )
        assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 3)
        selected = await api.list("pods", labels=scale["status"]["selector"])
        assert len(selected) == 3
        same = await api.get("configmaps", NAME)
        assert same["metadata"]["resourceVersion"] == config["metadata"]["resourceVersion"]


async def test_a_manifest_applied_again_without_replicas_keeps_the_number(
    cluster: Cluster, api: Api, namespace: str, operator: Operator
) -> None:
    text = yaml.safe_dump(group())
    for how in ("--server-side=false", "--server-side=true"):
        name = how[2:].replace("=", "-")
        manifest = text.replace(f"name: {NAME}", f"name: {name}")
        await cluster.kubectl("apply", how, "-f", "-", namespace=namespace, stdin=manifest)
        await api.wait_for("deployments", name, replicas_are(2))
        await cluster.kubectl("scale", f"mcpsg/{name}", "--replicas=5", namespace=namespace)
        await api.wait_for("deployments", name, replicas_are(5))
        edited = manifest.replace("one.invalid", "two.invalid")
        await cluster.kubectl("apply", how, "-f", "-", namespace=namespace, stdin=edited)
        await api.wait_for(
            "configmaps", name, lambda found: "two.invalid" in found["data"]["group.yaml"]
        )
        await api.wait_for(GROUPS, name, says("Accepted", "True"))
        assert (await api.get(GROUPS, name))["spec"]["replicas"] == 5
        assert (await api.get("deployments", name))["spec"]["replicas"] == 5
    assert "warning" not in operator.log


async def test_an_autoscaler_of_the_group_has_its_way(
    cluster: Cluster, api: Api, namespace: str, operator: Operator
) -> None:
    audit = cluster.audit_log()
    await api.create(GROUPS, group(replicas=6))
    await children(api)
    position = await audit.now(api)
    target = {"apiVersion": "mcpgroup.dev/v1alpha1", "kind": "McpServerGroup", "name": NAME}
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 4, "metrics": [metric]}
    await api.create("horizontalpodautoscalers", {"metadata": {"name": NAME}, "spec": spec})
    # There are no metrics here; the bounds hold without.
    await api.wait_for(GROUPS, NAME, replicas_are(4), within=40)
    await api.wait_for("deployments", NAME, replicas_are(4))
    await reconcile(operator, api, 3)
    assert (await api.get(GROUPS, NAME))["spec"]["replicas"] == 4
    assert (await api.get("deployments", NAME))["spec"]["replicas"] == 4
    entries = await audit.since(position, api, operator.user)
    assert not [e for e in entries if e.is_write and e.resource == GROUPS and not e.subresource]
    assert len([e for e in entries if e.is_write and e.resource == "deployments"]) == 1


async def test_what_others_add_survives_ten_reconciles(
    cluster: Cluster, api: Api, namespace: str, operator: Operator
) -> None:
    audit = cluster.audit_log()
    await api.create(GROUPS, group())
    await children(api)
    await cluster.kubectl("rollout", "restart", f"deployment/{NAME}", namespace=namespace)
    sidecar = {"name": "sidecar", "image": "sidecar:1"}
    variable = [{"name": "gateway", "env": [{"name": "INJECTED", "value": "1"}]}]
    mark = {"labels": {"theirs": "1"}, "annotations": {"theirs": "1"}}
    pods = {"metadata": mark, "spec": {"containers": [sidecar, *variable]}}
    for plural in ("configmaps", "services", "serviceaccounts", "poddisruptionbudgets"):
        await api.patch(plural, NAME, {"metadata": mark})
    await api.patch("secrets", f"{NAME}-keys", {"metadata": mark})
    theirs = await api.patch(
        "deployments", NAME, {"metadata": mark, "spec": {"template": pods}}, kind="strategic"
    )
    position = await audit.now(api)
    await reconcile(operator, api, 10)
    entries = await audit.since(position, api, operator.user)
    written = [e.resource for e in entries if e.is_write]
    assert set(written) <= {"leases", GROUPS, "events"}  # of the rollout the status tells
    # Nor does a change of the group take it away.
    await api.patch(GROUPS, NAME, {"spec": {"gateway": {"image": "gateway:2"}}})
    after = await api.wait_for(
        "deployments",
        NAME,
        lambda d: "gateway:2" in [c["image"] for c in d["spec"]["template"]["spec"]["containers"]],
    )
    wanted = copy.deepcopy(theirs["spec"]["template"])
    for container in wanted["spec"]["containers"]:
        if container["name"] == "gateway":
            container["image"] = "gateway:2"
    assert after["spec"]["template"] == wanted
    restarted = after["spec"]["template"]["metadata"]["annotations"]
    assert "kubectl.kubernetes.io/restartedAt" in restarted
    for plural in ("configmaps", "services", "serviceaccounts", "poddisruptionbudgets"):
        found = (await api.get(plural, NAME))["metadata"]
        assert (found["labels"]["theirs"], found["annotations"]["theirs"]) == ("1", "1"), plural
