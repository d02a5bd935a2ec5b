"""Real gateways as pods: each runs what its container says, with its volumes, as a node would."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
from tests.controlplane.nodes import Node, StandIn, free_port
from tests.controlplane.volumes import VolumeMissingError, mount
from tests.harness.processes import ROOT, Running, tethered

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.controlplane.cluster import Cluster

_CONTAINER = "gateway"
_READY_SECONDS = 60
_END_SECONDS = 60


class GatewayPod(StandIn):
    """`running` is its process, `folder` its file system, `url` and `admin_url` where it serves."""

    def __init__(self, node: GatewayPods, pod: dict[str, Any], address: str) -> None:
        super().__init__(node, pod, address)
        self._ports = node.ports
        self.folder = node.folder / pod["metadata"]["uid"]
        self.running: Running
        self.exit_code: int | None = None  # after an end in good order
        self.url = f"http://{address}:{node.ports[8080]}/mcp"
        self.admin_url = f"http://{address}:{node.admin_port}"

    @property
    def container(self) -> dict[str, Any]:
        containers = self.pod["spec"]["containers"]
        found: dict[str, Any] = next(c for c in containers if c["name"] == _CONTAINER)
        return found

    async def start(self) -> None:
        await self._mount_all()
        entry = [sys.executable, "-P", "-m", "mcpgroup_gateway"]  # the image's
        arguments = [self._local(argument) for argument in self.container.get("args", ())]
        for position, argument in enumerate(arguments[:-1]):
            if argument.endswith("-port") or argument == "--port":
                arguments[position + 1] = self._port(arguments[position + 1])
        self.running = Running(tethered([*entry, *arguments]), self._environment())
        await self.running.start()
        await self._until_ready()

    async def refresh(self) -> None:
        await mount(self.node.api, self.pod, self.container, self.folder)

    async def stop(self) -> None:
        if hasattr(self, "running"):
            await self.running.stop()

    def describe(self) -> str:
        log = self.running.log if hasattr(self, "running") else "its volumes are not there"
        return f"{self.name}: {log[-4000:]}"

    async def end(self) -> None:
        self.running.send(signal.SIGCONT)
        self.running.send(signal.SIGTERM)
        self.exit_code = await self.running.exited(_END_SECONDS)
        await self.stop()

    async def status(self) -> dict[str, Any]:
        """What it says of itself."""
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{self.admin_url}/status") as answer,
        ):
            status: dict[str, Any] = await answer.json()
            return status

    def pause(self) -> None:
        """From now on it accepts connections and answers nothing; its probes are not asked."""
        self.running.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.running.send(signal.SIGCONT)

    async def _mount_all(self) -> None:
        """A pod waits until every volume that is not optional is there."""
        while True:
            try:
                return await self.refresh()
            except VolumeMissingError:
                await asyncio.sleep(0.1)

    async def _until_ready(self) -> None:
        async with asyncio.timeout(_READY_SECONDS), aiohttp.ClientSession() as http:
            while True:
                if self.running.exit_code is not None:
                    raise AssertionError(f"the gateway {self.name} ended:\n{self.running.log}")
                try:
                    async with http.get(f"{self.admin_url}/readyz") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)

    def _local(self, text: str) -> str:
        """Paths of the container become paths of its folder, all addresses become its own."""
        for folder in (m["mountPath"] for m in self.container.get("volumeMounts", ())):
            if text == folder or text.startswith(f"{folder}/"):
                return f"{self.folder}{text}"
        if text.startswith("/etc/mcpgroup"):
            return f"{self.folder}{text}"
        return re.sub(r"\b0\.0\.0\.0\b", self.address, text)

    def _port(self, text: str) -> str:
        return str(self._ports.get(int(text), text))

    def _environment(self) -> dict[str, str]:
        environment = {"PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'gateway'}", "PYTHONUNBUFFERED": "1"}
        for variable in self.container.get("env", ()):
            environment[variable["name"]] = self._value(variable)
        return environment

    def _value(self, variable: Mapping[str, Any]) -> str:
        if "value" in variable:
            value = str(variable["value"])
            # A test may name files of this machine, which are below /tmp, too.
            return self._local(value) if value == "/tmp" else value  # noqa: S108
        path = variable["valueFrom"]["fieldRef"]["fieldPath"]
        known = {"metadata.name": self.name, "metadata.namespace": self.namespace}
        return {**known, "status.podIP": self.address}[path]


class GatewayPods(Node):
    """`folder` is where the pods' file systems are. All pods have the same ports, at addresses of
    their own: `ports` by the number that containers say."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        super().__init__(cluster, namespace)
        self.folder = folder
        self.ports = {8080: free_port(), 8081: free_port(), 9090: self.admin_port}

    def stand_in(self, pod: dict[str, Any], address: str) -> GatewayPod:
        return GatewayPod(self, pod, address)

    def gateways(self, group: str = "") -> list[GatewayPod]:
        """Of the pods that are ready, by name of the pod."""
        return [pod for pod in self.pods(group) if isinstance(pod, GatewayPod)]
