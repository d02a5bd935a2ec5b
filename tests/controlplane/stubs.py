"""Pretended gateways that answer `GET /status` and nothing else, each on an address of its own."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import random
from typing import TYPE_CHECKING, Any

import yaml

from mcpgroup_api import config_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

_SINCE = "2026-01-01T00:00:00Z"


class Addresses:
    """Loopback addresses nobody else uses: a random part of 127.0.0.0/8."""

    def __init__(self) -> None:
        self._second = random.randint(1, 254)  # noqa: S311 - no secret
        self._next = random.randint(1, 2**15)  # noqa: S311

    def take(self) -> str:
        self._next += 1
        return f"127.{self._second}.{self._next // 250}.{self._next % 250 + 1}"


class StatusStub:
    """One pretended gateway. Change `status` as a test likes; `asked` counts questions.

    With `hang` it accepts connections and questions and never answers.
    """

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.port = port
        self.status: dict[str, Any] = {}
        self.hang = False
        self.asked = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Transport] = set()

    async def listen(self) -> None:
        """Take connections, as it does not before."""
        if self._server is None:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: _Connection(self), self.address, self.port
            )

    def refuse(self) -> None:
        """End open connections and refuse new ones. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for transport in list(self._open):
            transport.abort()

    # -- what it says

    def serve(self, content: bytes, pod: str, namespace: str) -> None:
        """Speak as a gateway that has just taken this file and whose members are all well."""
        self.status = healthy_status(content, pod, namespace, instance=self.address)

    def open_circuit(self) -> None:
        self.status["state"] = "Degraded"
        self.status["available"] = False
        self.status["circuit"] |= {"open": True, "consecutiveFailures": 10}

    def close_circuit(self) -> None:
        self.status["state"] = "Healthy"
        self.status["available"] = True
        self.status["circuit"] |= {"open": False, "consecutiveFailures": 0}

    def take_out(self, member: str) -> None:
        """One member leaves rotation."""
        entry = self.member(member)
        entry["inRotation"] = False
        for count in ("inRotation", "healthy", "selectable"):
            self.status["counts"][count] -= 1

    def member(self, name: str) -> dict[str, Any]:
        """The entry of a member."""
        found: dict[str, Any] = next(m for m in self.status["members"] if m["name"] == name)
        return found


class _Connection(asyncio.Protocol):
    """HTTP/1.1, kept alive: a head without body comes, a body with length goes."""

    def __init__(self, stub: StatusStub) -> None:
        self._stub = stub
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._stub._open.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stub._open.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._head += data
        while b"\r\n\r\n" in self._head:
            head, _, self._head = self._head.partition(b"\r\n\r\n")
            self._stub.asked += 1
            if not self._stub.hang:
                self._transport.write(_answer(head, self._stub.status))


def _answer(head: bytes, status: Mapping[str, Any]) -> bytes:
    code, body = b"404 Not Found", b"{}"
    if head.startswith(b"GET /status ") and status:
        code, body = b"200 OK", json.dumps(status).encode()
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        code,
        len(body),
        body,
    )


def healthy_status(content: bytes, pod: str, namespace: str, *, instance: str) -> dict[str, Any]:
    """What a gateway says (DESIGN section 9) that was given this file."""
    document = yaml.safe_load(content)
    names = [member["name"] for member in document["spec"]["members"]]
    count = len(names)
    return {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "GatewayStatus",
        "group": document["metadata"]["name"],
        "namespace": namespace,
        "pod": pod,
        "instance": instance,
        "config": {
            "hash": config_hash(content),
            "generation": document["metadata"].get("generation"),
            "loadedAt": _SINCE,
            "rejected": None,
            "ignored": [],
            "missingSecrets": [],
        },
        "state": "Healthy",
        "available": True,
        "circuit": {"open": False, "consecutiveFailures": 0, "since": _SINCE},
        "counts": {"total": count, "inRotation": count, "healthy": count, "selectable": count},
        "draining": False,
        "sessions": {"open": 0, "owned": 0},
        "store": None,
        "members": [_member(name) for name in names],
        "events": [],
    }


def _member(name: str) -> dict[str, Any]:
    return copy.deepcopy(_MEMBER) | {
        "name": name,
        "catalogueHash": hashlib.sha256(name.encode()).hexdigest()[:16],
    }


_MEMBER: dict[str, Any] = {
    "source": "http",
    "inRotation": True,
    "state": "Ready",
    "breaker": "Closed",
    "consecutiveFailures": 0,
    "lastError": None,
    "since": _SINCE,
    "inFlight": 0,
    "queued": 0,
    "selections": 0,
    "p95Seconds": None,
    "era": "Legacy",
    "protocolVersion": "2025-11-25",
    "serverInfo": {"name": "stub", "version": "1"},
    "tools": 1,
    "shadowed": [],
}
