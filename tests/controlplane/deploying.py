"""A stand-in for the controllers of Deployments, for control planes that run none.

It makes what they make that others see: pods with owner, labels and template, and the status of the
Deployment. A new template replaces all pods at once, once as many new ones are ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import uuid
from typing import TYPE_CHECKING, Any, Final, Self

from tests.controlplane.api import ApiError
from tests.controlplane.nodes import GROUP, NODE
from tests.controlplane.tasks import Tasks

if TYPE_CHECKING:
    from types import TracebackType

    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster

_TEMPLATE: Final = "pod-template-hash"
_WORKERS: Final = 8
_AGAIN_SECONDS: Final = 0.2

Key = tuple[str, str]


class Deployments:
    """`async with Deployments(cluster, namespace):` acts on Deployments with the group label."""

    def __init__(self, cluster: Cluster, namespace: str, *, labels: str = GROUP) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._labels = labels
        self._deployments: dict[Key, dict[str, Any]] = {}
        self._pods: dict[str, dict[str, dict[str, Any]]] = {}  # by uid of the Deployment, by name
        self._dirty: asyncio.Queue[Key] = asyncio.Queue()
        self._busy: dict[Key, asyncio.Lock] = {}
        self._tasks = Tasks("the stand-in for Deployment controllers")
        self._api: Api

    async def __aenter__(self) -> Self:
        self._api = await self._cluster.api().__aenter__()
        self._tasks.start(self._watch("deployments"))
        self._tasks.start(self._watch("pods"))
        for _ in range(_WORKERS):
            self._tasks.start(self._work())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._tasks.end()
        await self._api.__aexit__(None, None, None)
        self._tasks.tell(fault)

    async def _watch(self, plural: str) -> None:
        saw = self._saw_deployment if plural == "deployments" else self._saw_pod
        async with contextlib.aclosing(
            self._api.changes(plural, self._namespace, labels=self._labels)
        ) as changes:
            async for batch in changes:
                for kind, item in batch:
                    saw(kind, item)

    def _saw_deployment(self, kind: str, item: dict[str, Any]) -> None:
        key = _key(item)
        if kind == "DELETED":
            self._deployments.pop(key, None)
        else:
            self._deployments[key] = item
        self._dirty.put_nowait(key)

    def _saw_pod(self, kind: str, item: dict[str, Any]) -> None:
        for owner in item["metadata"].get("ownerReferences", ()):
            pods = self._pods.setdefault(owner["uid"], {})
            if kind == "DELETED":
                pods.pop(item["metadata"]["name"], None)
            else:
                pods[item["metadata"]["name"]] = item
            namespace = item["metadata"]["namespace"]
            self._dirty.put_nowait((namespace, owner["name"]))

    async def _work(self) -> None:
        while True:
            key = await self._dirty.get()
            async with self._busy.setdefault(key, asyncio.Lock()):
                found = self._deployments.get(key)
                if found is not None:
                    await self._reconcile(found)

    async def _reconcile(self, found: dict[str, Any]) -> None:
        wanted = found["spec"]["replicas"]
        pods = self._pods.setdefault(found["metadata"]["uid"], {})
        staying = [p for p in pods.values() if "deletionTimestamp" not in p["metadata"]]
        current = _template_hash(found)
        new = [p for p in staying if p["metadata"]["labels"][_TEMPLATE] == current]
        old = [p for p in staying if p not in new]
        for _ in range(wanted - len(new)):
            if not await self._create_pod(found, current, pods):
                self._tasks.start(self._come_back(_key(found)))
                return
        surplus = new[wanted:]
        if sum(map(_is_ready, new[:wanted])) == wanted:
            surplus = surplus + old
        for pod in surplus:
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            with contextlib.suppress(ApiError):
                await self._api.delete("pods", name, namespace)
        await self._tell(found, staying, new)

    async def _come_back(self, key: Key) -> None:
        await asyncio.sleep(_AGAIN_SECONDS)
        self._dirty.put_nowait(key)

    async def _create_pod(
        self, found: dict[str, Any], current: str, pods: dict[str, dict[str, Any]]
    ) -> bool:
        """False: the service account is not there yet, or a quota refuses."""
        template = found["spec"]["template"]
        metadata = dict(template["metadata"])
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "controller": True}
        owner |= {key: found["metadata"][key] for key in ("name", "uid")}
        metadata["name"] = f"{found['metadata']['name']}-{current}-{uuid.uuid4().hex[:5]}"
        metadata["labels"] = {**metadata["labels"], _TEMPLATE: current}
        metadata["ownerReferences"] = [owner]
        spec = {**template["spec"], "nodeName": NODE}
        try:
            made = await self._api.create(
                "pods", {"metadata": metadata, "spec": spec}, found["metadata"]["namespace"]
            )
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            return False
        pods[made["metadata"]["name"]] = made
        return True

    async def _tell(
        self, found: dict[str, Any], staying: list[dict[str, Any]], new: list[dict[str, Any]]
    ) -> None:
        ready = sum(map(_is_ready, staying))
        status = {
            "observedGeneration": found["metadata"]["generation"],
            "replicas": len(staying),
            "updatedReplicas": len(new),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": max(len(staying) - ready, 0),
        }
        if all(found.get("status", {}).get(key, 0) == value for key, value in status.items()):
            return
        metadata = found["metadata"]
        with contextlib.suppress(ApiError):
            await self._api.patch(
                "deployments",
                metadata["name"],
                {"status": status},
                metadata["namespace"],
                subresource="status",
            )


def _key(item: dict[str, Any]) -> Key:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def _template_hash(found: dict[str, Any]) -> str:
    text = json.dumps(found["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
