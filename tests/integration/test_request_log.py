"""`mcpgroup run --request-log`, with a real gateway."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.harness.gateway import Gateway
from tests.harness.members import faulty
from tests.harness.processes import until

if TYPE_CHECKING:
    from pathlib import Path


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_each_request_is_one_line_and_secrets_in_arguments_are_not_in_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "requests.log"
    flags = ("--request-log", str(path), "--request-log-arguments")
    async with Gateway(members=[faulty("a"), faulty("b")], flags=flags) as gateway:
        session = await gateway.open_session()
        await gateway.call("echo", {"text": "hello", "password": "hunter2"}, session=session)
        await gateway.call("no_such_tool")
        await until(lambda: len(lines_of(path)) >= 3)
        calls = [line for line in lines_of(path) if line["method"] == "tools/call"]

    assert [(c.get("name"), c["outcome"], c["attempts"]) for c in calls] == [
        ("echo", "ok", 1),
        (None, "invalid", 0),
    ]
    assert calls[0]["member"] in {"a", "b"}
    assert calls[0]["arguments"]["text"] == "hello"
    text = path.read_text()
    assert "hunter2" not in text
    assert session not in text


async def test_a_sample_of_zero_logs_no_request(tmp_path: Path) -> None:
    path = tmp_path / "requests.log"
    flags = ("--request-log", str(path), "--request-log-sample", "0")
    async with Gateway(members=[faulty("a")], flags=flags) as gateway:
        await gateway.call("echo", {"text": "hello"})
        assert await gateway.terminate() == 0
    assert lines_of(path) == []
