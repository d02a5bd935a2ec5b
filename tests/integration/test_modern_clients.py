"""The official client of the modern era through a gateway to a real member."""

from __future__ import annotations

import mcp
from tests.harness.gateway import Gateway
from tests.harness.members import faulty


async def test_the_official_client_discovers_lists_and_calls() -> None:
    async with (
        Gateway(members=[faulty("one")]) as gateway,
        mcp.Client(gateway.url, mode="2026-07-28") as client,
    ):
        tools = await client.list_tools()
        assert "echo" in [tool.name for tool in tools.tools]
        result = await client.call_tool("echo", {"n": 1})
        assert not result.is_error
