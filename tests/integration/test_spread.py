"""Each strategy, as clients of a running gateway meet it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.gateway import Gateway, member_of
from tests.harness.members import FaultyHttp, faulty

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.members import CallLog, Control


async def order(gateway: Gateway, number: int) -> str:
    """The members that served so many calls, one after the other."""
    return "".join([(await gateway.call("whoami")).text for _ in range(number)])


async def test_round_robin_is_exact() -> None:
    async with Gateway(members=[faulty(name) for name in "abc"]) as gateway:
        await gateway.all_ready()
        served = await order(gateway, 30)
        assert served == served[:3] * 10
        assert sorted(served[:3]) == ["a", "b", "c"]


async def test_weights_of_five_one_one_are_smooth() -> None:
    members = [faulty("a", weight=5), faulty("b"), faulty("c")]
    async with Gateway(members=members, strategy="WeightedRoundRobin") as gateway:
        await gateway.all_ready()
        assert await order(gateway, 14) == "aabacaa" * 2


async def test_eighty_to_twenty_holds_within_one_percent_over_a_thousand_calls() -> None:
    members = [faulty("a", weight=80), faulty("b", weight=20)]
    async with Gateway(members=members, strategy="WeightedRoundRobin") as gateway:
        await gateway.all_ready()

        async def caller() -> list[str]:
            return [(await gateway.call("whoami")).text for _ in range(125)]

        served = Counter(chain.from_iterable(await asyncio.gather(*[caller() for _ in range(8)])))
        assert served.total() == 1000
        assert abs(served["a"] - 800) <= 10


async def test_priority_fails_over_and_fails_back() -> None:
    async with FaultyHttp("a") as first:
        members = [first.spec(priority=1), faulty("b", priority=2), faulty("c", priority=3)]
        spec: dict[str, Any] = {"health": {"intervalSeconds": 1, "timeoutSeconds": 1}}
        async with Gateway(members=members, strategy="Priority", **spec) as gateway:
            await gateway.all_ready()
            assert await order(gateway, 10) == "a" * 10
            await first.stop()
            assert await order(gateway, 10) == "b" * 10
            await gateway.wait_for(lambda s: not member_of(s, "a")["inRotation"])
            assert await order(gateway, 10) == "b" * 10
            await first.start()
            await gateway.all_ready()
            assert await order(gateway, 10) == "a" * 10


async def test_least_connections_prefers_the_idle_member_while_one_is_slow(
    call_log: CallLog,
) -> None:
    members = [faulty(name, *call_log.flags) for name in "ab"]
    async with Gateway(members=members, strategy="LeastConnections") as gateway:
        await gateway.all_ready()
        slow = asyncio.create_task(gateway.call("sleep", {"seconds": 60}))
        busy = (await call_log.until(1, tool="sleep"))[0]["name"]
        idle = {"a": "b", "b": "a"}[busy]
        assert await order(gateway, 50) == idle * 50
        slow.cancel()


@pytest.mark.parametrize("threshold", [1, 2], ids=["evicted", "kept"])
@pytest.mark.parametrize("strategy", ["RoundRobin", "WeightedRoundRobin"])
async def test_a_member_that_flaps_every_other_call_leaves_the_others_equal(
    strategy: str, threshold: int, control: Control
) -> None:
    control.set(fail_every=2)
    members = [faulty("a"), faulty("b", *control.flags), faulty("c")]
    spec: dict[str, Any] = {
        "strategy": strategy,
        "memberBreaker": {"failureThreshold": 0},
        "health": {"intervalSeconds": 1, "timeoutSeconds": 1, "unhealthyThreshold": threshold},
        "retry": {"budgetPercent": 100},
    }
    async with Gateway(members=members, **spec) as gateway:
        await gateway.all_ready()
        served: Counter[str] = Counter()
        evictions = 0.0
        while served.total() < 300 or (threshold == 1 and evictions < 2):
            served.update(await order(gateway, 20))
            evictions = await gateway.metric("mcpgroup_evictions_total", member="b")
        assert evictions == 0 if threshold == 2 else evictions >= 2
        assert await gateway.metric("mcpgroup_failovers_total") > 1
        assert abs(served["a"] - served["c"]) <= 1, served


@pytest.mark.parametrize("key", ["Session", "Tenant", "Header"])
async def test_consistent_hash_keeps_each_key_on_its_member(key: str) -> None:
    spec: dict[str, Any] = {"consistentHash": {"key": key}}
    if key == "Header":
        spec["consistentHash"]["header"] = "X-Client-ID"
    if key == "Tenant":
        spec["tenant"] = {"header": "X-Tenant-ID"}
    header = {"Tenant": "X-Tenant-ID", "Header": "X-Client-ID"}.get(key)
    members = [faulty(name) for name in "abc"]
    async with Gateway(members=members, strategy="ConsistentHash", **spec) as gateway:
        await gateway.all_ready()
        chosen: Counter[str] = Counter()
        for number in range(24):
            session = await gateway.open_session() if header is None else None
            headers = {} if header is None else {header: f"key-{number}"}
            served = {
                (await gateway.call("whoami", session=session, headers=headers)).text
                for _ in range(4)
            }
            assert len(served) == 1
            chosen.update(served)
        assert len(chosen) == 3


async def test_locality_prefers_members_of_its_region_while_there_are_any(tmp_path: Path) -> None:
    up = tmp_path / "up"
    up.touch()
    near = faulty("near", "--fail-start-until-file", str(up), region="eu")
    members = [faulty("far", region="us"), near, faulty("none")]
    locality = {"region": "eu", "mode": "Prefer"}
    async with Gateway(members=members, locality=locality) as gateway:
        await gateway.all_ready()
        assert {(await gateway.call("whoami")).text for _ in range(6)} == {"near"}
        up.unlink()
        os.kill((await gateway.member("near"))["pid"], signal.SIGKILL)
        await gateway.wait_state("near", "Failed")
        assert {(await gateway.call("whoami")).text for _ in range(6)} == {"far", "none"}
        up.touch()
        await gateway.all_ready()
        assert {(await gateway.call("whoami")).text for _ in range(6)} == {"near"}
        await gateway.reload(locality={"region": "eu", "mode": "Ignore"})
        assert {(await gateway.call("whoami")).text for _ in range(6)} == {"far", "near", "none"}
