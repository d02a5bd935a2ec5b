"""The rights that ship suffice, each is needed, and one that is missing is named."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from tests.controlplane.groups import NAME, children, condition, group, member, says
from tests.controlplane.operating import ACCOUNT, Operator
from tests.controlplane.pods import StubPods

from mcpgroup_operator.rbac import lease_rules, operator_rules

if TYPE_CHECKING:
    from tests.controlplane.api import Api
    from tests.controlplane.audit import Entry
    from tests.controlplane.cluster import Cluster

GROUPS = "mcpservergroups"


def without(rules: list[dict[str, Any]], *taken: tuple[str, str]) -> list[dict[str, Any]]:
    """Rules without some pairs of verb and resource."""
    left = []
    for rule in rules:
        (resource,) = rule["resources"]
        verbs = [verb for verb in rule["verbs"] if (verb, resource) not in taken]
        if verbs:
            left.append({**rule, "verbs": verbs})
    return left


async def set_rules(api: Api, rules: list[dict[str, Any]]) -> None:
    """What the operator in this namespace may do from now on, beside its lease."""
    await api.patch("roles", f"{api.namespace}.mcpgroup", {"rules": rules})


NOT_USED_HERE = {
    # An admission plugin asks for it that is not on by default.
    ("update", "mcpservergroups/finalizers"),
    # No such kind in this cluster.
    *((verb, "podmonitors") for verb in ("get", "create", "patch", "delete")),
}


def pairs(rules: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Verb and resource."""
    return {(verb, rule["resources"][0]) for rule in rules for verb in rule["verbs"]}


def used(entries: list[Entry]) -> set[tuple[str, str]]:
    """As `pairs`. An apply of what was not there needs the verbs create and patch."""
    found = set()
    for entry in entries:
        resource = "/".join(filter(None, (entry.resource, entry.subresource)))
        found.add((entry.verb, resource))
        if (entry.verb, entry.code) == ("patch", 201):
            found.add(("create", resource))
    return {pair for pair in found if pair[1]}


async def test_what_ships_suffices_for_a_whole_life_and_nothing_of_it_is_too_much(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    async with (
        StubPods(cluster, namespace) as stubs,
        Operator(cluster, namespace, pod_admin_port=stubs.admin_port) as operator,
    ):
        spec: dict[str, Any] = {"networkPolicy": {"enabled": True}, "replicas": 1}
        await api.create(GROUPS, group(**spec))
        await api.wait_for("networkpolicies", NAME, lambda _: True)
        await api.wait_for(GROUPS, NAME, says("Ready", "True"), within=30)
        changed = {
            "networkPolicy": {"enabled": True, "egress": True},
            "service": {"port": 81},
            "members": [member("two")],
        }
        rotated = {"metadata": {"annotations": {"mcpgroup.dev/rotate-keys": "1"}}}
        await api.patch(GROUPS, NAME, {**rotated, "spec": changed})
        await api.wait_for(GROUPS, NAME, says("ConfigApplied", "True"), within=30)
        for plural in ("serviceaccounts", "poddisruptionbudgets", "networkpolicies"):
            await api.patch(plural, NAME, {"metadata": {"labels": {"app.kubernetes.io/name": "x"}}})
            await api.wait_for(
                plural, NAME, lambda c: c["metadata"]["labels"]["app.kubernetes.io/name"] != "x"
            )
        gone = {"networkPolicy": None, "gateway": {"serviceAccountName": "default"}}
        await api.patch(GROUPS, NAME, {"spec": gone})
        await api.wait_gone("networkpolicies", NAME)
        await api.wait_gone("serviceaccounts", NAME)
        await api.wait_until("events", lambda events: events)
        await api.delete(GROUPS, NAME)
        await api.wait_gone("deployments", NAME, within=60)
        assert await operator.terminate() == 0
        entries = await cluster.audit_log().since(0, api, operator.user)
    assert [str(e) for e in entries if e.code == 403] == []
    given = pairs([*operator_rules(), *lease_rules("mcpgroup")])
    assert given - used(entries) == NOT_USED_HERE


async def test_verbs_that_are_missing_are_named_until_they_are_granted(
    api: Api, operator: Operator
) -> None:
    await api.create(GROUPS, group("before"))
    await children(api, "before")
    taken = [("create", "configmaps"), ("patch", "deployments"), ("create", "secrets")]
    await set_rules(api, without(operator_rules(), *taken))
    await api.create(GROUPS, group())
    refused = await api.wait_for(GROUPS, NAME, says("Accepted", "False", "Forbidden"), within=20)
    message = condition(refused, "Accepted")["message"]
    for verb, resource in taken:
        assert f'cannot {verb} resource "{resource}"' in message
    # The other children are there, and the other group has all of its own.
    await api.wait_for("services", NAME, lambda _: True)
    await api.patch(GROUPS, "before", {"spec": {"members": [member("two")]}})
    await api.wait_for(
        "configmaps", "before", lambda found: "two.invalid" in found["data"]["group.yaml"]
    )
    await set_rules(api, operator_rules())
    await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=60)
    await children(api)


async def test_a_status_that_may_not_be_written_is_told_in_the_log(
    api: Api, operator: Operator
) -> None:
    await set_rules(api, without(operator_rules(), ("patch", "mcpservergroups/status")))
    await api.create(GROUPS, group())
    await operator.running.printed(r'cannot patch resource \\"mcpservergroups/status\\"')
    await children(api)
    await operator.metric_reaches("reconcile_errors_total", 1, reason="forbidden")
    await set_rules(api, operator_rules())
    await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=60)


async def test_a_kind_that_may_not_be_listed_is_told_by_the_probe_and_in_the_log(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    rules = without(operator_rules(), ("list", "pods"))
    await cluster.grant(ACCOUNT, namespace, [*rules, *lease_rules("mcpgroup")], wide=False)
    access = await cluster.service_account(ACCOUNT, namespace)
    await api.create(GROUPS, group())
    async with Operator(cluster, namespace, access=access, wait_ready=False) as operator:
        await operator.running.printed(r'cannot list resource \\"pods\\"')
        code, text = await operator.probe("readyz")
        assert (code, "pods" in text) == (503, True)
        assert (await operator.probe("livez"))[0] == 200
        # Who does not know all there is does nothing.
        entries = await cluster.audit_log().since(0, api, operator.user)
        assert not [e for e in entries if e.is_write and e.resource != "leases"]
        await api.patch("roles", ACCOUNT, {"rules": [*operator_rules(), *lease_rules("mcpgroup")]})
        await operator.ready(within=60)
        await children(api, within=60)
        await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=60)


async def test_of_several_namespaces_one_that_is_gone_holds_up_no_other(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    gone = f"gone-{uuid.uuid4().hex[:10]}"
    rules = [*operator_rules(), *lease_rules("mcpgroup")]
    await cluster.grant(ACCOUNT, namespace, rules, wide=False)
    access = await cluster.service_account(ACCOUNT, namespace)
    async with Operator(
        cluster,
        namespace,
        access=access,
        watch_namespaces=(gone, namespace),
        wait_ready=False,
    ) as operator:
        await api.create(GROUPS, group())
        await children(api, within=30)
        await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=20)
        code, text = await operator.probe("readyz")
        assert (code, gone in text, f"in {namespace}" in text) == (503, True, False)


async def test_with_roles_of_namespaces_nothing_is_asked_of_the_whole_cluster(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    other = f"test-{uuid.uuid4().hex[:10]}"
    await api.create("namespaces", {"metadata": {"name": other}})
    try:
        async with (
            Operator(cluster, namespace, watch_namespaces=(namespace, other)) as operator,
            cluster.api(other) as there,
        ):
            for where in (api, there):
                await where.create(GROUPS, group())
                await children(where)
                await where.wait_for(GROUPS, NAME, says("Accepted", "True"), within=20)
            entries = await cluster.audit_log().since(0, api, operator.user)
            asked = [e for e in entries if e.resource]
            assert {e.namespace for e in asked} == {namespace, other}
            assert [str(e) for e in entries if e.code == 403] == []
            roles = await api.list("clusterrolebindings")
            assert not [r for r in roles if namespace in r["metadata"]["name"]]
    finally:
        await api.delete("namespaces", other)


async def test_a_second_installation_leaves_alone_what_another_made(
    cluster: Cluster, api: Api, namespace: str, operator: Operator
) -> None:
    await api.create(GROUPS, group())
    await children(api)
    await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=20)
    rules = [*operator_rules(), *lease_rules("other")]
    user = await cluster.grant("other", namespace, rules, wide=False)
    access = await cluster.service_account("other", namespace)
    async with Operator(cluster, namespace, release="other", access=access) as second:
        await second.running.printed(f"{namespace}.mcpgroup")
        await api.patch(GROUPS, NAME, {"spec": {"members": [member("two")]}})
        await api.wait_for(
            "configmaps", NAME, lambda found: "two.invalid" in found["data"]["group.yaml"]
        )
        await second.metric_reaches("reconcile_operations_total", 2)
        events = await api.wait_until(
            "events",
            lambda found: any(e["reason"] == "ManagedByOther" for e in found.values()),
        )
        entries = await cluster.audit_log().since(0, api, user)
        written = {e.resource for e in entries if e.is_write}
        assert written <= {"leases", "events"}
        told = [e for e in events.values() if e["reason"] == "ManagedByOther"]
        assert len(told) == 1
        assert f"{namespace}.mcpgroup" in str(told[0])


async def test_an_installation_takes_over_what_the_mark_was_taken_off(
    cluster: Cluster, api: Api, namespace: str, operator: Operator
) -> None:
    """How groups change hands when a release is given another name."""
    await api.create(GROUPS, group())
    before = await children(api)
    pods = await api.wait_until("pods", lambda pods: len(pods) == 2)
    await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=20)
    assert await operator.terminate() == 0
    async with Operator(cluster, namespace, release="other"):
        kinds = "configmap,secret,service,serviceaccount,poddisruptionbudget,deployment"
        mark = ("-l", f"mcpgroup.dev/group={NAME}", "mcpgroup.dev/operator-")
        await cluster.kubectl("annotate", kinds, *mark, namespace=namespace)
        for place, child in before.items():
            after = await api.wait_for(
                *place,
                lambda found: (
                    found["metadata"]["annotations"].get("mcpgroup.dev/operator")
                    == f"{namespace}.other"
                ),
                within=20,
            )
            assert after["metadata"]["uid"] == child["metadata"]["uid"]
    assert set(pods) == {pod["metadata"]["name"] for pod in await api.list("pods")}


async def test_of_two_installations_in_one_place_each_group_gets_one(
    cluster: Cluster, api: Api, namespace: str, operator: Operator
) -> None:
    """Nobody means to have two; what both see at once must not become half of each."""
    rules = [*operator_rules(), *lease_rules("other")]
    await cluster.grant("other", namespace, rules, wide=False)
    access = await cluster.service_account("other", namespace)
    async with Operator(cluster, namespace, release="other", access=access) as second:
        for one in (operator, second):
            await one.metric_reaches("leader", 1)
        names = [f"g{number}" for number in range(8)]
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(api.create(GROUPS, group(name)))
        for name in names:
            found = await children(api, name, within=30)
            marks = {c["metadata"]["annotations"]["mcpgroup.dev/operator"] for c in found.values()}
            assert len(marks) == 1, name
            await api.wait_for(GROUPS, name, says("Accepted", "True"), within=20)


async def test_a_restart_writes_nothing_and_another_image_rolls_only_who_names_none(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    audit = cluster.audit_log()
    async with Operator(cluster, namespace, flags=["--gateway-image=gateway:1"]) as operator:
        await api.create(GROUPS, group())
        await api.create(GROUPS, group("named", gateway={"image": "own:1"}))
        for name in (NAME, "named"):
            await children(api, name)
            await api.wait_until("pods", lambda pods: len(pods) == 4)
            await api.wait_for(GROUPS, name, says("Accepted", "True"), within=20)
        before = await api.get("deployments", "named")
        await operator.terminate()
        position = await audit.now(api)
        await operator.start()
        await operator.metric_reaches("reconcile_operations_total", 2)
        await operator.metric_reaches("leader", 1)
        entries = await audit.since(position, api, operator.user)
        written = [str(e) for e in entries if e.is_write and e.resource not in ("leases", GROUPS)]
        assert written == []
    async with Operator(cluster, namespace, flags=["--gateway-image=gateway:2"]):
        await api.wait_for(
            "deployments",
            NAME,
            lambda d: d["spec"]["template"]["spec"]["containers"][0]["image"] == "gateway:2",
            within=20,
        )
        after = await api.get("deployments", "named")
        assert after["spec"] == before["spec"]
