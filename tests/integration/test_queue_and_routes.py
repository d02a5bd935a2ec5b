"""Concurrency limits with their queue, routes with fallback chains, and resource tags."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from tests.harness.gateway import Gateway, member_of
from tests.harness.members import FaultyHttp, faulty

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.members import CallLog


async def queued(gateway: Gateway, number: int) -> None:
    await gateway.wait_for(lambda s: sum(m["queued"] for m in s["members"]) == number)


async def test_calls_over_the_limit_wait_and_are_served_in_the_order_they_came(
    call_log: CallLog,
) -> None:
    members = [faulty("a", *call_log.flags, maxConcurrentRequests=1)]
    async with Gateway(members=members, limits={"queueMilliseconds": 20000}) as gateway:
        await gateway.all_ready()
        calls = [asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 1, "n": 0}))]
        await call_log.until(1, tool="sleep_unsafe")
        for n in range(1, 5):
            arguments = {"seconds": 0.05, "n": n}
            calls.append(asyncio.create_task(gateway.call("sleep_unsafe", arguments)))
            await queued(gateway, n)
        # 4 wait for one slot: that is all the room there is.
        error = (await gateway.call("whoami")).error
        assert error["code"] == -31004
        assert error["data"]["mayHaveRun"] is False
        assert error["data"]["retryable"] is True
        assert all(reply.result for reply in await asyncio.gather(*calls))
        order = [entry["args"]["n"] for entry in call_log.entries(tool="sleep_unsafe")]
        assert order == [0, 1, 2, 3, 4]
        began = [entry["at"] for entry in call_log.entries(tool="sleep_unsafe")]
        assert began == sorted(began)
        member = await gateway.member("a")
        assert (member["queued"], member["inFlight"], member["consecutiveFailures"]) == (0, 0, 0)


async def test_who_waits_too_long_is_told_that_all_are_busy(call_log: CallLog) -> None:
    members = [faulty("a", *call_log.flags, maxConcurrentRequests=1)]
    async with Gateway(members=members, limits={"queueMilliseconds": 500}) as gateway:
        await gateway.all_ready()
        long = asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 2}))
        await call_log.until(1, tool="sleep_unsafe")
        began = time.monotonic()
        error = (await gateway.call("whoami")).error
        assert 0.45 < time.monotonic() - began < 1.5
        assert error["code"] == -31004
        assert (await gateway.member("a"))["inRotation"]
        assert (await long).result
        assert await gateway.metric("mcpgroup_refusals_total", reason="overloaded") == 1
        assert await gateway.metric("mcpgroup_requests_total", outcome="overloaded") == 1
        assert (await gateway.call("whoami")).text == "a"


async def test_a_member_below_its_limit_takes_the_call_before_anybody_waits(
    call_log: CallLog,
) -> None:
    members = [
        faulty("a", *call_log.flags, maxConcurrentRequests=1),
        faulty("b", *call_log.flags, maxConcurrentRequests=2),
    ]
    async with Gateway(members=members, limits={"queueMilliseconds": 20000}) as gateway:
        await gateway.all_ready()
        calls = [
            asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 1, "n": n}))
            for n in range(6)
        ]
        await call_log.until(3, tool="sleep_unsafe")
        await queued_at_least(gateway, 3)
        assert all(reply.result for reply in await asyncio.gather(*calls))
        first = [entry["name"] for entry in call_log.entries(tool="sleep_unsafe")][:3]
        assert sorted(first) == ["a", "b", "b"]


async def queued_at_least(gateway: Gateway, number: int) -> None:
    """A call that waits for either of two members is in both their queues."""
    await gateway.wait_for(lambda s: max(m["queued"] for m in s["members"]) >= number)


async def test_a_caller_that_gives_up_in_the_queue_frees_its_place(call_log: CallLog) -> None:
    members = [faulty("a", *call_log.flags, maxConcurrentRequests=1)]
    async with Gateway(members=members, limits={"queueMilliseconds": 20000}) as gateway:
        await gateway.all_ready()
        session = await gateway.open_session()
        long = asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 1}))
        await call_log.until(1, tool="sleep_unsafe")
        waiting = asyncio.create_task(gateway.call("count", request_id="7", session=session))
        await queued(gateway, 1)
        cancel = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}'
        assert (await gateway.post(cancel, session=session)).status == 202
        await queued(gateway, 0)
        assert (await long).result
        assert (await gateway.call("whoami")).text == "a"
        assert call_log.count("count") == 0
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_raised_limit_lets_those_who_wait_go_at_once(call_log: CallLog) -> None:
    member = faulty("a", *call_log.flags)
    members = [{**member, "maxConcurrentRequests": 1}]
    async with Gateway(members=members, limits={"queueMilliseconds": 20000}) as gateway:
        await gateway.all_ready()
        calls = [
            asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 5, "n": n}))
            for n in range(3)
        ]
        await queued(gateway, 2)
        await gateway.reload(members=[{**member, "maxConcurrentRequests": 3}])
        await call_log.until(3, tool="sleep_unsafe", timeout=3)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


ROUTES: list[dict[str, Any]] = [
    {"match": {"tools": ["who*"]}, "members": ["c", "b"]},
    {"match": {"tools": ["echo"]}, "requires": ["gpu"]},
    {"match": {"tools": ["*"], "prompts": ["*"]}, "members": ["a"]},
]


async def test_a_route_uses_the_first_of_its_members_that_can_and_no_other() -> None:
    async with FaultyHttp("c") as third:
        members = [faulty("a"), faulty("b"), third.spec()]
        health = {"intervalSeconds": 1, "timeoutSeconds": 1}
        async with Gateway(members=members, routes=ROUTES, health=health) as gateway:
            await gateway.all_ready()

            async def served() -> set[str]:
                return {(await gateway.call("whoami")).text for _ in range(6)}

            assert await served() == {"c"}
            await third.stop()
            assert await served() == {"b"}
            assert await gateway.act("members/b/stop") == 200
            await gateway.wait_for(lambda s: not member_of(s, "c")["inRotation"])
            # `a` offers the tool, but the route does not name it.
            assert (await gateway.call("whoami")).error["code"] == -31001
            assert {(await gateway.call("count")).text for _ in range(3)} == {"1", "2", "3"}
            prompt = await gateway.request("prompts/get", {"name": "greet"})
            assert prompt.result["messages"][0]["content"]["text"].endswith("this is a")
            await third.start()
            await gateway.wait_for(lambda s: member_of(s, "c")["inRotation"])
            assert await served() == {"c"}


async def test_a_route_that_requires_tags_uses_only_members_that_have_them_all(
    call_log: CallLog,
) -> None:
    routes = [{"match": {"tools": ["echo"]}, "requires": ["gpu", "big"]}]
    members = [
        faulty("a", *call_log.flags, resourceTags=["gpu"]),
        faulty("b", *call_log.flags, resourceTags=["big", "gpu", "new"]),
        faulty("c", *call_log.flags),
    ]
    async with Gateway(members=members, routes=routes) as gateway:
        await gateway.all_ready()
        for n in range(6):
            assert (await gateway.call("echo", {"n": n})).result
        assert {entry["name"] for entry in call_log.entries(tool="echo")} == {"b"}
        dropped = {
            step["step"]: step["dropped"] for step in (await gateway.explain(tool="echo"))["steps"]
        }
        assert set(dropped["requires"]) == {"a", "c"}
        assert {(await gateway.call("whoami")).text for _ in range(6)} == {"a", "b", "c"}


async def test_a_routes_retries_take_the_place_of_the_groups(tmp_path: Path) -> None:
    counter = tmp_path / "calls.jsonl"
    routes = [{"match": {"tools": ["whoami"]}, "retries": 3, "backoffMilliseconds": 10}]
    flags = ["--fail-calls", "--call-counter", str(counter)]
    members = [faulty(name, *flags) for name in "abcd"] + [faulty("e")]
    spec: dict[str, Any] = {"retry": {"attempts": 0}, "strategy": "Priority"}
    for priority, member in enumerate(members, start=1):
        member["priority"] = priority
    async with Gateway(members=members, routes=routes, **spec) as gateway:
        await gateway.all_ready()
        assert (await gateway.call("whoami")).error["code"] == -31007
        assert await gateway.metric("mcpgroup_attempts_total") == 4
        assert (await gateway.call("structured")).error["code"] == -31007
        assert await gateway.metric("mcpgroup_attempts_total") == 5


async def test_a_dead_member_of_a_limited_pair_keeps_nobody_in_the_queue_for_ever(
    call_log: CallLog,
) -> None:
    members = [
        faulty("a", *call_log.flags, maxConcurrentRequests=1),
        faulty("b", *call_log.flags, maxConcurrentRequests=1),
    ]
    async with Gateway(members=members, limits={"queueMilliseconds": 20000}) as gateway:
        await gateway.all_ready()
        long = [asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 3})) for _ in "ab"]
        await call_log.until(2, tool="sleep_unsafe")
        waiting = asyncio.create_task(gateway.call("whoami"))
        await queued_at_least(gateway, 1)
        os.kill((await gateway.member("a"))["pid"], signal.SIGKILL)
        # `a` is back before `b` is free.
        assert (await asyncio.wait_for(waiting, 2.9)).text == "a"
        replies = await asyncio.gather(*long)
        assert sorted("error" in reply.message for reply in replies) == [False, True]


async def test_of_the_calls_in_a_queue_one_alone_tries_a_member_whose_breaker_opened(
    call_log: CallLog,
) -> None:
    async with (
        FaultyHttp("a", "--call-status", "502", *call_log.flags) as a,
        Gateway(
            members=[a.spec(maxConcurrentRequests=1)],
            limits={"queueMilliseconds": 20000},
            memberBreaker={"failureThreshold": 1, "cooldownSeconds": 60},
        ) as gateway,
    ):
        await gateway.all_ready()
        calls = [asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 0.5}))]
        await call_log.until(1, tool="sleep_unsafe")
        for n in range(1, 4):
            calls.append(asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 0.5})))
            await queued(gateway, n)
        codes = sorted(reply.error["code"] for reply in await asyncio.gather(*calls))
        assert codes == [-31007, -31007, -31001, -31001]
        assert call_log.count("sleep_unsafe") == 2


async def test_calls_in_a_queue_are_not_sent_to_a_member_that_said_it_is_busy(
    call_log: CallLog,
) -> None:
    busy = ["--call-status", "429", "--retry-after", "30"]
    async with (
        FaultyHttp("a", *busy, *call_log.flags) as a,
        Gateway(
            members=[a.spec(maxConcurrentRequests=1)], limits={"queueMilliseconds": 20000}
        ) as gateway,
    ):
        await gateway.all_ready()
        calls = [asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 0.5}))]
        await call_log.until(1, tool="sleep_unsafe")
        for n in range(1, 3):
            calls.append(asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 0.5})))
            await queued(gateway, n)
        replies = await asyncio.gather(*calls)
        assert [reply.error["code"] for reply in replies] == [-31004] * 3
        assert call_log.count("sleep_unsafe") == 1
