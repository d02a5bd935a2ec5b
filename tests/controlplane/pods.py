"""Pods with a pretended gateway behind each: `async with StubPods(cluster, namespace) as s:`."""

from __future__ import annotations

from typing import Any

from tests.controlplane.nodes import Node, StandIn
from tests.controlplane.stubs import StatusStub


class StubPod(StandIn):
    """`stub` answers for it."""

    def __init__(self, node: Node, pod: dict[str, Any], address: str) -> None:
        super().__init__(node, pod, address)
        self.stub = StatusStub(address, node.admin_port)

    async def start(self) -> None:
        await self.refresh()
        await self.stub.listen()

    async def refresh(self) -> None:
        """Takes the group's file as a gateway does that was given it."""
        found = await self.node.api.find("configmaps", self.group, self.namespace)
        if found is not None:
            content = found["data"]["group.yaml"].encode()
            self.stub.serve(content, self.name, self.namespace)

    async def stop(self) -> None:
        self.stub.refuse()


class StubPods(Node):
    def stand_in(self, pod: dict[str, Any], address: str) -> StubPod:
        return StubPod(self, pod, address)

    def stubs(self, group: str = "") -> list[StatusStub]:
        """Of the pods that are ready, by name of the pod."""
        return [pod.stub for pod in self.pods(group) if isinstance(pod, StubPod)]
