"""HTTP members that restart or forget: callers see nothing of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.harness.gateway import Gateway
from tests.harness.members import FaultyHttp

if TYPE_CHECKING:
    from tests.harness.members import CallLog


@pytest.mark.parametrize("isolation", ["Shared", "PerSession"])
@pytest.mark.parametrize("status", ["404", "400"])
async def test_a_restarted_member_costs_one_initialize_and_no_caller_an_error(
    status: str, isolation: str, call_log: CallLog
) -> None:
    async with (
        FaultyHttp("a", "--unknown-session", status, *call_log.flags) as a,
        Gateway(members=[a.spec(isolation=isolation)]) as gateway,
    ):
        await gateway.all_ready()
        session = await gateway.open_session()
        assert "error" not in (await gateway.call("count", session=session)).message
        await a.restart()
        replies = await asyncio.gather(*(gateway.call("count", session=session) for _ in range(20)))
        assert [reply.message.get("error") for reply in replies] == [None] * 20
        assert call_log.count("count") == 21
        assert (await gateway.member("a"))["inRotation"]
        assert await gateway.metric("mcpgroup_evictions_total") == 0


async def test_connections_that_the_member_closed_while_idle_fail_no_unsafe_call(
    call_log: CallLog,
) -> None:
    async with (
        FaultyHttp("a", "--keep-alive-seconds", "0.2", *call_log.flags) as a,
        Gateway(members=[a.spec()]) as gateway,
    ):
        await gateway.all_ready()
        session = await gateway.open_session()
        for n in range(30):
            reply = await gateway.call("count", session=session)
            assert "error" not in reply.message, reply.message
            # Around the moment at which the member closes.
            await asyncio.sleep(0.19 + (n % 5) * 0.005)
        assert call_log.count("count") == 30
