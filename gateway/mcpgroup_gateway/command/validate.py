"""`mcpgroup validate`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from mcpgroup_gateway.command.options import AsJson, ManifestPath  # noqa: TC001 - typer reads annotations

if TYPE_CHECKING:
    from mcpgroup_gateway.manifest import Fault


def validate(manifest: ManifestPath, *, as_json: AsJson = False) -> None:
    """Check a manifest: one line per fault, file:line: field: what is allowed.

    Warnings are told and do not fail.
    """
    from mcpgroup_gateway.command.output import print_json, printable
    from mcpgroup_gateway.manifest import ManifestError, read

    try:
        found = read(manifest)
    except ManifestError as error:
        if as_json:
            faults = [_described(error.source, fault) for fault in error.faults]
            print_json({"valid": False, "faults": faults, "warnings": []})
        else:
            for fault in error.faults:
                typer.echo(printable(fault.at(error.source), kept=""))
        raise typer.Exit(1) from None
    if as_json:
        warnings = [_described(found.source, warning) for warning in found.warnings]
        print_json({"valid": True, "faults": [], "warnings": warnings})
        return
    for warning in found.warnings:
        text = warning._replace(text=f"warning: {warning.text}")
        typer.echo(printable(text.at(found.source), kept=""))
    group = found.group
    count = len(group.spec.members)
    typer.echo(
        f"{found.source}: group {group.metadata.name} is valid,"
        f" {count} {'member' if count == 1 else 'members'}"
    )


def _described(source: str, fault: Fault) -> dict[str, object]:
    return {"file": source, "line": fault.line, "field": fault.path, "text": fault.text}
