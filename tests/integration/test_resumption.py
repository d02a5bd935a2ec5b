"""A long call through a gateway process whose connection is cut: everything arrives, once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import mcp
import pytest
from tests.harness.cutter import Cutter
from tests.harness.gateway import Gateway
from tests.harness.members import FaultyHttp, faulty

from mcpgroup_gateway.wire.sse import Event, EventParser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STEPS = 12
DELAY = 0.2


@contextlib.asynccontextmanager
async def cut_off(transport: str) -> AsyncIterator[tuple[Gateway, Cutter]]:
    """A gateway with one member, and the proxy in front of it."""
    async with contextlib.AsyncExitStack() as stack:
        if transport == "stdio":
            member = faulty("a")
        else:
            member = (await stack.enter_async_context(FaultyHttp("a", "--sse"))).spec()
        gateway = await stack.enter_async_context(Gateway(members=[member]))
        await gateway.all_ready()
        yield gateway, await stack.enter_async_context(Cutter(gateway.url))


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("before", [1, 7])
async def test_the_official_client_gets_every_progress_and_the_answer_once(
    transport: str, before: int
) -> None:
    # One cut: from the second on this client asks with the id of the first again, and sees
    # progress twice whatever the server does.
    async with cut_off(transport) as (_, cutter):
        seen: list[float] = []

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            seen.append(progress)
            if len(seen) == before:
                cutter.cut()

        async with mcp.Client(cutter.url, mode="legacy") as client:
            result = await client.call_tool(
                "progress", {"steps": STEPS, "delay": DELAY}, progress_callback=progressed
            )
            assert not result.is_error
            assert seen == list(range(1, STEPS + 1))
            # The session lives on.
            assert not (await client.call_tool("echo", {"text": "after"})).is_error


class RawClient:
    """A session of bytes that comes back for its streams as often as need be."""

    def __init__(self, http: aiohttp.ClientSession, url: str, session: str) -> None:
        self.http = http
        self.url = url
        self.headers = {"Mcp-Session-Id": session, "Accept": "application/json, text/event-stream"}
        self.events: list[Event] = []
        self.resumed = 0

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "t"}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        request = self.http.post(self.url, json=body, headers=self.headers)
        while not await self._read(request):
            self.resumed += 1
            last = self.events[-1].id
            request = self.http.get(self.url, headers={**self.headers, "Last-Event-ID": last})
        answer: dict[str, Any] = json.loads(self.events[-1].data)
        return answer

    async def _read(self, request: Any) -> bool:
        """Whether the answer came before the connection ended."""
        parser = EventParser(1 << 24)
        try:
            async with request as response:
                assert response.status == 200, await response.text()
                async for data in response.content.iter_any():
                    for event in parser.feed(data):
                        self.events.append(event)
                        if event.data and "id" in json.loads(event.data):
                            return True
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.05)
        return False

    @property
    def progress(self) -> list[float]:
        messages = [json.loads(event.data) for event in self.events if event.data]
        return [each["params"]["progress"] for each in messages if "params" in each]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_connection_that_is_cut_again_and_again_loses_and_repeats_nothing(
    transport: str,
) -> None:
    async with (
        cut_off(transport) as (gateway, cutter),
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http,
    ):
        client = RawClient(http, cutter.url, await gateway.open_session())

        async def cutting() -> None:
            while True:
                await asyncio.sleep(0.11)
                # In the middle of an event or of a chunk, wherever that is.
                cutter.passing = 400 + 37 * (cutter.cuts % 11)

        async with asyncio.TaskGroup() as group:
            cuts = group.create_task(cutting())
            answer = await client.call("progress", {"steps": 60, "delay": 0.05})
            cuts.cancel()
        assert answer["id"] == 1
        assert "result" in answer
        assert client.progress == list(range(1, 61))
        assert client.resumed >= 3
        numbered = [event.id for event in client.events if event.data]
        assert numbered == [f"p1-{number}" for number in range(1, len(numbered) + 1)]


async def test_an_answer_that_was_cut_in_the_middle_comes_again() -> None:
    async with (
        cut_off("http") as (gateway, cutter),
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http,
    ):
        client = RawClient(http, cutter.url, await gateway.open_session())
        asking = asyncio.create_task(client.call("log", {"text": "x" * 300_000, "count": 3}))
        cutter.passing = 700_000
        assert "result" in await asking
        assert client.resumed == 1
        numbers = [
            json.loads(event.data)["params"]["data"]["number"]
            for event in client.events
            if b"params" in event.data[:60]
        ]
        assert numbers == [0, 1, 2]


async def streams_open(gateway: Gateway, number: int) -> None:
    while await gateway.metric("mcpgroup_streams_open") != number:  # noqa: ASYNC110  # of a process
        await asyncio.sleep(0.01)


async def test_the_standing_stream_of_the_official_client_survives_a_cut() -> None:
    async with cut_off("stdio") as (gateway, cutter):
        changes = asyncio.Semaphore(0)

        async def told(message: Any) -> None:
            if "list_changed" in str(getattr(message, "method", message)):
                changes.release()

        async with (
            mcp.Client(cutter.url, mode="legacy", message_handler=told) as client,
            asyncio.timeout(30),
        ):
            await client.call_tool("change_tools", {"name": "first"})
            await changes.acquire()
            await streams_open(gateway, 1)
            cutter.cut()
            await streams_open(gateway, 0)
            await client.call_tool("change_tools", {"name": "second"})
            await changes.acquire()
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert {"first", "second"} <= set(names)
