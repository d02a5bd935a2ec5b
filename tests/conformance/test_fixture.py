"""The fixture itself passes what the suite asks: the measure for the gateway in front of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import mcp
import pytest
from mcp.client.stdio import StdioServerParameters
from tests.conformance.runs import FIXTURE, RUNS, FixtureHttp, named, unpassed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.runs import Run

pytestmark = pytest.mark.timeout(300)  # the first run installs the suite


@pytest.mark.parametrize("run", RUNS, ids=str)
async def test_the_fixture_passes_every_required_scenario(run: Run, tmp_path: Path) -> None:
    async with FixtureHttp("direct") as fixture:
        outcomes = await run.against(fixture.url, tmp_path)
    faults = unpassed(run, outcomes)
    assert not faults, named(faults)
    assert run.required <= outcomes.keys()
    passed = {name for name, o in outcomes.items() if o.passed and not o.required}
    assert passed == run.optional


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_fixture_offers_over_stdio_what_it_offers_over_http(mode: str) -> None:
    command = StdioServerParameters(command=sys.executable, args=[str(FIXTURE), "stdio"])
    offered = []
    async with FixtureHttp("direct") as fixture:
        for target in (command, fixture.url):
            async with mcp.Client(target, mode=mode) as client:
                tools = (await client.list_tools()).tools
                prompts = (await client.list_prompts()).prompts
                resources = (await client.list_resources()).resources
                said = (await client.call_tool("test_simple_text", {})).content
                offered.append((tools, prompts, resources, said))
    assert offered[0] == offered[1]
