"""The server that the conformance suite tests: everything it asks for, of both eras.

python tests/conformance/fixture.py stdio
python tests/conformance/fixture.py http --port 0

Over HTTP it keeps sessions, stores events so that broken streams can be resumed, and prints
`listening on http://127.0.0.1:PORT/mcp`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

import anyio  # noqa: E402 - found through the line above
import mcp_types as types  # noqa: E402
import uvicorn  # noqa: E402
from mcp.server.caching import CacheHint  # noqa: E402
from mcp.server.lowlevel import NotificationOptions, Server  # noqa: E402
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity  # noqa: E402
from mcp.server.stdio import stdio_server  # noqa: E402
from mcp.server.streamable_http import EventMessage, EventStore  # noqa: E402
from mcp.server.subscriptions import (  # noqa: E402
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError  # noqa: E402
from tests.conformance import fixture_questions  # noqa: E402, F401 - registers its tools
from tests.conformance.fixture_calls import Call, InputNeeded  # noqa: E402
from tests.conformance.fixture_texts import (  # noqa: E402
    PROMPTS,
    RESOURCES,
    TEMPLATE,
    prompt,
    prompt_contents,
    resource_contents,
)
from tests.conformance.fixture_tools import TOOLS, ToolFailed, text  # noqa: E402

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.models import InitializationOptions
    from mcp.server.session import ServerSession
    from mcp.server.streamable_http import EventCallback

    Context = ServerRequestContext[Any, Any]

NAME = "conformance-fixture"
RETRY_MS = 100
#: Forks have it in common.
ORIGIN = os.getpid()
#: How a change is written between forks.
_KINDS = {ord("t"): "tools", ord("p"): "prompts"}


class Events(EventStore):
    """All events of all streams, in order; the id of an event is its place."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events) - 1)

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        if not last_event_id.isdecimal() or int(last_event_id) >= len(self._events):
            return None
        last = int(last_event_id)
        stream = self._events[last][0]
        for place, (owner, message) in enumerate(self._events[last + 1 :], last + 1):
            if owner == stream and message is not None:
                await send_callback(EventMessage(message, str(place)))
        return stream


class Fixture(Server[dict[str, Any]]):
    """One server process; its lists change for all of its clients at once.

    `siblings` leads to the other processes of the server, where there are any.
    """

    def __init__(self, siblings: socket.socket | None = None) -> None:
        self.siblings = siblings
        self.bus = InMemorySubscriptionBus()
        self.changes = {"tools": 0, "prompts": 0}
        self.sessions: list[ServerSession] = []
        super().__init__(
            NAME,
            version="1.0.0",
            instructions="A server for the conformance suite.",
            cache_hints={
                method: CacheHint(ttl_ms=0, scope="public")
                for method in (
                    "server/discover",
                    "tools/list",
                    "prompts/list",
                    "resources/list",
                    "resources/templates/list",
                    "resources/read",
                )
            },
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.get_prompt,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read_resource,
            on_subscribe_resource=self.accept,
            on_unsubscribe_resource=self.accept,
            on_set_logging_level=self.accept,
            on_completion=self.complete,
            on_subscriptions_listen=ListenHandler(self.bus),
        )
        # A key of this process: another one of the same kind does not take its states.
        sealed = RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME)
        self.middleware = [self.remember, sealed]

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """All lists may change, which the SDK's HTTP transport would not say of itself."""
        changing = notification_options or NotificationOptions(
            prompts_changed=True, tools_changed=True
        )
        return super().create_initialization_options(
            changing, experimental_capabilities, extensions
        )

    async def remember(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Keep the session of each old client, to tell it of changes."""
        if ctx.method == "notifications/initialized":
            self.sessions.append(ctx.session)
        return await call_next(ctx)

    async def announce(self, kind: str) -> None:
        """Have a list changed in all processes of this server."""
        if self.siblings is None:
            await self.change(kind)
        else:
            await asyncio.get_running_loop().sock_sendall(self.siblings, kind[:1].encode())

    async def follow(self) -> None:
        """Change lists as the siblings do."""
        assert self.siblings is not None
        while told := await asyncio.get_running_loop().sock_recv(self.siblings, 64):
            for change in told:
                await self.change(_KINDS[change])

    async def change(self, kind: str) -> None:
        """Replace the entry of a list that is there for this, and tell everybody."""
        self.changes[kind] += 1
        for session in list(self.sessions):
            try:
                if kind == "tools":
                    await session.send_tool_list_changed()
                else:
                    await session.send_prompt_list_changed()
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                self.sessions.remove(session)
        await self.bus.publish(ToolsListChanged() if kind == "tools" else PromptsListChanged())

    def _current(self, kind: str) -> str:
        """A name that only this server ever used, and only until the next change."""
        return f"test_changing_{kind[:-1]}_{ORIGIN}_{self.changes[kind]}"

    # -- tools

    async def list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = [entry for entry, _ in TOOLS.values()]
        if self.changes["tools"]:
            schema = {"type": "object", "properties": {}}
            name = self._current("tools")
            tools.append(types.Tool(name=name, description="Came last", input_schema=schema))
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if params.name not in TOOLS:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        call = Call(context, params, params.arguments or {}, self.announce)
        try:
            return types.CallToolResult(content=await TOOLS[params.name][1](call))
        except InputNeeded as needed:
            return needed.result
        except ToolFailed as failure:
            return types.CallToolResult(content=text(str(failure)), is_error=True)

    # -- prompts

    async def list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        prompts = list(PROMPTS)
        if self.changes["prompts"]:
            prompts.append(prompt(self._current("prompts"), "Came last"))
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        given = params.arguments or {}
        call = Call(context, params, given, self.announce)
        try:
            contents = await prompt_contents(params.name, call)
        except InputNeeded as needed:
            return needed.result
        messages = [types.PromptMessage(role="user", content=content) for content in contents]
        return types.GetPromptResult(messages=messages)

    async def complete(
        self, context: Context, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        words = ["paris", "park", "party", "test", "testing"]
        values = [word for word in words if word.startswith(params.argument.value)]
        completion = types.Completion(values=values, total=len(values), has_more=False)
        return types.CompleteResult(completion=completion)

    # -- resources

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=RESOURCES)

    async def list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[TEMPLATE])

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return types.ReadResourceResult(contents=[resource_contents(str(params.uri))])

    async def accept(self, context: Context, params: Any) -> types.EmptyResult:
        return types.EmptyResult()


async def serve_http(port: int) -> None:
    app = Fixture().streamable_http_app(event_store=Events(), retry_interval=RETRY_MS)
    listener = socket.create_server(("127.0.0.1", port))
    # h11 strips the space around header values, the faster parser does not.
    config = uvicorn.Config(app, log_level="warning", lifespan="on", http="h11")
    # The socket listens already, so that requests that come at once wait rather than fail.
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    await uvicorn.Server(config).serve(sockets=[listener])


async def serve_stdio(server: Fixture) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def run_stdio(siblings: socket.socket, changed: bytes) -> None:
    """Serve in a fork; `changed` are the changes before it came to be."""

    async def serve() -> None:
        siblings.setblocking(False)
        server = Fixture(siblings)
        for change in changed:
            await server.change(_KINDS[change])
        following = asyncio.create_task(server.follow())
        await serve_stdio(server)
        following.cancel()

    warnings.simplefilter("ignore", MCPDeprecationWarning)
    asyncio.run(serve())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("transport", choices=["stdio", "http"])
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore", MCPDeprecationWarning)  # old clients use what is deprecated
    asyncio.run(
        serve_stdio(Fixture()) if options.transport == "stdio" else serve_http(options.port)
    )


if __name__ == "__main__":
    main()
