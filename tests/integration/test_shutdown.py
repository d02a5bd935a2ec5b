"""The end of a gateway at bad moments: what it started is gone, whatever it was doing."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.gateway import Gateway, member_of
from tests.harness.members import FaultyHttp, faulty
from tests.harness.processes import alive, until

if TYPE_CHECKING:
    from tests.harness.members import CallLog

STUBBORN = ("--ignore-sigterm", "--ignore-eof", "--grandchild")


def below(gateway: Gateway) -> list[int]:
    return [process.pid for process in gateway.descendants()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_more_signals_change_nothing(number: signal.Signals, call_log: CallLog) -> None:
    async with Gateway(members=[faulty("a", *STUBBORN, *call_log.flags)]) as gateway:
        await gateway.all_ready()
        call = asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 2}))
        await call_log.until(1)
        pids = below(gateway)
        gateway.running.send(number)
        await gateway.wait_for(lambda status: bool(status["draining"]))
        gateway.running.send(number)
        gateway.running.send(signal.SIGTERM)
        assert (await call).text == "a slept 2 s"
        gateway.running.send(number)  # while it waits for the last arrivals
        assert await gateway.running.exited(15) == 0
        assert alive(pids) == []


async def test_a_removed_member_that_is_being_ended_is_not_left_behind() -> None:
    members = [faulty("a"), faulty("b", *STUBBORN)]
    async with Gateway(members=members) as gateway:
        await gateway.all_ready()
        pids = below(gateway)
        assert len(pids) >= 3  # b has a child
        await gateway.reload(members=members[:1])  # b takes 4 s to end
        assert await gateway.terminate(15) == 0
        assert alive(pids) == []


async def test_replacements_that_never_served_are_not_left_behind(call_log: CallLog) -> None:
    async with Gateway(members=[faulty("a", *call_log.flags)]) as gateway:
        await gateway.all_ready()
        call = asyncio.create_task(gateway.call("sleep", {"seconds": 3}))
        await call_log.until(1)
        before = below(gateway)
        gateway.write({**gateway.spec, "members": [faulty("a", "--start-delay", "60", *STUBBORN)]})
        await until(lambda: len(below(gateway)) > len(before))
        pids = below(gateway)
        gateway.running.send(signal.SIGTERM)
        assert (await call).text == "a slept 3 s"
        assert await gateway.running.exited(15) == 0
        assert alive(pids) == []


async def test_many_stubborn_members_are_ended_at_the_same_time() -> None:
    members = [faulty(f"m{number}", *STUBBORN) for number in range(8)]
    async with (
        FaultyHttp("frozen") as frozen,
        Gateway(members=[*members, frozen.spec()]) as gateway,
    ):
        await gateway.all_ready()
        pids = below(gateway)
        assert len(pids) >= 16  # each has a child
        os.kill(frozen.pid, signal.SIGSTOP)
        began = time.monotonic()
        assert await gateway.terminate(30) == 0
        # 2 s for late arrivals, 2 s after EOF, 2 s after SIGTERM, and not eight times that.
        assert time.monotonic() - began < 12
        assert alive(pids) == []


async def test_processes_of_sessions_are_ended_at_the_same_time_as_those_of_members() -> None:
    async with Gateway(members=[faulty("a", *STUBBORN, isolation="PerSession")]) as gateway:
        await gateway.all_ready()
        session = await gateway.open_session()
        assert (await gateway.call("echo", {"text": "x"}, session=session)).status == 200
        pids = below(gateway)
        assert len(pids) >= 4  # two processes with a child each
        began = time.monotonic()
        assert await gateway.terminate(20) == 0
        # 2 s of quiet, then 4 s until a stubborn process is killed; one after the other it is 10.
        assert time.monotonic() - began < 8.5
        assert alive(pids) == []


async def test_members_end_by_themselves_when_the_gateway_is_killed() -> None:
    async with Gateway(members=[faulty("a"), faulty("b", "--ignore-sigterm")]) as gateway:
        await gateway.all_ready()
        pids = below(gateway)
        assert len(pids) == 2
        gateway.running.send(signal.SIGKILL)
        assert await gateway.running.exited(5) == -signal.SIGKILL
        await until(lambda: not alive(pids))


async def test_a_gateway_that_is_told_to_end_while_its_members_start_ends() -> None:
    members: list[dict[str, Any]] = [faulty("a", "--start-delay", "60", *STUBBORN)]
    async with Gateway(members=members, wait_ready=False) as gateway:
        await gateway.wait_for(lambda s: member_of(s, "a")["state"] == "Starting")
        await until(lambda: bool(below(gateway)))
        pids = below(gateway)
        assert await gateway.terminate(15) == 0
        assert alive(pids) == []
