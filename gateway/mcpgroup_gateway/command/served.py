"""A group served for the time of one command: `mcpgroup run` as a process beside this one."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import tempfile
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.command.options import no

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from typing import IO

    from mcpgroup_api import McpServerGroup

_ANNOUNCED: Final = re.compile(rb" on (http://\S+/mcp)\b")
_START_SECONDS: Final = 30
_SHOWN_LOG_BYTES: Final = 4096


@contextlib.asynccontextmanager
async def served(group: McpServerGroup, secrets: Path | None) -> AsyncIterator[str]:
    """The URL of `/mcp` on a free port of loopback. Ends the command when it does not start.

    The process is ended by SIGTERM and so ends its members; it is in a session of its own, so that
    Ctrl-C reaches this command alone, which then ends it.
    """
    with (
        tempfile.NamedTemporaryFile(prefix="mcpgroup-", suffix=".json") as file,
        tempfile.TemporaryFile() as log,
    ):
        file.write(group.model_dump_json(exclude_unset=True).encode())
        file.flush()
        options = ["--port", "0", "--admin-port", "0", "--log-format", "console"]
        if secrets is not None:
            options += ["--secrets", str(secrets)]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mcpgroup_gateway", "run", file.name),
            *options,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield await _announced_url(process, log)
        finally:
            if process.returncode is None:
                process.terminate()
            # Its standard output is one line; nobody has to read on for it to end.
            await asyncio.shield(process.wait())


async def _announced_url(process: asyncio.subprocess.Process, log: IO[bytes]) -> str:
    assert process.stdout is not None  # noqa: S101 - it was asked for
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while line := await process.stdout.readline():
                if found := _ANNOUNCED.search(line):
                    return found[1].decode()
            await process.wait()  # it has closed its output: nothing is left but its end
    log.seek(0)
    text = log.read()[-_SHOWN_LOG_BYTES:].decode("utf-8", "replace").strip()
    return no(f"the group could not be served: {text}")
