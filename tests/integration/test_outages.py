"""Members that are down for a while, one or all: who sees it, and how it heals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from tests.harness.gateway import Gateway, member_of
from tests.harness.members import FaultyHttp, faulty

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

#: Seconds after which service must be back once members can start.
BACK = 10
THRESHOLD = 6


class Outage(Protocol):
    """Members that can be made to go down and to stay down until they may come back."""

    members: list[dict[str, Any]]

    async def down(self, status: dict[str, Any]) -> None: ...

    async def may_start(self) -> None: ...


class StdioOutage:
    def __init__(self, directory: Path, *, names: str, broken: str) -> None:
        self.broken = broken
        self._permit = directory / "may-start"
        self._permit.touch()
        flags = ("--fail-start-until-file", str(self._permit))
        self.members = [faulty(name, *(flags if name in broken else ())) for name in names]

    async def down(self, status: dict[str, Any]) -> None:
        self._permit.unlink()
        for name in self.broken:
            os.kill(member_of(status, name)["pid"], signal.SIGKILL)

    async def may_start(self) -> None:
        self._permit.touch()


class HttpOutage:
    def __init__(self, servers: list[FaultyHttp], broken: str) -> None:
        self.members = [server.spec() for server in servers]
        self._broken = [server for server in servers if server.name in broken]

    async def down(self, status: dict[str, Any]) -> None:
        for server in self._broken:
            await server.stop()

    async def may_start(self) -> None:
        for server in self._broken:
            await server.start()


@contextlib.asynccontextmanager
async def outage(source: str, directory: Path, *, broken: str) -> AsyncIterator[Outage]:
    if source == "stdio":
        yield StdioOutage(directory, names="abc", broken=broken)
        return
    async with FaultyHttp("a") as a, FaultyHttp("b") as b, FaultyHttp("c") as c:
        yield HttpOutage([a, b, c], broken)


def is_back(status: dict[str, Any], name: str) -> bool:
    member = member_of(status, name)
    return member["state"] == "Ready" and bool(member["inRotation"])


@pytest.mark.parametrize("source", ["stdio", "http"])
async def test_one_of_three_members_that_is_down_is_seen_by_no_caller_and_rejoins(
    source: str, tmp_path: Path
) -> None:
    async with (
        outage(source, tmp_path, broken="a") as members,
        Gateway(members=members.members) as gateway,
    ):
        await members.down(await gateway.all_ready())
        end = time.monotonic() + 15
        while time.monotonic() < end:
            message = (await gateway.call("whoami")).message
            assert "error" not in message, message
            await asyncio.sleep(0.02)
        assert not (await gateway.member("a"))["inRotation"]
        await members.may_start()
        # Without traffic and without rebalance.
        await gateway.wait_for(lambda s: is_back(s, "a"), timeout=BACK)


async def test_a_member_that_never_started_is_seen_by_no_caller_and_joins(tmp_path: Path) -> None:
    permit = tmp_path / "may-start"
    members = [faulty("a", "--fail-start-until-file", str(permit)), faulty("b"), faulty("c")]
    async with Gateway(members=members) as gateway:
        end = time.monotonic() + 15
        while time.monotonic() < end:
            message = (await gateway.call("whoami")).message
            assert "error" not in message, message
            await asyncio.sleep(0.02)
        permit.touch()
        await gateway.wait_for(lambda s: is_back(s, "a"), timeout=BACK)


@pytest.mark.parametrize(
    ("source", "with_calls"), [("stdio", False), ("stdio", True), ("http", True)]
)
async def test_a_group_that_is_down_as_a_whole_says_so_and_heals_by_itself(
    source: str, with_calls: bool, tmp_path: Path
) -> None:
    # Over HTTP nothing but probes and calls tells of it: often enough for this test.
    health = {"intervalSeconds": 2, "timeoutSeconds": 1}
    circuit = {"failureThreshold": THRESHOLD}
    async with (
        outage(source, tmp_path, broken="abc") as members,
        Gateway(members=members.members, health=health, circuitBreaker=circuit) as gateway,
    ):
        status = await gateway.all_ready()
        down = time.monotonic()
        await members.down(status)
        await gateway.wait_for(lambda s: not s["available"], timeout=10)
        if with_calls:
            await check_refusals_are_immediate(gateway)
        status = await gateway.wait_for(lambda s: s["circuit"]["open"], timeout=15)
        assert status["circuit"]["consecutiveFailures"] >= THRESHOLD
        assert status["state"] == "Degraded"
        assert not status["available"]
        await check_refusals_are_immediate(gateway)
        await asyncio.sleep(max(0.0, down + 20 - time.monotonic()))
        assert not (await gateway.status())["available"]
        began = time.monotonic()
        await members.may_start()
        status = await gateway.wait_for(lambda s: s["available"], timeout=BACK)
        message = (await gateway.call("whoami")).message
        assert "error" not in message, (message, status, await gateway.status())
        assert time.monotonic() - began <= BACK
        assert not status["circuit"]["open"]


async def check_refusals_are_immediate(gateway: Gateway) -> None:
    """For some time, so that calls meet members between two starts and within one."""
    for _ in range(100):
        asked = time.monotonic()
        error = (await gateway.call("whoami")).error
        assert time.monotonic() - asked < 1
        assert error["code"] == -31001
        assert error["data"]["mayHaveRun"] is False
        await asyncio.sleep(0.02)


async def test_a_command_that_does_not_exist_is_said_plainly() -> None:
    members = [{"name": "a", "stdio": {"command": ["no-such-program"]}}, faulty("b")]
    async with Gateway(members=members) as gateway:
        member = await gateway.wait_state("a", "Failed")
        assert "no-such-program" in member["lastError"]
        assert "error" not in (await gateway.call("whoami")).message
