"""`mcpgroup run`"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from mcpgroup_gateway.command.options import (
    ManifestPath,
    SecretsFolder,
    folder_of,
    wrong_use,
)


class LogFormat(StrEnum):
    """How log lines look."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """From which level on lines are logged."""

    DEBUG = "Debug"
    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"


def run(
    manifest: ManifestPath,
    *,
    host: Annotated[str, typer.Option(help="Address that clients reach.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of /mcp; 0: any free one.")
    ] = 8080,
    admin_host: Annotated[str, typer.Option(help="Address of the admin port.")] = "127.0.0.1",
    admin_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Admin port; 0: any free one.")
    ] = 9090,
    secrets: SecretsFolder = None,
    keys: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Keys that replicas share, as files; missing ones are made where DIR can be"
            " written. Default: an admin token for this process, printed at its start.",
            show_default=False,
        ),
    ] = None,
    ignore_unknown_keys: Annotated[
        bool,
        typer.Option(
            "--ignore-unknown-keys",
            help="The manifest was rendered by an operator, which may be newer: fields that are"
            " not known here are told and ignored.",
        ),
    ] = False,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(help="Default: console on a terminal, else json.", show_default=False),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(case_sensitive=False)] = LogLevel.INFO,
    request_log: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="One JSON line a request; - is standard error."),
    ] = None,
    request_log_sample: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the requests that is logged.")
    ] = 1.0,
    request_log_max_mb: Annotated[
        int, typer.Option(min=1, help="Size in MiB at which FILE is rotated; three old ones stay.")
    ] = 100,
    request_log_arguments: Annotated[
        bool, typer.Option("--request-log-arguments", help="Log arguments too, secrets redacted.")
    ] = False,
) -> None:
    """Serve a group: one endpoint for MCP clients, one admin port for people and probes.

    The file is watched: a valid change is taken over live, an invalid one is refused and told.
    Ends on SIGTERM and Ctrl-C once calls in flight have ended.
    """
    import sys

    folder, keys_folder = folder_of("--secrets", secrets), folder_of("--keys", keys)
    if request_log is None and (request_log_arguments or request_log_sample < 1):
        wrong_use("--request-log-sample and --request-log-arguments need --request-log")
    if log_format is None:
        log_format = LogFormat.CONSOLE if sys.stderr.isatty() else LogFormat.JSON

    from mcpgroup_gateway.replica.options import RunOptions
    from mcpgroup_gateway.replica.running import run as run_replica

    raise typer.Exit(
        run_replica(
            RunOptions(
                manifest_path=manifest,
                host=host,
                port=port,
                admin_host=admin_host,
                admin_port=admin_port,
                secrets_dir=folder,
                keys_dir=keys_folder,
                ignore_unknown_keys=ignore_unknown_keys,
                log_format=log_format.value,
                log_level=log_level.value,
                request_log=request_log,
                request_log_sample=request_log_sample,
                request_log_max_mb=request_log_max_mb,
                request_log_arguments=request_log_arguments,
            )
        )
    )
