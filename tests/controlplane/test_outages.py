"""An API server that is away, and credentials that stop working."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.controlplane.api import ApiError
from tests.controlplane.operating import ACCOUNT, Operator
from tests.controlplane.test_faults import GROUPS, settled
from tests.controlplane.test_operating import group

from mcpgroup_operator.rbac import operator_roles

if TYPE_CHECKING:
    from tests.controlplane.access import Access
    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster
    from tests.controlplane.private import PrivatePlane

NAMESPACE = "default"


async def heals(api: Api, name: str, within: float = 30) -> float:
    """A child that is deleted comes back: the operator sees and writes. In how many seconds."""
    began = time.monotonic()
    old = (await api.get("configmaps", name))["metadata"]["uid"]
    await api.delete("configmaps", name)
    await api.wait_for("configmaps", name, lambda c: c["metadata"]["uid"] != old, within=within)
    return time.monotonic() - began


@pytest.mark.timeout(180)
async def test_an_api_server_that_is_away_is_waited_for(private: PrivatePlane) -> None:
    plane, cluster = await private.start(controllers=False)
    operator = Operator(cluster, NAMESPACE, wait_ready=False)
    async with cluster.api(NAMESPACE) as api, operator:
        # While it starts.
        assert await operator.terminate() == 0
        await plane.api_server.kill()
        await operator.start()
        await asyncio.sleep(3)
        code, said = await operator.probe("readyz")
        assert (code, (await operator.probe("livez"))[0]) == (503, 200)
        assert "mcpservergroups" in said
        await plane.api_server.start()
        await plane.ready()
        began = time.monotonic()
        await operator.ready()
        await api.create(GROUPS, group("a"))
        await settled(api, "a")
        print(f"\naway at the start: at work {time.monotonic() - began:.1f} s after it was back")

        # It answers nothing for a moment, which the lease outlasts.
        process = psutil.Process(operator.pid)
        before = (process.num_threads(), process.num_fds(), process.memory_info().rss)
        for _ in range(3):
            plane.api_server.send(signal.SIGSTOP)
            await asyncio.sleep(1.5)
            plane.api_server.send(signal.SIGCONT)
            print(f"mute for a moment: a child is back {await heals(api, 'a'):.1f} s after it went")
        threads, files, memory = process.num_threads(), process.num_fds(), process.memory_info().rss
        assert threads <= before[0] + 2
        assert files <= before[1] + 8
        assert memory <= before[2] + 20 * 2**20

        # It starts again, as at an upgrade; on a busy machine that may last longer than the lease.
        await plane.api_server.kill()
        await plane.api_server.start()
        await plane.ready()
        if operator.running.exit_code is not None:
            assert operator.running.exit_code == 1
            await operator.kill()
            await operator.start()
        print(f"started again: a child is back {await heals(api, 'a'):.1f} s after it went")
        assert "starts again" not in operator.log

        # It is away for longer: who may not be alone ends, and is started again as a pod would be.
        await plane.api_server.kill()
        assert await operator.exited(20) == 1
        assert "leadership lost" in operator.log
        assert "Traceback" not in operator.log
        await operator.kill()
        await operator.start()
        await plane.api_server.start()
        await plane.ready()
        began = time.monotonic()
        await operator.ready()
        await operator.metric_reaches("leader", 1, within=30)
        await heals(api, "a")
        print(f"away for long: at work {time.monotonic() - began:.1f} s after it was back")


async def bound_token(api: Api, secret: str) -> str:
    """A token of the operator's account that is good for as long as a Secret exists."""
    made = await api.create("secrets", {"metadata": {"name": secret}})
    path = f"/api/v1/namespaces/{api.namespace}/serviceaccounts/{ACCOUNT}/token"
    bound: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "name": secret}
    spec = {"boundObjectRef": {**bound, "uid": made["metadata"]["uid"]}, "expirationSeconds": 3600}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return str((await api.request("POST", path, body=body))["status"]["token"])


async def is_refused(cluster: Cluster, access: Access) -> None:
    """Wait until the API server has forgotten that a token was good: ten seconds."""
    async with cluster.api("default", access) as api, asyncio.timeout(30):
        while True:
            try:
                await api.find("configmaps", "none")
            except ApiError as error:
                if error.code == 401:
                    return
            await asyncio.sleep(0.2)


async def test_a_token_that_was_replaced_is_read_anew(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    await api.create("serviceaccounts", {"metadata": {"name": ACCOUNT}})
    for role in operator_roles("mcpgroup", namespace, ACCOUNT, [namespace]):
        await api.apply(f"{role['kind'].lower()}s", role, role["metadata"].get("namespace"))
    access = await cluster.service_account(ACCOUNT, namespace)
    old = replace(access, token=await bound_token(api, "old"))
    async with Operator(cluster, namespace, access=old) as operator:
        await api.create(GROUPS, group("a"))
        await settled(api, "a")
        new = replace(access, token=await bound_token(api, "new"))
        new.write(operator.kubeconfig)
        await api.delete("secrets", "old")
        await is_refused(cluster, old)
        took = await heals(api, "a")
        print(f"\na replaced token: a child is back {took:.1f} s after its deletion")
        assert await operator.metric("leader") == 1
        assert "starts again" not in operator.log
