"""Arguments and options that several commands share, and how wrong use is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from mcpgroup_gateway.manifest import Manifest

ManifestPath = Annotated[
    str, typer.Argument(metavar="MANIFEST", help="File of a McpServerGroup; - is standard input.")
]
SecretsFolder = Annotated[
    str | None,
    typer.Option(
        "--secrets", metavar="DIR", help="Values of Secrets: files DIR/<name>/<key>, as in a pod."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TenantName = Annotated[str | None, typer.Option("--tenant", metavar="T", help="Tenant that asks.")]


def wrong_use(text: str) -> NoReturn:
    """End with exit code 2 and a sentence that says what to do instead."""
    raise typer.BadParameter(text)


def no(text: str) -> NoReturn:
    """End with exit code 1: the command was right and the answer is no."""
    typer.echo(text, err=True)
    raise typer.Exit(1)


def read_manifest(path: str) -> Manifest:
    """The manifest of a command's argument; its faults go to stderr and end the command."""
    from mcpgroup_gateway.manifest import ManifestError, read

    try:
        return read(path)
    except ManifestError as error:
        no(str(error))


def folder_of(option: str, folder: str | None) -> Path | None:
    """The folder that an option names."""
    if folder is None:
        return None
    path = Path(folder)
    if not path.is_dir():
        wrong_use(f"{option} must name a folder, {folder} is none")
    return path
