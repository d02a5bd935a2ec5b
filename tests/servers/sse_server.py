"""A server that speaks the old HTTP+SSE transport only, on the official SDK.

python tests/servers/sse_server.py --port 0 [--path /sse] [--call-counter FILE]

Prints `listening on http://127.0.0.1:PORT/sse`. POST to that path is answered with 405.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import time
import warnings
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context  # noqa: TC002 - the SDK reads the annotations
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import BaseModel

warnings.simplefilter("ignore", MCPDeprecationWarning)

server = MCPServer("old-sse", version="1", instructions="This is the old transport.")
arguments = argparse.Namespace()


def record(event: str, tool: str, args: dict[str, Any]) -> None:
    """Append to the file that `tests.harness.members.CallLog` reads."""
    if arguments.call_counter:
        entry = {"event": event, "name": "old-sse", "tool": tool, "id": 0, "args": args}
        with open(arguments.call_counter, "a", encoding="utf-8") as file:
            file.write(json.dumps({**entry, "at": time.monotonic()}) + "\n")


@server.tool()
async def echo(text: str) -> str:
    """Give the text back."""
    record("call", "echo", {"text": text})
    return text


@server.tool()
async def sleep(seconds: float) -> str:
    """Sleep."""
    record("call", "sleep", {"seconds": seconds})
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        record("cancelled", "sleep", {"seconds": seconds})
        raise
    return "slept"


@server.tool()
async def progress(steps: int, ctx: Context) -> str:
    """Report each step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return "done"


@server.tool()
async def log(text: str, ctx: Context) -> str:
    """Log a warning."""
    await ctx.log("warning", text)
    return "logged"


@server.tool()
async def big(size: int) -> str:
    """That many letters."""
    return "x" * size


class Answer(BaseModel):
    answer: str


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask the client."""
    found = await ctx.elicit("which city?", Answer)
    return found.data.answer if found.action == "accept" else found.action


@server.tool()
async def crash() -> str:
    """End the process at once."""
    os._exit(1)


@server.resource("old://greeting")
def greeting() -> str:
    return "hello"


@server.prompt(name="welcome")
def greet(who: str) -> str:
    return f"Greet {who}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--path", default="/sse")
    parser.add_argument("--call-counter", metavar="FILE")
    parser.parse_args(namespace=arguments)
    app = server.sse_app(sse_path=arguments.path)
    listener = socket.create_server(("127.0.0.1", arguments.port), backlog=256)
    port = listener.getsockname()[1]
    print(f"listening on http://127.0.0.1:{port}{arguments.path}", file=sys.stderr, flush=True)
    config = uvicorn.Config(app, log_level="error", ws="none")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
