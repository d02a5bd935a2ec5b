"""An MCP server on the SDK whose tools ask the client, in the way of whichever era it is spoken to.

    python asking.py stdio | http PORT

Tools: `ask` (form elicitation; argument `question`), `ask_live`, which needs a session for it,
`ask_twice`, `sample`, `roots`, `quick`, `log`, which logs three messages and reports progress, and
`ask_then_log`.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import mcp_types as types
from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp.server.mcpserver.resolve import ElicitationResult  # noqa: TC002 - read at run time
from pydantic import BaseModel

server = MCPServer("asking")


class Reply(BaseModel):
    answer: str


def question_of_user(question: str) -> Elicit[Reply]:
    return Elicit(question, Reply)


def first_question() -> Elicit[Reply]:
    return Elicit("first", Reply)


def second_question(
    first: Annotated[ElicitationResult[Reply], Resolve(first_question)],
) -> Elicit[Reply]:
    return Elicit("second", Reply)


def words_of_model(text: str) -> Sample:
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    return Sample([message], max_tokens=10)


def roots_of_client() -> ListRoots:
    return ListRoots()


def told(outcome: Any) -> str:
    return outcome.data.answer if outcome.action == "accept" else str(outcome.action)


@server.tool()
async def ask(
    question: str, outcome: Annotated[ElicitationResult[Reply], Resolve(question_of_user)]
) -> str:
    """Ask the user."""
    return told(outcome)


@server.tool()
async def ask_twice(
    first: Annotated[ElicitationResult[Reply], Resolve(first_question)],
    second: Annotated[ElicitationResult[Reply], Resolve(second_question)],
) -> str:
    """Ask the user two questions, one after the other."""
    return f"{told(first)} {told(second)}"


@server.tool()
async def sample(
    text: str, said: Annotated[types.CreateMessageResult, Resolve(words_of_model)]
) -> str:
    """Let the client's model say something."""
    return said.content.text if isinstance(said.content, types.TextContent) else ""


@server.tool()
async def roots(listed: Annotated[types.ListRootsResult, Resolve(roots_of_client)]) -> str:
    """List the client's roots."""
    return " ".join(str(root.uri) for root in listed.roots)


@server.tool()
async def ask_live(question: str, context: Context[Any, Any]) -> str:
    """Ask the user in the way that only a session knows."""
    return told(await context.elicit(question, Reply))


@server.tool()
async def quick() -> str:
    """Answer at once."""
    return "quick"


@server.tool()
async def log(context: Context[Any, Any]) -> str:
    """Log and report progress."""
    await _log(context)
    return "logged"


@server.tool()
async def ask_then_log(
    first: Annotated[ElicitationResult[Reply], Resolve(first_question)], context: Context[Any, Any]
) -> str:
    """Ask the user, then log and report progress."""
    await _log(context)
    return told(first)


async def _log(context: Context[Any, Any]) -> None:
    for number in range(1, 4):
        await context.info(f"message {number}")
        await context.report_progress(number, 3)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
