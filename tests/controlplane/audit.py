"""What an API server was asked, from its audit log."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from tests.controlplane.api import Api

# Metadata of everything, and the bodies of writes that hold no secret. What the control plane asks
# itself is left away. A watch is logged when it begins; everything else when it was answered.
POLICY: Final = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:apiserver", "system:kube-controller-manager"]
- level: Metadata
  omitStages: [RequestReceived, ResponseComplete]
  verbs: [watch]
- level: Request
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - {group: mcpgroup.dev}
  - {group: apps}
  - {group: policy}
  - {group: networking.k8s.io}
  - {group: coordination.k8s.io}
  - {group: events.k8s.io}
  - {group: "", resources: [configmaps, services, serviceaccounts, pods, pods/status, events]}
- level: Metadata
"""
_MARKER: Final = "audit-marker-"
_MARKER_SECONDS: Final = 10.0

READS: Final = frozenset({"get", "list", "watch"})


@dataclass(frozen=True)
class Entry:
    """One request. `body` is what was sent, where the policy above keeps it, else None."""

    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    user: str
    uri: str
    body: Any

    @property
    def is_write(self) -> bool:
        return self.verb not in READS

    def __str__(self) -> str:
        kind = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {kind} {self.namespace}/{self.name}: {self.code}"


class AuditLog:
    """Reads the log behind a position; positions are bytes of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def now(self, api: Api) -> int:
        """The position behind everything that was answered before this call."""
        return (await self._behind_a_marker(api, self._size()))[0]

    async def since(self, position: int, api: Api, user: str | None = None) -> list[Entry]:
        """The requests answered between `position` and this call, of one user or of all.

        `user` is the API server's name for it, such as `system:serviceaccount:<namespace>:<name>`.
        """
        _, lines = await self._behind_a_marker(api, position)
        named = (user or "").encode()  # before reading them as JSON: most are of other tests
        found = [_entry(line) for line in lines if named in line]
        return [
            entry
            for entry in found
            if user in (None, entry.user) and not entry.name.startswith(_MARKER)
        ]

    def _size(self) -> int:
        return self._path.stat().st_size

    async def _behind_a_marker(self, api: Api, position: int) -> tuple[int, list[bytes]]:
        """Ask for something that is not there and read on until the log says so: what was answered
        earlier stands before it."""
        name = _MARKER + uuid.uuid4().hex
        await api.find("configmaps", name, "default")
        lines: list[bytes] = []
        async with asyncio.timeout(_MARKER_SECONDS):
            while True:
                with self._path.open("rb") as log:
                    log.seek(position)
                    data = log.read()
                whole = data[: data.rfind(b"\n") + 1]
                position += len(whole)
                lines += whole.splitlines()
                if name.encode() in whole:
                    return position, lines
                await asyncio.sleep(0.01)


def _entry(line: bytes) -> Entry:
    event = json.loads(line)
    subject = event.get("objectRef", {})
    return Entry(
        verb=event["verb"],
        resource=subject.get("resource", ""),
        subresource=subject.get("subresource", ""),
        namespace=subject.get("namespace", ""),
        name=subject.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        user=event["user"]["username"],
        uri=event["requestURI"],
        body=event.get("requestObject"),
    )
