"""An MCP server on the SDK whose tools ask the client; over stdio or HTTP, of any era.

    python asking.py stdio | http PORT

Tools: `ask` (form elicitation; argument `question`), `sample`, `roots`, `ask_twice`, `quick`, and
`whoami`, which tells the client's name and capabilities.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("asking")

SCHEMA: Any = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}


async def _elicit(context: Context[Any, Any], question: str) -> str:
    result = await context.session.elicit_form(
        question, SCHEMA, related_request_id=context.request_id
    )
    return json.dumps({"action": result.action, "content": result.content})


@server.tool()
async def ask(question: str, context: Context[Any, Any]) -> str:
    """Ask the user."""
    return await _elicit(context, question)


@server.tool()
async def ask_twice(context: Context[Any, Any]) -> str:
    """Ask the user two questions, one after the other."""
    return await _elicit(context, "first") + await _elicit(context, "second")


@server.tool()
async def sample(text: str, context: Context[Any, Any]) -> str:
    """Let the client's model say something."""
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    result = await context.session.create_message(
        [message], max_tokens=10, related_request_id=context.request_id
    )
    return str(result.content.text if isinstance(result.content, types.TextContent) else "")


@server.tool()
async def roots(context: Context[Any, Any]) -> str:
    """List the client's roots."""
    result = await context.session.list_roots()
    return " ".join(str(root.uri) for root in result.roots)


@server.tool()
async def quick() -> str:
    """Answer at once."""
    return "quick"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
