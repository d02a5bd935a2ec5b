"""A member that dies ends the streams of its calls at once, and no others."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.harness.eras import ERAS, KINDS, TwoEras

if TYPE_CHECKING:
    from pathlib import Path

PROGRESS = "notifications/progress"


@pytest.mark.parametrize("era", ERAS)
async def test_a_member_that_dies_ends_its_open_streams_with_31003(
    tmp_path: Path, era: str
) -> None:
    async with TwoEras(tmp_path) as group, group.client(era, listening=True) as client:
        calls = {
            member: client.call(member, "sleep", {"word": "x", "say": True}, token=member)
            for member in KINDS
        }
        for call in calls.values():
            await call.first(PROGRESS)
        if era == "modern":
            listening = await client.listen(toolsListChanged=True)
        else:
            listening = client.heard
        left = dict(calls)
        for member in KINDS:
            call = left.pop(member)
            began = time.monotonic()
            await group.kill(member)
            answer = await call.answer()
            assert time.monotonic() - began < 2, member
            assert answer["id"] == call.id
            fault = answer["error"]
            assert fault["code"] == -31003, (member, fault)
            assert (fault["data"]["mayHaveRun"], fault["data"]["retryable"]) == (True, False)
            assert fault["data"]["member"] == member
            await call.finished()
            assert not [other for other, each in left.items() if each.ended]
            assert not listening.ended


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_ends_its_own_process_ends_only_calls_of_that_process(
    tmp_path: Path, era: str
) -> None:
    async with (
        TwoEras(tmp_path, ["lown", "mown"]) as group,
        group.client("legacy") as other,
        group.client(era) as client,
    ):
        for member in ("lown", "mown"):
            bystander = other.call(member, "sleep", {"say": True}, token=1)
            await bystander.first(PROGRESS)
            asleep = client.call(member, "sleep", {"say": True}, token=2)
            await asleep.first(PROGRESS)
            answer = await client.call(member, "die").answer()
            assert answer["error"]["code"] == -31003, answer
            assert (await asleep.answer())["error"]["code"] == -31003
            assert not bystander.ended, "its session is another process"
            # The next call opens another one.
            assert (await client.text(member, "count"))["count"] == 1
