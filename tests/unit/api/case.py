"""What one row of the table of manifests is, and pieces that many rows share.

`spec` is laid over `BASE`; `manifest` over the whole object. `faults` are the fields that a
rejection must name, each with a part of what it says is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SECRET = {"secretKeyRef": {"name": "search", "key": "token"}}
TENANT = {"tenant": {"header": "X-Tenant-ID"}}

BASE: dict[str, Any] = {
    "members": [
        {"name": "a", "stdio": {"command": ["server"]}},
        {"name": "b", "http": {"url": "https://b.example.com/mcp"}},
        {"name": "c", "http": {"url": "http://127.0.0.1:3001/mcp"}},
    ]
}


@dataclass(frozen=True)
class Case:
    """One manifest; the name is a sentence."""

    name: str
    spec: dict[str, Any] = field(default_factory=dict)
    manifest: dict[str, Any] = field(default_factory=dict)
    faults: tuple[tuple[str, str], ...] = ()

    def data(self) -> dict[str, Any]:
        group = {
            "apiVersion": "mcpgroup.dev/v1alpha1",
            "kind": "McpServerGroup",
            "metadata": {"name": "time"},
            "spec": {**BASE, **self.spec},
        }
        return {**group, **self.manifest}


def stdio(**more: Any) -> dict[str, Any]:
    return {"members": [{"name": "a", "stdio": {"command": ["server"], **more}}]}


def http(**more: Any) -> dict[str, Any]:
    return {"members": [{"name": "a", "http": {"url": "https://a.example.com/mcp", **more}}]}


def member(**more: Any) -> dict[str, Any]:
    return {"members": [{"name": "a", "stdio": {"command": ["server"]}, **more}]}


def gateway(**more: Any) -> dict[str, Any]:
    return {"gateway": more}


def network(*peers: Any) -> dict[str, Any]:
    return {"networkPolicy": {"enabled": True, "from": list(peers)}}


def rejected(name: str, spec: dict[str, Any], *faults: tuple[str, str], **manifest: Any) -> Case:
    return Case(name, spec, manifest, faults)


def named(name: Any) -> Case:
    return Case(f"group name {name!r}"[:60], manifest={"metadata": {"name": name}})
