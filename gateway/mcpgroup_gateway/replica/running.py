"""The process of a replica, from its options to its exit code."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from mcpgroup_gateway import manifest
from mcpgroup_gateway.manifest import ManifestError
from mcpgroup_gateway.replica.composition import Replica

if TYPE_CHECKING:
    from mcpgroup_gateway.manifest import Manifest
    from mcpgroup_gateway.replica.options import RunOptions


def run(options: RunOptions) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code: 0, or 1 when it could not start."""
    try:
        loaded = manifest.read(options.manifest_path, rendered=options.ignore_unknown_keys)
    except ManifestError as error:
        print(error, file=sys.stderr)
        return 1
    for note in (*loaded.warnings, *loaded.for_pods):
        print(note.at(loaded.source), file=sys.stderr)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_main(options, loaded))
    code: int = uvloop.run(_main(options, loaded))
    return code


async def _main(options: RunOptions, loaded: Manifest) -> int:
    replica = Replica(options, loaded)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(replica.close)
        try:
            await replica.start()
        except OSError as error:
            print(f"mcpgroup: cannot listen: {error.strerror or error}", file=sys.stderr)
            return 1
        where = f"{replica.context.name} on {replica.url}, admin on {replica.admin_url}"
        print(f"mcpgroup: group {where}", flush=True)
        if replica.admin_token.printed is not None:
            print(f"mcpgroup: admin token: {replica.admin_token.printed}", flush=True)
        await stop.wait()
        await replica.drain()
    return 0
