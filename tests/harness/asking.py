"""A client that answers what members ask, and the server that asks (`tests/servers/asking.py`)."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mcp
import mcp_types as types
from tests.harness.members import HttpMember, stdio
from tests.harness.processes import ROOT

if TYPE_CHECKING:
    from mcp.client.context import ClientRequestContext

SERVER = ROOT / "tests" / "servers" / "asking.py"


def asking(name: str = "asking", **fields: Any) -> dict[str, Any]:
    """The asking server as a process for each client session."""
    fields.setdefault("isolation", "PerSession")
    return stdio(name, [sys.executable, str(SERVER), "stdio"], **fields)


class AskingHttp(HttpMember):
    """The asking server over streamable HTTP, one for all."""

    def __init__(self, name: str = "asking") -> None:
        super().__init__(name)

    def command(self) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, str(SERVER), "http", str(self.port)], {}


@dataclass
class Person:
    """Answers in upper case, after `delay` seconds; `asked` is set at the first question."""

    delay: float = 0.0
    action: str = "accept"
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    questions: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)

    def client(self, url: str, mode: str) -> mcp.Client:
        return mcp.Client(
            url,
            mode=mode,
            elicitation_callback=self._elicit,
            sampling_callback=self._sample,
            list_roots_callback=self._roots,
            logging_callback=self._log,
        )

    async def _elicit(self, context: ClientRequestContext, params: Any) -> types.ElicitResult:
        self.questions.append(params.message)
        self.asked.set()
        await asyncio.sleep(self.delay)
        if self.action != "accept":
            return types.ElicitResult(action=self.action)
        return types.ElicitResult(action="accept", content={"answer": params.message.upper()})

    async def _sample(self, context: ClientRequestContext, params: Any) -> Any:
        text = types.TextContent(type="text", text=f"said {params.messages[0].content.text}")
        return types.CreateMessageResult(role="assistant", content=text, model="m")

    async def _roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///home")])

    async def _log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logged.append(str(params.data))


async def text_of(client: mcp.Client, tool: str, **arguments: Any) -> str:
    """The text of a tool's result."""
    result = await client.call_tool(tool, arguments)
    content = result.content[0]
    assert isinstance(content, types.TextContent)
    return content.text
