"""`mcpgroup discover`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from mcpgroup_gateway.command.options import (
    AsJson,
    ManifestPath,
    SecretsFolder,
    folder_of,
    read_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcpgroup_api import McpServerGroup
    from mcpgroup_gateway.core.catalogue import MemberCatalogue, View

_WORDS: Final = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "resourceTemplates": "template",
}


def discover(
    manifest: ManifestPath, *, secrets: SecretsFolder = None, as_json: AsJson = False
) -> None:
    """List what the members offer together, as clients of the group see it.

    Starts or connects to every member and ends them again. Exit code 1 when one cannot be reached.
    """
    from mcpgroup_gateway.command.loop import run_to_end
    from mcpgroup_gateway.command.output import print_json, print_table, printable, progress
    from mcpgroup_gateway.command.visits import visit
    from mcpgroup_gateway.members.upstream import MemberFailure
    from mcpgroup_gateway.serving.discovery import read_catalogue

    group = read_manifest(manifest).group
    folder = folder_of("--secrets", secrets)
    with progress("asking the members") as shown:
        found = run_to_end(
            visit(
                group,
                folder,
                lambda member, upstream: read_catalogue(member.name, upstream),
                told=lambda name: shown.tell(f"{name} has answered"),
            )
        )
    failures = {n: str(f.reason) for n, f in found.items() if isinstance(f, MemberFailure)}
    catalogues = {n: c for n, c in found.items() if not isinstance(c, MemberFailure)}
    entries = _entries(_view(group, catalogues))
    if as_json:
        print_json({"group": group.metadata.name, "entries": entries, "failed": failures})
    else:
        rows = [[e["kind"], e["name"], _members_of(e)] for e in entries]
        print_table(("KIND", "NAME", "MEMBERS"), rows)
        for name, reason in failures.items():
            typer.echo(f"member {name}: {printable(reason, kept='')}", err=True)
    if failures:
        raise typer.Exit(1)


def _view(group: McpServerGroup, catalogues: Mapping[str, MemberCatalogue]) -> View:
    from mcpgroup_gateway.core.catalogue import Catalogue, Member
    from mcpgroup_gateway.core.filters import Filters
    from mcpgroup_gateway.serving.policies import group_policy

    policy = group_policy(group)
    return Catalogue(
        [Member(name, catalogues.get(name)) for name in policy.members],
        names=policy.names,
        filters=Filters(policy.filters, policy.member_filters),
        canary=policy.canary.member if policy.canary is not None else None,
    ).view()


def _entries(view: View) -> list[dict[str, Any]]:
    """Every listed name with the members that serve it, and those whose definition differs."""
    from mcpgroup_gateway.wire.protocol import Kind

    entries = []
    for kind in Kind:
        shadowed: dict[str, list[str]] = {}
        for report in view.shadowed:
            if report.kind is kind:
                shadowed.setdefault(report.name, []).append(report.member)
        for name in view.listing(kind).names:
            resolution = view.resolve(kind, name)
            entries.append(
                {
                    "kind": _WORDS[kind.value],
                    "name": name,
                    "members": list(resolution.members) if resolution is not None else [],
                    "shadowed": shadowed.get(name, []),
                }
            )
    return entries


def _members_of(entry: Mapping[str, Any]) -> str:
    text = ", ".join(entry["members"])
    if entry["shadowed"]:
        text += f" (defined differently by {', '.join(entry['shadowed'])})"
    return text
