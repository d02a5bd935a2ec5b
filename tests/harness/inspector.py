"""The command line of the official inspector: a client on the TypeScript SDK."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.npm import NodePackages, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

VERSION = "2.12.0"
_PACKAGE = "@modelcontextprotocol/inspector"
_INSPECTOR = NodePackages(f"inspector-{VERSION}", (f"{_PACKAGE}@{VERSION}",), oldest_node=22)
_SECONDS = 60


@dataclass(frozen=True)
class Shown:
    """What it printed: the JSON on its standard output, an error from its standard error."""

    status: int
    output: Any
    error: Any


def command() -> list[str]:
    """The command without arguments; skips the test where it cannot be had."""
    try:
        script = _INSPECTOR.install() / ".bin" / "mcp-inspector"
        return [_INSPECTOR.node(), str(script), "--cli"]
    except Unavailable as why:
        pytest.skip(f"no inspector: {why}")


async def inspect(target: Sequence[str], era: str, request: Sequence[str], home: Path) -> Shown:
    """Connect to `target` in an era (`legacy`, `auto`, `modern`), make one request.

    `target` is a command, or an address and `--transport`; `request` begins with `--method`. It
    may write to `home`.
    """
    options = ["--format", "json", "--quiet", "--connect-timeout", f"{_SECONDS * 1000}"]
    process = await asyncio.create_subprocess_exec(
        *[*command(), *options, "--protocol-era", era, *target, *request],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "HOME": str(home)},
    )
    try:
        async with asyncio.timeout(_SECONDS):
            output, error = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Shown(process.returncode, _json(output), _json(error.splitlines()[-1] if error else b""))


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")
