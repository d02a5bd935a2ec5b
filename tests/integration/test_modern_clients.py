"""Clients of the modern era through a gateway to real members, which speak what they speak."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import mcp
import pytest
from tests.conformance.runs import FIXTURE
from tests.harness.front import Wire, modern, modern_headers
from tests.harness.gateway import Gateway
from tests.harness.members import faulty, stdio
from tests.harness.messages import MODERN

if TYPE_CHECKING:
    from tests.harness.gateway import Reply
    from tests.harness.members import CallLog

CANCEL_SECONDS = 0.1


async def ask(gateway: Gateway, body: dict[str, Any], **changes: str) -> Reply:
    fields = modern_headers(body, **changes)
    headers = {name.replace("_", "-"): value for name, value in fields.items() if value}
    return await gateway.post(json.dumps(body).encode(), headers=headers)


async def test_the_official_client_discovers_lists_and_calls() -> None:
    async with (
        Gateway(members=[faulty("one")]) as gateway,
        mcp.Client(gateway.url, mode=MODERN) as client,
    ):
        tools = await client.list_tools()
        assert "echo" in [tool.name for tool in tools.tools]
        result = await client.call_tool("echo", {"n": 1})
        assert not result.is_error
        assert result.structured_content == {"n": 1}
        steps: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append(progress)

        await client.call_tool("progress", {"steps": 3}, progress_callback=on_progress)
        assert steps == [1, 2, 3]


async def test_a_client_that_finds_out_chooses_the_modern_era() -> None:
    async with (
        Gateway(members=[faulty("one")]) as gateway,
        mcp.Client(gateway.url, mode="auto") as client,
    ):
        discovered = client.session.discover_result
        assert discovered is not None
        assert MODERN in discovered.supported_versions
        assert client.server_info is not None
        assert client.server_info.name == "test"
        assert (await client.call_tool("whoami")).structured_content is not None


async def test_lists_and_errors_are_those_of_the_era() -> None:
    async with Gateway(members=[faulty("one")]) as gateway:
        reply = await ask(gateway, modern("tools/list"))
        assert reply.result["resultType"] == "complete"
        assert reply.result["ttlMs"] >= 0
        assert reply.result["cacheScope"] in ("public", "private")
        unknown = await ask(gateway, modern("tools/call", name="no-such"))
        assert (unknown.status, unknown.error["code"]) == (400, -32602)
        unknown = await ask(gateway, modern("no/such"))
        assert (unknown.status, unknown.error["code"]) == (404, -32601)
        unread = await ask(gateway, modern("resources/read", uri="no://such"))
        assert (unread.status, unread.error["code"]) == (400, -32602)


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream"])
async def test_a_client_that_goes_away_cancels_at_the_member(
    accept: str, call_log: CallLog
) -> None:
    async with Gateway(members=[faulty("one", *call_log.flags)]) as gateway:
        port = int(gateway.url.rsplit(":", 1)[1].split("/")[0])
        wire = Wire(*await asyncio.open_connection("127.0.0.1", port))
        body = modern("tools/call", name="sleep", arguments={"seconds": 60})
        wire.request(body, **modern_headers(body, accept=accept))
        await call_log.until(1, tool="sleep")
        wire.abort()
        left = time.monotonic()
        (cancelled,) = await call_log.until(1, event="cancelled")
        assert cancelled["at"] - left < CANCEL_SECONDS
        member = await gateway.member("one")
        assert member["inRotation"]


async def test_arguments_that_come_in_headers_are_sent_and_checked() -> None:
    command = [sys.executable, str(FIXTURE), "stdio"]
    members = [stdio("one", command), stdio("two", command)]
    async with Gateway(members=members) as gateway:
        await gateway.all_ready()
        async with mcp.Client(gateway.url, mode=MODERN) as client:
            await client.list_tools()  # the schema says which arguments are repeated
            arguments = {"region": "Zürich", "count": 7}
            result = await client.call_tool("test_x_mcp_header", arguments)
            assert "Zürich" in str(result.content)
        for tool in ("test_x_mcp_header", "two__test_x_mcp_header"):
            body = modern("tools/call", name=tool, arguments={"region": "eu"})
            assert (await ask(gateway, body, mcp_param_region="eu")).status == 200
            for region in ("", "us"):
                refused = await ask(gateway, body, mcp_param_region=region)
                assert (refused.status, refused.error["code"]) == (400, -32020)
