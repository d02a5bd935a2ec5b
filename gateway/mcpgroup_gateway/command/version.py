"""`mcpgroup version`"""

from __future__ import annotations

import typer

from mcpgroup_gateway import __version__
from mcpgroup_gateway.command.options import AsJson  # noqa: TC001 - typer reads annotations


def version(*, as_json: AsJson = False) -> None:
    """Print the version."""
    if as_json:
        from mcpgroup_gateway.command.output import print_json

        print_json({"version": __version__})
    else:
        typer.echo(f"mcpgroup {__version__}")
