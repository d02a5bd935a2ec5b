"""A read-only tool that ends the process that runs it: it must not take the group with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.harness.gateway import Gateway
from tests.harness.members import faulty

if TYPE_CHECKING:
    from tests.harness.members import CallLog


@pytest.mark.parametrize("threshold", [1, 2])
async def test_a_poisoned_call_takes_down_at_most_two_members(
    call_log: CallLog, threshold: int
) -> None:
    members = [faulty(name, *call_log.flags) for name in ("a", "b", "c", "d")]
    async with Gateway(members=members, health={"unhealthyThreshold": threshold}) as gateway:
        status = await gateway.all_ready()
        pids = {member["name"]: member["pid"] for member in status["members"]}
        first = await gateway.call("crash", {"poison": 1})
        assert first.error["code"] == -31003

        async def in_a_loop() -> list[int]:
            return [(await gateway.call("crash", {"poison": 1})).error["code"] for _ in range(10)]

        async def others() -> None:
            for n in range(40):
                assert "error" not in (await gateway.call("echo", {"n": n})).message

        other_calls = asyncio.create_task(others())
        loops = await asyncio.gather(*(in_a_loop() for _ in range(7)))
        await other_calls
        assert {code for codes in loops for code in codes} == {-31006}
        assert call_log.count("crash") == 2
        status = await gateway.all_ready()
        died = [m["name"] for m in status["members"] if m["pid"] != pids[m["name"]]]
        assert len(died) == 2
        # Other arguments are another call, and refusals are told apart.
        error = (await gateway.call("crash", {"poison": 1})).error
        assert error["data"]["reason"] == "suspectedPoison"
        assert 0 < error["data"]["retryAfterMs"] <= 60_000
        assert await gateway.metric("mcpgroup_refusals_total", reason="poison") == 71
