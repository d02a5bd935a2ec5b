"""A stand-in for a node: pods that nobody would run become Running and Ready, on loopback.

`StubPods` (pods) puts a pretended gateway behind each, `GatewayPods` (gateway_pods) a real process.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Self

from tests.controlplane.api import ApiError
from tests.controlplane.stubs import Addresses
from tests.controlplane.tasks import Tasks
from tests.controlplane.volumes import VolumeMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster

NODE: Final = "stand-in"
GROUP: Final = "mcpgroup.dev/group"
HASH: Final = "mcpgroup.dev/config-hash"


class StandIn(ABC):
    """One pod. `pod` is the object as last seen; `ready` once it serves and its object says so."""

    def __init__(self, node: Node, pod: dict[str, Any], address: str) -> None:
        self.node = node
        self.pod = pod
        self.address = address
        self._changed = asyncio.Event()
        self.ready = False

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])

    @property
    def group(self) -> str:
        return str(self.pod["metadata"]["labels"][GROUP])

    @abstractmethod
    async def start(self) -> None:
        """Return when it is ready to serve."""

    @abstractmethod
    async def refresh(self) -> None:
        """Volumes have what ConfigMaps and Secrets have.

        Raises `VolumeMissingError`: what is asked for is not there.
        """

    @abstractmethod
    async def stop(self) -> None:
        """End what `start` began, at once. Idempotent."""

    def describe(self) -> str:
        """For a failure: who it is, and what is known of why it does not serve."""
        return self.name

    async def end(self) -> None:
        """End as a pod that is told to; at once if it knows no better."""
        await self.stop()

    async def set_ready(self, ready: bool) -> None:
        """What the kubelet's probe of it says."""
        await self.node.patch_status(self, running_status(self.pod, self.address, ready=ready))

    def saw(self, pod: dict[str, Any]) -> None:
        self.pod = pod
        self._changed.set()

    async def live(self) -> None:
        """From pending until the object is gone or this is cancelled."""
        try:
            await self.node.bind(self)
            await self.start()
            await self.set_ready(True)
            self.ready = True
            await self.node.changed()
            await self._follow()
        finally:
            await self.stop()

    async def _follow(self) -> None:
        known = self._wanted_hash()
        while "deletionTimestamp" not in self.pod["metadata"]:
            await self._changed.wait()
            self._changed.clear()
            if self.node.refreshes and self._wanted_hash() != known:
                known = self._wanted_hash()
                with contextlib.suppress(VolumeMissingError):  # then what was there stays
                    await self.refresh()
        await asyncio.sleep(self.node.termination_seconds)
        await self.end()
        await self.node.remove(self)

    def _wanted_hash(self) -> str:
        return str(self.pod["metadata"].get("annotations", {}).get(HASH, ""))


class Node(ABC):
    """`async with … as node:` runs every pod with the group label in `namespace` (`"*"`: all).

    Terminating pods go after `termination_seconds`. With `refreshes = False` a changed
    `mcpgroup.dev/config-hash` changes no volume, as with a kubelet that is slow. `admin_port` is
    where all of them answer `/status`: the operator's `--pod-admin-port`.
    """

    def __init__(self, cluster: Cluster, namespace: str, *, labels: str = GROUP) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._labels = labels
        self._addresses = Addresses()
        self._standing: dict[str, tuple[StandIn, Callable[[], bool]]] = {}
        self._changed = asyncio.Condition()
        self._tasks = Tasks("a stand-in for a pod")
        self.admin_port = free_port()
        self.termination_seconds = 0.0
        self.refreshes = True
        self.api: Api

    @abstractmethod
    def stand_in(self, pod: dict[str, Any], address: str) -> StandIn:
        """For a new pod."""

    async def __aenter__(self) -> Self:
        await self._cluster.assert_no_nodes()
        self.api = await self._cluster.api().__aenter__()
        self._tasks.start(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._tasks.end()
        await self.api.__aexit__(None, None, None)
        self._tasks.tell(fault)

    def pods(self, group: str = "") -> list[StandIn]:
        """Those that are ready to serve, by name; of one group or of all."""
        return sorted(self._ready(group), key=lambda standing: (standing.namespace, standing.name))

    def _ready(self, group: str) -> list[StandIn]:
        found = [standing for standing, _ in self._standing.values() if standing.ready]
        return [standing for standing in found if group in ("", standing.group)]

    async def running(self, group: str, count: int, *, within: float = 30) -> Sequence[StandIn]:
        """Wait until exactly so many pods of a group are ready to serve; by name."""
        try:
            async with asyncio.timeout(within), self._changed:
                await self._changed.wait_for(
                    lambda: self._tasks.failed is not None or len(self._ready(group)) == count
                )
        except TimeoutError:
            names = [s.name for s in self.pods(group)]
            waiting = [s.describe() for s, _ in self._standing.values() if not s.ready]
            raise AssertionError(
                f"{group}: {names} run after {within} s, not {count}; waiting: {waiting}"
            ) from None
        self._tasks.tell(None)
        return self.pods(group)

    async def _run(self) -> None:
        async with contextlib.aclosing(
            self.api.changes("pods", self._namespace, labels=self._labels)
        ) as changes:
            async for batch in changes:
                for kind, pod in batch:
                    await self._handle(kind, pod)

    async def _handle(self, kind: str, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        standing = self._standing.get(uid)
        if kind == "DELETED":
            if standing is not None:
                standing[1]()
        elif standing is not None:
            standing[0].saw(pod)
        elif "deletionTimestamp" in pod["metadata"]:
            await self.remove(self.stand_in(pod, ""))
        else:
            new = self.stand_in(pod, self._addresses.take())
            self._standing[uid] = (new, self._tasks.start(self._live(new)))

    async def _live(self, standing: StandIn) -> None:
        try:
            await standing.live()
        finally:
            self._standing.pop(standing.pod["metadata"]["uid"], None)
            await self.changed()

    async def changed(self) -> None:
        """Tell who waits that a pod is ready, or gone."""
        async with self._changed:
            self._changed.notify_all()

    # -- what stand-ins ask of the API server; an object that is gone meanwhile is no fault

    async def bind(self, standing: StandIn) -> None:
        """As the scheduler: a pod with a node is deleted in two steps."""
        if standing.pod["spec"].get("nodeName"):
            return
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": standing.name, "uid": standing.pod["metadata"]["uid"]},
            "target": target,
        }
        path = f"/api/v1/namespaces/{standing.namespace}/pods/{standing.name}/binding"
        with _gone_is_fine():
            await self.api.request("POST", path, body=body)

    async def patch_status(self, standing: StandIn, status: Mapping[str, Any]) -> None:
        body = {"metadata": {"uid": standing.pod["metadata"]["uid"]}, "status": status}
        with _gone_is_fine():
            await self.api.patch(
                "pods", standing.name, body, standing.namespace, subresource="status"
            )

    async def remove(self, standing: StandIn) -> None:
        with _gone_is_fine():
            await self.api.delete("pods", standing.name, standing.namespace, grace=0)


def running_status(pod: Mapping[str, Any], address: str, *, ready: bool) -> dict[str, Any]:
    """A `status` as a kubelet writes it."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    truth = {"PodScheduled": True, "Initialized": True, "ContainersReady": ready, "Ready": ready}
    old = {c["type"]: c for c in pod.get("status", {}).get("conditions", ())}
    conditions = []
    for kind, holds in truth.items():
        status = str(holds)
        same = old.get(kind, {}).get("status") == status
        since = old[kind]["lastTransitionTime"] if same else now
        conditions.append({"type": kind, "status": status, "lastTransitionTime": since})
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": ready,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for container in pod["spec"]["containers"]
    ]
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now,
        "conditions": conditions,
        "containerStatuses": containers,
    }


def free_port() -> int:
    """A port that nothing listens on at any address of this machine."""
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))  # noqa: S104 - closed at once
        port: int = probe.getsockname()[1]
    return port


@contextlib.contextmanager
def _gone_is_fine() -> Any:
    try:
        yield
    except ApiError as error:
        if error.code not in (404, 409):
            raise
