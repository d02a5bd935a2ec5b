"""Processes that stop without ending: a member's, and the gateway's own."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING

from tests.harness.gateway import Gateway, member_of
from tests.harness.members import FaultyHttp, faulty

if TYPE_CHECKING:
    from tests.harness.members import CallLog

HEALTH = {"intervalSeconds": 1, "timeoutSeconds": 1, "unhealthyThreshold": 2}
#: intervalSeconds times unhealthyThreshold, and timeoutSeconds
BOUND = 1 * 2 + 1


async def check_a_frozen_member(gateway: Gateway, pid: int) -> None:
    """Freeze the member `a` under load: eviction in time, everybody but one answered."""
    # Waiting calls and a caller in a loop; each call that meets the frozen member waits.
    os.kill(pid, signal.SIGSTOP)
    frozen = time.monotonic()
    try:
        waiting = [asyncio.create_task(gateway.call("echo", {"n": n})) for n in range(12)]
        await gateway.wait_for(lambda s: not member_of(s, "a")["inRotation"], timeout=BOUND + 1)
        assert time.monotonic() - frozen <= BOUND + 0.5
        done, pending = await asyncio.wait(
            waiting, timeout=max(0.0, frozen + BOUND + 1 - time.monotonic())
        )
        assert len(pending) <= 1
        assert all("error" not in task.result().message for task in done)
        # The others are served at full speed meanwhile.
        began = time.monotonic()
        for n in range(50):
            assert "error" not in (await gateway.call("echo", {"n": n})).message
        assert time.monotonic() - began < 2
    finally:
        os.kill(pid, signal.SIGCONT)
    replies = await asyncio.gather(*waiting)
    assert all("error" not in reply.message for reply in replies)
    await gateway.wait_for(lambda s: member_of(s, "a")["inRotation"], timeout=10)


async def test_a_frozen_stdio_member_leaves_in_time_and_keeps_at_most_one_caller() -> None:
    members = [faulty(name) for name in ("a", "b", "c")]
    async with Gateway(members=members, health=HEALTH) as gateway:
        await gateway.all_ready()
        await check_a_frozen_member(gateway, (await gateway.member("a"))["pid"])


async def test_a_frozen_http_member_leaves_in_time_and_keeps_at_most_one_caller() -> None:
    async with FaultyHttp("a") as a, FaultyHttp("b") as b, FaultyHttp("c") as c:
        members = [server.spec() for server in (a, b, c)]
        async with Gateway(members=members, health=HEALTH) as gateway:
            await gateway.all_ready()
            await check_a_frozen_member(gateway, a.pid)


async def test_new_sessions_do_not_hang_on_a_frozen_http_member(call_log: CallLog) -> None:
    async with (
        FaultyHttp("a") as a,
        FaultyHttp("b", *call_log.flags) as b,
        Gateway(members=[a.spec(), b.spec()], health=HEALTH) as gateway,
    ):
        await gateway.all_ready()
        os.kill(a.pid, signal.SIGSTOP)
        try:
            sessions = [await gateway.open_session() for _ in range(4)]
            began = time.monotonic()
            replies = await asyncio.gather(
                *(gateway.call("count", session=session) for session in sessions)
            )
            # Nothing of these unsafe calls was sent to the frozen one: they may all move.
            assert all("error" not in reply.message for reply in replies)
            assert time.monotonic() - began <= BOUND + 1
            assert call_log.count("count") == 4
        finally:
            os.kill(a.pid, signal.SIGCONT)


async def test_a_gateway_that_was_stopped_itself_evicts_nobody() -> None:
    async with FaultyHttp("h") as http:
        members = [faulty("a"), faulty("b"), http.spec()]
        async with Gateway(members=members, health=HEALTH) as gateway:
            await gateway.all_ready()
            for _ in range(2):
                call = asyncio.create_task(gateway.call("sleep", {"seconds": 2}))
                await gateway.wait_for(lambda s: any(m["inFlight"] for m in s["members"]))
                os.kill(gateway.pid, signal.SIGSTOP)
                await asyncio.sleep(20)
                os.kill(gateway.pid, signal.SIGCONT)
                assert "error" not in (await call).message
                await asyncio.sleep(3)
                status = await gateway.status()
                assert all(member["inRotation"] for member in status["members"])
            assert await gateway.metric("mcpgroup_evictions_total") == 0
