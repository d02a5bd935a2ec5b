"""kopf in its thread: stopped and started again as often as need be, it leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

import psutil

from mcpgroup_operator.composition import compose
from mcpgroup_operator.kinds import CONFIG_MAP, GROUP
from mcpgroup_operator.settings import parse
from mcpgroup_operator.watches import Watch

if TYPE_CHECKING:
    import pytest
    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster

    from mcpgroup_operator.composition import Parts

LABELS = {"mcpgroup.dev/group": "a"}


async def hears(parts: Parts, api: Api, name: str) -> None:
    """Two new objects reach the store: one by the list that follows kopf's, or by the watch; the
    other by the watch, for nothing is listed any more."""
    assert api.namespace is not None
    for each in (name, f"{name}-again"):
        await api.create("configmaps", {"metadata": {"name": each, "labels": LABELS}})
        async with asyncio.timeout(20):
            while parts.store.child(CONFIG_MAP, api.namespace, each) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def has_restarted(parts: Parts, times: int) -> None:
    name, labels = "mcpgroup_operator_watch_restarts_total", {"kind": GROUP.plural}
    async with asyncio.timeout(30):
        while parts.metrics.registry.get_sample_value(name, labels) != times:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_starting_again_leaves_no_thread_and_no_connection(
    cluster: Cluster, api: Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [f"--kubeconfig={cluster.kubeconfig()}", f"--namespace={namespace}"]
    settings = parse([*arguments, f"--watch-namespaces={namespace}", "--pods=direct"])
    process = psutil.Process()
    async with contextlib.AsyncExitStack() as stack:
        parts = await compose(settings, "test", stack)
        running = [asyncio.create_task(part.run()) for part in (parts.informer, parts.lister)]
        try:
            await hears(parts, api, "first")
            threads, files = threading.active_count(), process.num_fds()
            for number in range(3):
                lost = iter([{Watch(GROUP, namespace): "a test says so"}])
                monkeypatch.setattr(
                    parts.informer._monitor, "lost", lambda _, it=lost: next(it, {})
                )
                await has_restarted(parts, number + 1)
                await hears(parts, api, f"after-{number}")
            assert threading.active_count() <= threads
            assert process.num_fds() <= files + 4
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)
    kopfs = [thread for thread in threading.enumerate() if thread.name == "kopf"]
    assert kopfs == []
