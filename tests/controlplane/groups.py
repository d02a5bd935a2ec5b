"""Groups as tests apply them, and what the operator makes of each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.controlplane.api import Api

NAME: Final = "demo"


def places(name: str = NAME) -> list[tuple[str, str]]:
    """Plural and name of each child of a group that asks for nothing more."""
    return [
        ("serviceaccounts", name),
        ("secrets", f"{name}-keys"),
        ("configmaps", name),
        ("services", name),
        ("services", f"{name}-peers"),
        ("poddisruptionbudgets", name),
        ("deployments", name),
    ]


def group(name: str = NAME, **spec: Any) -> dict[str, Any]:
    """A group with one member `one`, unless `spec` says something else."""
    return {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "metadata": {"name": name},
        "spec": {"members": [member("one")], **spec},
    }


def member(name: str, **fields: Any) -> dict[str, Any]:
    """One that nobody ever reaches."""
    return {"name": name, "http": {"url": f"http://{name}.invalid/mcp"}, **fields}


async def children(
    api: Api, name: str = NAME, *, within: float = 20
) -> dict[tuple[str, str], dict[str, Any]]:
    """Every child of the group, once all are there, by plural and name."""
    async with asyncio.TaskGroup() as tasks:
        waits = {
            place: tasks.create_task(api.wait_for(*place, lambda _: True, within=within))
            for place in places(name)
        }
    return {place: task.result() for place, task in waits.items()}


def condition(found: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """One condition of a group's status; empty when there is none."""
    conditions = found.get("status", {}).get("conditions", ())
    return next((dict(c) for c in conditions if c["type"] == kind), {})


def says(kind: str, status: str, reason: str | None = None) -> Any:
    """For waits: whether a condition has this status and reason, for the newest generation."""

    def holds(found: Mapping[str, Any]) -> bool:
        said = condition(found, kind)
        return (
            said.get("status") == status
            and reason in (None, said.get("reason"))
            and said.get("observedGeneration") == found["metadata"]["generation"]
        )

    return holds
