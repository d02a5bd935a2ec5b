"""The command line of the official inspector: one tool, prompt and resource of each real server."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.gateway import Gateway
from tests.harness.inspector import inspect
from tests.harness.kinds import KINDS
from tests.harness.transcript import comparable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.harness.inspector import Shown
    from tests.harness.kinds import Kind

pytestmark = pytest.mark.timeout(300)  # the first run installs it

ERAS = ("legacy", "auto", "modern")
DOCUMENT = "demo://resource/static/document/features.md"


def tool(name: str, **arguments: Any) -> list[str]:
    named = ["--method", "tools/call", "--tool-name", name]
    return [*named, "--tool-args-json", json.dumps(arguments)]


def prompt(name: str, *arguments: str) -> list[str]:
    named = ["--method", "prompts/get", "--prompt-name", name]
    return [*named, "--prompt-args", *arguments] if arguments else named


def resource(uri: str) -> list[str]:
    return ["--method", "resources/read", "--uri", uri]


def requests(kind: Kind, folder: Path) -> list[list[str]]:
    where = str(folder)
    zones = {"source_timezone": "UTC", "target_timezone": "Asia/Kathmandu"}
    thought = {"thought": "hm", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}
    everything = [
        tool("echo", message="café 😀 \u0000"),
        prompt("args-prompt", "city=Zürich"),
        resource(DOCUMENT),
    ]
    return {
        "time": [tool("convert_time", time="12:00", **zones)],
        "fetch": [
            tool("fetch", url="http://127.0.0.1:9/"),
            prompt("fetch", "url=http://127.0.0.1:9/"),
        ],
        "git": [tool("git_log", repo_path=where)],
        "everything": everything,
        "everything-http": everything,
        "everything-sse": everything,
        "filesystem": [tool("list_directory", path=where)],
        "memory": [tool("read_graph"), resource("memory://knowledge-graph")],
        "thinking": [tool("sequentialthinking", **thought)],
        "asking": [tool("quick")],
        "asking-http": [tool("log")],
    }[str(kind)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_the_inspector_shows_the_same(kind: Kind, tmp_path: Path) -> None:
    folder, home = tmp_path / "data", tmp_path / "home"
    home.mkdir()
    kind.prepare(folder)
    turns = asyncio.Semaphore(2)

    async def shown(target: Sequence[str], era: str, request: Sequence[str]) -> Shown:
        async with turns:
            return await inspect(target, era, request, home)

    async with kind.opened(folder) as (member, direct), Gateway(members=[member]) as gateway:
        await gateway.all_ready()
        eras = ERAS if kind.modern else ERAS[:1]
        for request in requests(kind, folder):
            expected = await asyncio.gather(
                *(shown(direct.inspected, era, request) for era in eras)
            )
            through = await asyncio.gather(
                *(shown([gateway.url, "--transport", "http"], era, request) for era in ERAS)
            )
            assert "result" in expected[0].output, expected[0]
            for era, seen in zip(ERAS, through, strict=True):
                one = expected[ERAS.index(era)] if kind.modern else expected[0]
                assert _facts(seen) == _facts(one), (era, request)


def _facts(shown: Shown) -> tuple[int, Any, Any]:
    return shown.status, comparable(shown.output.get("result")), shown.error
