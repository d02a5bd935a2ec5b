"""What real servers send besides answers reaches a client through a gateway as it does directly."""

from __future__ import annotations

import asyncio
import contextlib
import re
import warnings
from typing import TYPE_CHECKING, Any

import anyio
import mcp
import mcp_types as types
import pytest
from tests.harness.gateway import Gateway
from tests.harness.kinds import KINDS
from tests.harness.transcript import Participant, comparable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.harness.kinds import Kind
    from tests.harness.transcript import Target

MODERN = "2026-07-28"
DOCUMENT = "demo://resource/static/document/features.md"
GRAPH = "memory://knowledge-graph"
ANN = {"name": "Ann", "entityType": "person", "observations": []}
BY_NAME = {kind.name: kind for kind in KINDS}
EVERYTHING = [kind for kind in KINDS if kind.name.startswith("everything")]

#: What makes a server tell of a resource, and what the resource is.
UPDATES = [
    *((kind, DOCUMENT, "toggle-subscriber-updates", {}) for kind in EVERYTHING),
    (BY_NAME["memory"], GRAPH, "create_entities", {"entities": [ANN]}),
]


class Listener:
    """Keeps the messages of a server that are no answers."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Any] = asyncio.Queue()

    async def __call__(self, message: Any) -> None:
        if isinstance(message, types.ServerNotification):
            await self.messages.put(message)

    async def until(self, kind: type[Any]) -> Any:
        async with asyncio.timeout(10):
            while not isinstance(message := await self.messages.get(), kind):
                pass
        return message


async def logged_by(target: Target) -> str:
    """The first message that a legacy client gets after it began the simulated logging."""
    listener = Listener()
    async with mcp.Client(target, mode="legacy", message_handler=listener) as client:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mcp.MCPDeprecationWarning)
            await client.set_logging_level("debug")
        await client.call_tool("toggle-simulated-logging")
        message = await listener.until(types.LoggingMessageNotification)
    # The level is drawn by lot; a session's identifier follows where there are sessions.
    assert message.params.level in message.params.data.lower()
    return re.sub(r"\w+(-level | level-)message|[0-9a-f-]{36}", "…", message.params.data)


@pytest.mark.parametrize("kind", EVERYTHING, ids=str)
async def test_a_member_logs_outside_of_calls(kind: Kind, tmp_path: Path) -> None:
    async with kind.opened(tmp_path) as (member, direct), Gateway(members=[member]) as gateway:
        await gateway.all_ready()
        assert await logged_by(gateway.url) == await logged_by(direct.target)


async def updated_by(target: Target, uri: str, tool: str, arguments: dict[str, Any]) -> str:
    """The resource that a legacy client with a subscription is told of after a call."""
    listener = Listener()
    async with mcp.Client(target, mode="legacy", message_handler=listener) as client:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mcp.MCPDeprecationWarning)
            await client.subscribe_resource(uri)
        await client.call_tool(tool, arguments)
        message = await listener.until(types.ResourceUpdatedNotification)
    return str(message.params.uri)


@pytest.mark.parametrize(("kind", "uri", "tool", "arguments"), UPDATES, ids=str)
async def test_a_member_tells_a_legacy_client_that_subscribed(
    kind: Kind, uri: str, tool: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    kind.prepare(folder)
    async with kind.opened(folder) as (member, direct), Gateway(members=[member]) as gateway:
        await gateway.all_ready()
        assert await updated_by(direct.target, uri, tool, arguments) == uri
        assert await updated_by(gateway.url, uri, tool, arguments) == uri


@pytest.mark.parametrize(("kind", "uri", "tool", "arguments"), UPDATES, ids=str)
async def test_a_member_tells_a_modern_client_that_listens(
    kind: Kind, uri: str, tool: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    """Of a member that all share: these servers tell the session that asked them to begin."""
    folder = tmp_path / "data"
    kind.prepare(folder)
    async with (
        kind.opened(folder) as (member, _),
        Gateway(members=[{**member, "isolation": "Shared"}]) as gateway,
    ):
        await gateway.all_ready()
        async with (
            mcp.Client(gateway.url, mode=MODERN) as client,
            client.listen(resource_subscriptions=[uri]) as events,
        ):
            await client.call_tool(tool, arguments)
            async with asyncio.timeout(10):
                event = await anext(aiter(events))
            assert str(getattr(event, "uri", None)) == uri


@contextlib.asynccontextmanager
async def connected(target: Target, **callbacks: Any) -> AsyncIterator[mcp.Client]:
    """A legacy client. That of the SDK fails when it closes while a server of the old transport
    still says something: what it has seen by then counts all the same."""
    done = False
    try:
        async with mcp.Client(target, mode="legacy", **callbacks) as client:
            yield client
            done = True
    except* anyio.BrokenResourceError:
        if not done:
            raise


async def answered_by(client: mcp.Client, arguments: dict[str, Any]) -> dict[str, Any]:
    """The answer, or the error and its data."""
    try:
        result = await client.call_tool("trigger-url-elicitation", arguments)
    except mcp.MCPError as error:
        return dict(comparable({"code": error.code, "message": error.message, **error.data}))
    return dict(comparable(result.model_dump(mode="json", by_alias=True, exclude_none=True)))


@pytest.mark.parametrize("kind", EVERYTHING, ids=str)
async def test_a_member_wants_an_address_opened_before_it_answers(
    kind: Kind, tmp_path: Path
) -> None:
    """A legacy client gets the error -32042 and calls again; a modern one is asked at once."""
    page = {"url": "https://example.com/", "elicitationId": "e1", "errorPath": True}
    async with kind.opened(tmp_path) as (member, direct), Gateway(members=[member]) as gateway:
        await gateway.all_ready()
        seen = []
        for target in (direct.target, gateway.url):
            person = Participant()
            async with connected(target, **person.callbacks) as client:
                answers = [await answered_by(client, page) for _ in range(2)]
            assert answers[0]["code"] == -32042
            seen.append((answers, person.asked))
        assert seen[0] == seen[1]
        person = Participant()
        async with mcp.Client(gateway.url, mode=MODERN, **person.callbacks) as client:
            assert await answered_by(client, page) == seen[0][0][1]
        assert [asked["url"] for asked in person.asked] == [
            "https://modelcontextprotocol.io",
            "https://example.com/",
        ]
