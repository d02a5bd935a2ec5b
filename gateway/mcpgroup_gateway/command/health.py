"""`mcpgroup health`"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from mcpgroup_gateway.command.options import (
    AsJson,
    ManifestPath,
    SecretsFolder,
    folder_of,
    read_manifest,
)

if TYPE_CHECKING:
    from mcpgroup_api import McpServerGroup, Member
    from mcpgroup_gateway.members.upstream import MemberFailure, Upstream


def health(
    manifest: ManifestPath, *, secrets: SecretsFolder = None, as_json: AsJson = False
) -> None:
    """Reach every member and ping it once. Exit code 1 when any is down.

    Starts or connects to every member and ends them again; a running gateway is not asked.
    """
    from mcpgroup_gateway.command.loop import run_to_end
    from mcpgroup_gateway.command.output import print_json, print_table, progress
    from mcpgroup_gateway.command.visits import visit

    group = read_manifest(manifest).group
    folder = folder_of("--secrets", secrets)

    async def timed_ping(_: Member, upstream: Upstream) -> float:
        return await _ping(upstream, group)

    with progress("reaching the members") as shown:
        found = run_to_end(
            visit(group, folder, timed_ping, told=lambda name: shown.tell(f"{name} is tried"))
        )
    members = [_described(name, outcome) for name, outcome in found.items()]
    if as_json:
        print_json({"group": group.metadata.name, "members": members})
    else:
        print_table(
            ("MEMBER", "STATUS", "LATENCY", "ERROR"),
            [
                [m["name"], m["status"], _milliseconds(m["latencySeconds"]), m["error"] or ""]
                for m in members
            ],
        )
    if any(member["status"] == "Down" for member in members):
        raise typer.Exit(1)


async def _ping(upstream: Upstream, group: McpServerGroup) -> float:
    """Seconds until any answer: an error is one, too (DESIGN-MCP section 5)."""
    import asyncio

    from mcpgroup_gateway.core.outcomes import Failure
    from mcpgroup_gateway.members.upstream import MemberFailure

    limit = group.spec.health.timeout_seconds
    began = time.perf_counter()
    exchange = upstream.request("ping", b"{}", safe=True)
    try:
        async with asyncio.timeout(limit):
            while not (await exchange.next()).is_response:
                pass
    except TimeoutError:
        text = f"no answer to ping within {limit} s"
        raise MemberFailure(Failure.PROBE_TIMEOUT, text, sent=True) from None
    finally:
        exchange.close()
    return time.perf_counter() - began


def _described(name: str, outcome: float | MemberFailure) -> dict[str, Any]:
    if isinstance(outcome, float):
        return {"name": name, "status": "Up", "latencySeconds": round(outcome, 6), "error": None}
    return {"name": name, "status": "Down", "latencySeconds": None, "error": outcome.reason}


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"
