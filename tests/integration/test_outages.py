"""Members that cannot start for a while, one or all: who sees it, and how it heals."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING

from tests.harness.gateway import Gateway, member_of
from tests.harness.members import faulty

if TYPE_CHECKING:
    from pathlib import Path


async def test_one_of_three_members_that_cannot_start_is_seen_by_no_caller_and_rejoins(
    tmp_path: Path,
) -> None:
    permit = tmp_path / "may-start"
    permit.touch()
    members = [faulty("a", "--fail-start-until-file", str(permit)), faulty("b"), faulty("c")]
    async with Gateway(members=members) as gateway:
        await gateway.all_ready()
        permit.unlink()
        os.kill((await gateway.member("a"))["pid"], signal.SIGKILL)
        end = time.monotonic() + 15
        while time.monotonic() < end:
            message = (await gateway.call("whoami")).message
            assert "error" not in message, message
            await asyncio.sleep(0.02)
        assert not (await gateway.member("a"))["inRotation"]
        permit.touch()
        can_start = time.monotonic()
        # Without traffic and without rebalance.
        await gateway.wait_for(
            lambda s: member_of(s, "a")["state"] == "Ready" and member_of(s, "a")["inRotation"],
            timeout=10,
        )
        assert time.monotonic() - can_start <= 10


async def test_a_group_that_is_down_as_a_whole_says_so_and_heals_by_itself(
    tmp_path: Path,
) -> None:
    permit = tmp_path / "may-start"
    permit.touch()
    names = ("a", "b", "c")
    members = [faulty(name, "--fail-start-until-file", str(permit)) for name in names]
    async with Gateway(members=members, circuitBreaker={"failureThreshold": 6}) as gateway:
        status = await gateway.all_ready()
        permit.unlink()
        down = time.monotonic()
        for member in status["members"]:
            os.kill(member["pid"], signal.SIGKILL)
        await gateway.wait_for(lambda s: not s["available"], timeout=10)
        asked = time.monotonic()
        error = (await gateway.call("whoami")).error
        assert time.monotonic() - asked < 1
        assert error["code"] == -31001
        assert error["data"]["mayHaveRun"] is False
        # No call from here on: failed starts alone open the circuit.
        status = await gateway.wait_for(lambda s: s["circuit"]["open"], timeout=20)
        assert status["state"] == "Degraded"
        assert not status["available"]
        await asyncio.sleep(max(0.0, down + 20 - time.monotonic()))
        permit.touch()
        can_start = time.monotonic()
        status = await gateway.wait_for(lambda s: s["available"], timeout=10)
        assert time.monotonic() - can_start <= 10
        assert not status["circuit"]["open"]
        assert "error" not in (await gateway.call("whoami")).message


async def test_a_command_that_does_not_exist_is_said_plainly() -> None:
    members = [{"name": "a", "stdio": {"command": ["no-such-program"]}}, faulty("b")]
    async with Gateway(members=members) as gateway:
        member = await gateway.wait_state("a", "Failed")
        assert "no-such-program" in member["lastError"]
        assert "error" not in (await gateway.call("whoami")).message
