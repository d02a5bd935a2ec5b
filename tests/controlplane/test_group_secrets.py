"""Secrets of users reach gateways as files of a volume, and nothing else ever holds their text."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from tests.controlplane.groups import NAME, condition, group, says
from tests.controlplane.kinds import CLUSTER_WIDE, VERSIONS
from tests.controlplane.operating import Operator
from tests.controlplane.pods import StubPods

if TYPE_CHECKING:
    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster

GROUPS = "mcpservergroups"
CANARY = "canary-8d1f0c1e5b7a4d8f"


def member(name: str, secret: str, key: str) -> dict[str, Any]:
    value = {"secretKeyRef": {"name": secret, "key": key}}
    headers = [{"name": "X-Token", "valueFrom": value}]
    return {"name": name, "http": {"url": f"http://{name}.invalid/mcp", "headers": headers}}


def template(deployment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = deployment["spec"]["template"]
    return found


async def applied(api: Api, text: str) -> None:
    await api.wait_for("configmaps", NAME, lambda found: text in found["data"]["group.yaml"])
    await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=20)


async def test_a_new_name_rolls_the_pods_and_a_new_key_or_value_does_not(
    api: Api, operator: Operator
) -> None:
    token = base64.b64encode(CANARY.encode()).decode()
    await api.create("secrets", {"metadata": {"name": "tokens"}, "data": {"a": token}})
    await api.create(GROUPS, group(members=[member("one", "tokens", "a")]))
    await applied(api, "tokens")
    first = await api.get("deployments", NAME)
    secrets = [v["secret"] for v in template(first)["spec"]["volumes"] if "secret" in v]
    assert {"secretName": "tokens", "optional": True, "defaultMode": 420} in secrets
    (gateway,) = template(first)["spec"]["containers"]
    assert "/etc/mcpgroup/secrets/tokens" in [m["mountPath"] for m in gateway["volumeMounts"]]
    assert not [e for e in gateway["env"] if "secretKeyRef" in json.dumps(e)]

    await api.patch("secrets", "tokens", {"data": {"a": "bmV3", "b": token}})
    await api.patch(GROUPS, NAME, {"spec": {"members": [member("one", "tokens", "b")]}})
    await applied(api, "key: b")
    await api.wait_for(GROUPS, NAME, lambda g: g["status"].get("observedGeneration") == 2)
    assert template(await api.get("deployments", NAME)) == template(first)

    await api.patch(GROUPS, NAME, {"spec": {"members": [member("one", "others", "b")]}})
    rolled = await api.wait_for("deployments", NAME, lambda d: template(d) != template(first))
    secrets = [v["secret"] for v in template(rolled)["spec"]["volumes"] if "secret" in v]
    assert [s["secretName"] for s in secrets] == [f"{NAME}-keys", "others"]
    assert f"{api.namespace}/{NAME}" not in operator.log


async def test_a_missing_one_is_told_until_it_is_there(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    async with (
        StubPods(cluster, namespace) as stubs,
        Operator(cluster, namespace, pod_admin_port=stubs.admin_port),
    ):
        await api.create(GROUPS, group(members=[member("one", "tokens", "a")]))
        await stubs.running(NAME, 2)
        for stub in stubs.stubs(NAME):
            stub.status["config"]["missingSecrets"] = ["tokens/a"]
        refused = await api.wait_for(
            GROUPS, NAME, says("Accepted", "False", "SecretNotFound"), within=30
        )
        assert "Secret tokens, key a" in condition(refused, "Accepted")["message"]
        assert condition(refused, "Ready")["status"] == "False"
        await api.create("secrets", {"metadata": {"name": "tokens"}, "stringData": {"a": CANARY}})
        for stub in stubs.stubs(NAME):
            stub.status["config"]["missingSecrets"] = []
        await api.wait_for(GROUPS, NAME, says("Ready", "True"), within=30)


async def test_no_text_of_a_secret_is_anywhere_else(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    """Neither a user's nor the group's own: in objects, Events, log, metrics, or requests."""
    audit = cluster.audit_log()
    before = await audit.now(api)
    encoded = base64.b64encode(CANARY.encode()).decode()
    await api.create("secrets", {"metadata": {"name": "tokens"}, "data": {"a": encoded}})
    async with (
        StubPods(cluster, namespace) as stubs,
        Operator(
            cluster, namespace, pod_admin_port=stubs.admin_port, flags=["--log-level=Debug"]
        ) as operator,
    ):
        await api.create(GROUPS, group(members=[member("one", "tokens", "a")]))
        await stubs.running(NAME, 2)
        await api.wait_for(GROUPS, NAME, says("Ready", "True"), within=30)
        # Also when things go wrong: keys that are rotated, a Secret that is not ours.
        annotations = {"mcpgroup.dev/rotate-keys": "now"}
        await api.patch(GROUPS, NAME, {"metadata": {"annotations": annotations}})
        own = await api.wait_for(
            "secrets",
            f"{NAME}-keys",
            lambda s: s["metadata"]["annotations"].get("mcpgroup.dev/rotate-keys") == "now",
        )
        await api.create("secrets", {"metadata": {"name": "b-keys"}, "data": {"x": encoded}})
        await api.create(GROUPS, group("b"))
        await api.wait_for(GROUPS, "b", says("Accepted", "False", "NotOwned"), within=20)
        told = [operator.log, json.dumps([str(m) for m in (await operator.metrics()).items()])]
        kinds = sorted(set(VERSIONS) - CLUSTER_WIDE - {"secrets", "podmonitors"})
        told += [json.dumps(await api.list(plural)) for plural in kinds]
        for entry in await audit.since(before, api, operator.user):
            told += [entry.uri, json.dumps(entry.body)]
    token = own["data"]["admin-token"]
    for text in (CANARY, encoded, token, base64.b64decode(token).decode()):
        assert not [document for document in told if text in document]
    assert any("tokens" in document for document in told)
