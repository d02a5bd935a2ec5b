"""All commands under one name."""

from __future__ import annotations

import typer

from mcpgroup_gateway.command.call import call
from mcpgroup_gateway.command.discover import discover
from mcpgroup_gateway.command.explain import explain
from mcpgroup_gateway.command.health import health
from mcpgroup_gateway.command.run import run
from mcpgroup_gateway.command.validate import validate
from mcpgroup_gateway.command.version import version

app = typer.Typer(
    name="mcpgroup",
    help="One highly available MCP endpoint in front of many MCP servers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _command in (run, validate, discover, health, call, explain, version):
    app.command()(_command)
