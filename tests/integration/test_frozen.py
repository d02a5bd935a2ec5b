"""Processes that stop without ending: a member's, and the gateway's own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from tests.harness.gateway import Gateway, member_of
from tests.harness.members import FaultyHttp, faulty

if TYPE_CHECKING:
    from tests.harness.members import CallLog

HEALTH = {"intervalSeconds": 2, "timeoutSeconds": 1, "unhealthyThreshold": 2}
#: intervalSeconds times unhealthyThreshold, and timeoutSeconds
BOUND = 2 * 2 + 1


async def check_a_frozen_member(gateway: Gateway, pid: int, *, padding: int = 0) -> None:
    """Freeze the member `a` under load: eviction in time, everybody but one answered."""
    arguments = {"padding": "x" * padding}
    usual = await seconds_of_a_call(gateway, 50)
    os.kill(pid, signal.SIGSTOP)
    frozen = time.monotonic()
    try:
        waiting = [
            asyncio.create_task(gateway.call("echo", {"n": n, **arguments})) for n in range(12)
        ]
        # Those that did not meet the frozen member are served at once, as if nothing were.
        done, pending = await asyncio.wait(waiting, timeout=0.5)
        assert len(done) >= 6
        assert pending
        await gateway.wait_for(lambda s: not member_of(s, "a")["inRotation"], timeout=BOUND)
        assert time.monotonic() - frozen <= BOUND
        done, pending = await asyncio.wait(
            waiting, timeout=max(0.0, frozen + BOUND + 1 - time.monotonic())
        )
        assert len(pending) <= 1
        assert all("error" not in task.result().message for task in done)
        # The others are served at full speed meanwhile; the factor is for a busy machine.
        assert await seconds_of_a_call(gateway, 50) < 5 * usual
    finally:
        os.kill(pid, signal.SIGCONT)
    replies = await asyncio.gather(*waiting)
    assert all("error" not in reply.message for reply in replies)
    await gateway.wait_for(lambda s: member_of(s, "a")["inRotation"], timeout=10)


async def seconds_of_a_call(gateway: Gateway, number: int) -> float:
    """The mean over so many calls, one after the other."""
    began = time.monotonic()
    for n in range(number):
        assert "error" not in (await gateway.call("echo", {"n": n})).message
    return (time.monotonic() - began) / number


@pytest.mark.parametrize("padding", [0, 200_000], ids=["small", "more-than-a-pipe-holds"])
async def test_a_frozen_stdio_member_leaves_in_time_and_keeps_at_most_one_caller(
    padding: int,
) -> None:
    members = [faulty(name) for name in ("a", "b", "c")]
    async with Gateway(members=members, health=HEALTH) as gateway:
        await gateway.all_ready()
        pid = (await gateway.member("a"))["pid"]
        await check_a_frozen_member(gateway, pid, padding=padding)


@pytest.mark.parametrize("isolation", ["Shared", "PerSession"])
async def test_a_frozen_http_member_leaves_in_time_and_keeps_at_most_one_caller(
    isolation: str,
) -> None:
    async with FaultyHttp("a") as a, FaultyHttp("b") as b, FaultyHttp("c") as c:
        members = [server.spec(isolation=isolation) for server in (a, b, c)]
        async with Gateway(members=members, health=HEALTH) as gateway:
            await gateway.all_ready()
            await check_a_frozen_member(gateway, a.pid)


async def test_an_http_member_that_freezes_right_after_a_restart_leaves_in_time() -> None:
    async with (
        FaultyHttp("a") as a,
        FaultyHttp("b") as b,
        Gateway(members=[a.spec(isolation="Shared"), b.spec()], health=HEALTH) as gateway,
    ):
        await gateway.all_ready()
        await a.restart()
        os.kill(a.pid, signal.SIGSTOP)
        try:
            # The control session has to be opened anew, and that is what hangs.
            await gateway.wait_for(lambda s: not member_of(s, "a")["inRotation"], timeout=BOUND)
        finally:
            os.kill(a.pid, signal.SIGCONT)
        await gateway.wait_for(lambda s: member_of(s, "a")["inRotation"], timeout=10)


@pytest.mark.parametrize("source", ["stdio", "http"])
async def test_an_idle_group_notices_a_frozen_member_too(source: str) -> None:
    async with FaultyHttp("a") as http, contextlib.AsyncExitStack() as stack:
        members = [http.spec() if source == "http" else faulty("a"), faulty("b")]
        gateway = await stack.enter_async_context(Gateway(members=members, health=HEALTH))
        await gateway.all_ready()
        pid = http.pid if source == "http" else (await gateway.member("a"))["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            await gateway.wait_for(lambda s: not member_of(s, "a")["inRotation"], timeout=BOUND)
        finally:
            os.kill(pid, signal.SIGCONT)


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
        health = {"intervalSeconds": 1, "timeoutSeconds": 1, "unhealthyThreshold": 2}
        async with Gateway(members=members, health=health) as gateway:
            await gateway.all_ready()
            errors: list[object] = []
            going_on = True

            async def caller() -> None:
                while going_on:
                    message = (await gateway.call("sleep", {"seconds": 0.1})).message
                    if "error" in message:
                        errors.append(message)

            callers = [asyncio.create_task(caller()) for _ in range(8)]
            for _ in range(2):
                call = asyncio.create_task(gateway.call("sleep", {"seconds": 2}))
                await gateway.wait_for(lambda s: any(m["inFlight"] for m in s["members"]))
                os.kill(gateway.pid, signal.SIGSTOP)
                await asyncio.sleep(20)
                os.kill(gateway.pid, signal.SIGCONT)
                assert "error" not in (await call).message
                # Long enough for probes that were under way to be judged, and for new ones.
                await asyncio.sleep(3)
                status = await gateway.status()
                assert all(member["inRotation"] for member in status["members"])
            going_on = False
            await asyncio.gather(*callers)
            assert errors == []
            assert await gateway.metric("mcpgroup_evictions_total") == 0
