"""kubectl does with groups what its users expect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import yaml
from tests.controlplane.groups import NAME, children, group, says
from tests.controlplane.operating import Operator
from tests.controlplane.pods import StubPods

if TYPE_CHECKING:
    from pathlib import Path

    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster

GROUPS = "mcpservergroups"
TEXT = yaml.safe_dump(group())
EDITED = TEXT.replace("one.invalid", "two.invalid")


async def test_get_shows_what_matters_and_wait_waits_for_it(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    async with (
        StubPods(cluster, namespace) as stubs,
        Operator(cluster, namespace, pod_admin_port=stubs.admin_port),
    ):
        await cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=TEXT)
        await cluster.kubectl(
            "wait", f"mcpsg/{NAME}", "--for=condition=Ready", "--timeout=40s", namespace=namespace
        )
        await api.wait_for(
            GROUPS,
            NAME,
            lambda found: says("ReplicasAgree", "True")(found) and found["status"]["replicas"] == 2,
            within=30,
        )
        shown = await cluster.kubectl("get", "mcpsg", namespace=namespace)
        header, row = shown.out.splitlines()
        columns = ["NAME", "READY", "STATE", "MEMBERS", "REPLICAS", "AGREE", "ENDPOINT", "AGE"]
        assert header.split() == columns
        endpoint = f"http://{NAME}.{namespace}.svc/mcp"
        assert row.split()[:-1] == [NAME, "True", "Healthy", "1/1", "2", "True", endpoint]
        for name in ("mcpgroup", "mcpservergroup", "mcpservergroups.mcpgroup.dev"):
            again = await cluster.kubectl("get", name, "-o", "name", namespace=namespace)
            assert again.out.strip() == f"mcpservergroup.mcpgroup.dev/{NAME}"
        told = await cluster.kubectl("describe", "mcpsg", NAME, namespace=namespace)
        assert "Observed Generation" in told.out


async def test_apply_diff_and_dry_runs_change_what_they_say(
    cluster: Cluster, api: Api, namespace: str, operator: Operator
) -> None:
    for name, how in (("client", "--server-side=false"), ("server", "--server-side=true")):
        text, edited = (t.replace(f"name: {NAME}", f"name: {name}") for t in (TEXT, EDITED))
        made = await cluster.kubectl("apply", how, "-f", "-", namespace=namespace, stdin=text)
        assert f"mcpservergroup.mcpgroup.dev/{name}" in made.out
        await api.wait_for(GROUPS, name, says("Accepted", "True"), within=20)
        same = await cluster.kubectl("diff", how, "-f", "-", namespace=namespace, stdin=text)
        assert same.out == ""
        other = await cluster.kubectl(
            "diff", how, "-f", "-", namespace=namespace, stdin=edited, check=False
        )
        assert other.code == 1, other.err
        assert "+      url: http://two.invalid/mcp" in other.out
        before = await api.get(GROUPS, name)
        dry = await cluster.kubectl(
            "apply", how, "--dry-run=server", "-f", "-", namespace=namespace, stdin=edited
        )
        assert "(server dry run)" in dry.out
        after = await api.get(GROUPS, name)
        assert after["metadata"]["generation"] == before["metadata"]["generation"]
        await cluster.kubectl("apply", how, "-f", "-", namespace=namespace, stdin=edited)
        await api.wait_for(
            "configmaps", name, lambda found: "two.invalid" in found["data"]["group.yaml"]
        )
        # The status that the operator wrote meanwhile is nobody else's conflict.
        again = await cluster.kubectl("apply", how, "-f", "-", namespace=namespace, stdin=edited)
        assert again.code == 0
    assert "warning" not in operator.log


async def test_edit_opens_what_is_there_and_saves_it(
    cluster: Cluster, api: Api, namespace: str, operator: Operator, tmp_path: Path
) -> None:
    await api.create(GROUPS, group())
    await children(api)
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nexec sed -i 's/one.invalid/two.invalid/' \"$1\"\n")
    editor.chmod(0o755)
    done = await cluster.kubectl(
        "edit", f"mcpsg/{NAME}", namespace=namespace, env={"KUBE_EDITOR": str(editor)}
    )
    assert "edited" in done.out
    await api.wait_for(
        "configmaps", NAME, lambda found: "two.invalid" in found["data"]["group.yaml"]
    )
    assert f"{namespace}/{NAME}" not in operator.log


async def test_what_cannot_be_is_refused_with_the_reason(cluster: Cluster, namespace: str) -> None:
    wrong = TEXT.replace("one.invalid", "user@one.invalid").replace(
        "members:", "member: 1\n  members:"
    )
    for how in ("--server-side=false", "--server-side=true"):
        refused = await cluster.kubectl(
            "apply", how, "-f", "-", namespace=namespace, stdin=wrong, check=False
        )
        assert refused.code == 1
        assert "spec.member" in refused.err or 'unknown field "spec.member"' in refused.err


async def test_explain_tells_of_every_part(cluster: Cluster) -> None:
    told = await cluster.kubectl("explain", "mcpsg")
    assert "One highly available MCP endpoint in front of many MCP servers." in told.out
    told = await cluster.kubectl("explain", "mcpsg.spec.members.http.url")
    assert "Where the server answers" in told.out
    whole = await cluster.kubectl("explain", "mcpsg", "--recursive")
    for field in ("replicas", "gateway", "networkPolicy", "monitoring", "conditions", "configHash"):
        assert field in whole.out


async def test_scale_is_told_by_the_group(
    cluster: Cluster, api: Api, namespace: str, operator: Operator
) -> None:
    await api.create(GROUPS, group())
    await children(api)
    await cluster.kubectl(
        "scale", f"mcpsg/{NAME}", "--current-replicas=2", "--replicas=0", namespace=namespace
    )
    found = await api.wait_for(GROUPS, NAME, says("Available", "False", "ScaledToZero"))
    assert found["spec"]["replicas"] == 0
    await api.wait_for("deployments", NAME, lambda d: d["spec"]["replicas"] == 0)
    shown = await cluster.kubectl(
        "get", "mcpsg", NAME, "-o", "jsonpath={.status.conditions}", namespace=namespace
    )
    assert {c["type"] for c in json.loads(shown.out)} >= {"Ready", "Accepted", "Progressing"}
    assert operator.running.exit_code is None
