"""Single-threaded members answer nothing while a tool runs: slow is not dead."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.harness.gateway import Gateway
from tests.harness.members import faulty

if TYPE_CHECKING:
    from tests.harness.members import CallLog

HEALTH = {"intervalSeconds": 1, "timeoutSeconds": 1}


def group(call_log: CallLog) -> Gateway:
    members = [faulty(name, "--single-threaded", *call_log.flags) for name in ("a", "b", "c")]
    return Gateway(members=members, health=HEALTH)


async def test_one_busy_member_finishes_its_call_and_no_second_one_leaves(
    call_log: CallLog,
) -> None:
    async with group(call_log) as gateway:
        await gateway.all_ready()
        busy = asyncio.create_task(gateway.call("busy", {"seconds": 8}))
        entry = (await call_log.until(1, tool="busy"))[0]
        out: set[str] = set()
        while not busy.done():
            status = await gateway.status()
            out |= {m["name"] for m in status["members"] if not m["inRotation"]}
            reply = await gateway.call("echo", {"n": 1})
            assert "error" not in reply.message, reply.message
            await asyncio.sleep(0.05)
        assert "error" not in (await busy).message
        assert call_log.count("busy") == 1
        assert out <= {entry["name"]}
        await gateway.all_ready()


async def test_a_group_whose_members_are_all_busy_keeps_serving(call_log: CallLog) -> None:
    async with group(call_log) as gateway:
        await gateway.all_ready()
        busy = [asyncio.create_task(gateway.call("busy", {"seconds": 8})) for _ in range(3)]
        await call_log.until(3, tool="busy")
        waiting = [asyncio.create_task(gateway.call("echo", {"n": n})) for n in range(3)]
        replies = await asyncio.gather(*busy, *waiting)
        assert all("error" not in reply.message for reply in replies)
        assert call_log.count("busy") == 3
        status = await gateway.all_ready()
        assert status["available"]
        assert not status["circuit"]["open"]
