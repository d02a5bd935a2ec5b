"""What counts against a member, and what is the caller's own affair."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import TYPE_CHECKING

import aiohttp
import pytest
from tests.harness.gateway import Gateway, member_of
from tests.harness.members import FaultyHttp, faulty
from tests.harness.messages import ACCEPT

if TYPE_CHECKING:
    from tests.harness.members import CallLog, Control


async def nothing_was_counted(gateway: Gateway) -> None:
    status = await gateway.status()
    assert all(m["inRotation"] and m["breaker"] == "Closed" for m in status["members"]), status
    assert all(m["consecutiveFailures"] == 0 for m in status["members"]), status
    assert status["circuit"]["consecutiveFailures"] == 0
    assert await gateway.metric("mcpgroup_evictions_total") == 0


async def test_callers_that_give_up_early_evict_nobody(call_log: CallLog) -> None:
    members = [faulty(name, *call_log.flags) for name in ("a", "b")]
    async with Gateway(members=members) as gateway:
        await gateway.all_ready()

        async def impatient() -> None:
            body = (
                b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
                b'"params":{"name":"sleep","arguments":{"seconds":1.5}}}'
            )
            with pytest.raises(TimeoutError):
                async with gateway.http.post(
                    gateway.url,
                    data=body,
                    headers={"Content-Type": "application/json", "Accept": ACCEPT},
                    timeout=aiohttp.ClientTimeout(total=1),
                ):
                    pass

        for _ in range(2):
            await asyncio.gather(*(impatient() for _ in range(4)))
        await nothing_was_counted(gateway)


async def test_the_official_client_with_a_short_timeout_evicts_nobody() -> None:
    members = [faulty(name) for name in ("a", "b")]
    async with Gateway(members=members) as gateway:
        await gateway.all_ready()

        async def impatient() -> None:
            async with gateway.client() as client:
                with pytest.raises(Exception, match=r"(?i)time"):
                    await client.call_tool("sleep", {"seconds": 1.5}, read_timeout_seconds=1)

        await asyncio.gather(*(impatient() for _ in range(4)))
        await nothing_was_counted(gateway)


async def test_errors_that_a_member_answers_count_for_nothing() -> None:
    members = [faulty("a")]
    async with Gateway(members=members) as gateway:
        await gateway.all_ready()
        for _ in range(6):
            assert (await gateway.call("fail")).result["isError"] is True
            for code in (-32603, -32602, -1, -32000, 5):
                assert (await gateway.call("rpc_error", {"code": code})).error["code"] == code
        await nothing_was_counted(gateway)
        assert await gateway.metric("mcpgroup_requests_total", outcome="tool_error") == 6
        assert await gateway.metric("mcpgroup_requests_total", outcome="rpc_error") == 30


@pytest.mark.parametrize("status", [401, 403, 429])
async def test_a_refusal_by_http_status_moves_on_and_counts_for_nothing(
    status: int, call_log: CallLog
) -> None:
    async with (
        FaultyHttp("a", "--call-status", str(status)) as a,
        FaultyHttp("b", *call_log.flags) as b,
        Gateway(members=[a.spec(), b.spec()]) as gateway,
    ):
        await gateway.all_ready()
        for _ in range(8):
            assert "error" not in (await gateway.call("count")).message
        assert call_log.count("count") == 8
        await nothing_was_counted(gateway)


@pytest.mark.parametrize("isolation", ["Shared", "PerSession"])
async def test_a_cancel_reaches_the_member_within_100_ms(isolation: str, call_log: CallLog) -> None:
    async with (
        FaultyHttp("h", *call_log.flags) as http,
        Gateway(members=[http.spec(isolation=isolation)]) as gateway,
    ):
        await gateway.all_ready()
        await check_cancel(gateway, call_log)


async def test_a_cancel_reaches_a_stdio_member_within_100_ms(call_log: CallLog) -> None:
    async with Gateway(members=[faulty("a", *call_log.flags)]) as gateway:
        await gateway.all_ready()
        await check_cancel(gateway, call_log)


async def check_cancel(gateway: Gateway, call_log: CallLog) -> None:
    session = await gateway.open_session()
    call = asyncio.create_task(
        gateway.call("sleep", {"seconds": 20}, request_id='"c1"', session=session)
    )
    await call_log.until(1, tool="sleep")
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "c1"}}
    told = time.monotonic()
    assert (await gateway.post(json.dumps(cancel).encode(), session=session)).status == 202
    entry = (await call_log.until(1, event="told"))[0]
    assert entry["at"] - told < 0.1
    reply = await call
    assert reply.messages == []
    # A caller without a session has no other way than to leave.
    body = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
        b'"params":{"name":"sleep","arguments":{"seconds":20}}}'
    )
    headers = {"Content-Type": "application/json", "Accept": ACCEPT}
    leaving = asyncio.create_task(gateway.http.post(gateway.url, data=body, headers=headers))
    await call_log.until(2, tool="sleep")
    left = time.monotonic()
    leaving.cancel()
    entry = (await call_log.until(2, event="told"))[1]
    assert entry["at"] - left < 0.1
    await nothing_was_counted(gateway)
    assert (await gateway.metric("mcpgroup_requests_total", outcome="cancelled")) == 2


async def test_a_member_that_answers_pings_but_fails_calls_meets_its_breaker(
    call_log: CallLog,
) -> None:
    async with (
        FaultyHttp("bad", "--answer-502", *call_log.flags) as bad,
        FaultyHttp("good") as good,
        Gateway(
            members=[bad.spec(), good.spec()],
            health={"intervalSeconds": 1, "timeoutSeconds": 1},
            memberBreaker={"failureThreshold": 5, "cooldownSeconds": 3},
        ) as gateway,
    ):
        await gateway.all_ready()
        status = await gateway.status()
        end = time.monotonic() + 30
        while member_of(status, "bad")["breaker"] != "Open":
            assert time.monotonic() < end, status
            assert "error" not in (await gateway.call("whoami")).message
            status = await gateway.status()
        assert await gateway.metric("mcpgroup_evictions_total", member="bad") <= 2
        selections = member_of(status, "bad")["selections"]
        # Half-open: exactly one call of many decides, and the breaker opens again.
        await asyncio.sleep(3.2)
        await asyncio.gather(*(gateway.call("whoami") for _ in range(20)))
        bad_member = await gateway.member("bad")
        assert bad_member["selections"] == selections + 1
        assert bad_member["breaker"] == "Open"


async def test_a_502_to_an_unsafe_call_is_not_sent_again(call_log: CallLog) -> None:
    async with (
        FaultyHttp("a", "--call-status", "502", *call_log.flags) as a,
        FaultyHttp("b", "--call-status", "502", *call_log.flags) as b,
        Gateway(members=[a.spec(), b.spec()]) as gateway,
    ):
        await gateway.all_ready()
        error = (await gateway.call("count")).error
        assert error["code"] == -31007
        assert error["data"]["status"] == 502
        assert error["data"]["mayHaveRun"] is True
        assert call_log.count("count") == 1


async def test_connections_that_hang_move_unsafe_calls_in_time(call_log: CallLog) -> None:
    """One member's accept queue is full: its connections are never established."""
    async with (
        # It closes idle connections itself: none is left that was established before.
        FaultyHttp("a", "--keep-alive-seconds", "0.2", *call_log.flags) as a,
        FaultyHttp("b", *call_log.flags) as b,
        FaultyHttp("c", *call_log.flags) as c,
        Gateway(
            members=[server.spec(connectTimeoutSeconds=1) for server in (a, b, c)],
            health={"intervalSeconds": 60},
        ) as gateway,
    ):
        await gateway.all_ready()
        sessions = [await gateway.open_session() for _ in range(12)]
        port = int(a.url.split(":")[2].split("/")[0])
        await a.stop()
        hanging = socket.socket()
        hanging.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hanging.bind(("127.0.0.1", port))
        hanging.listen(0)
        fillers = [hanging]
        try:
            for _ in range(8):
                filler = socket.socket()
                fillers.append(filler)
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))

            async def timed(session: str) -> float:
                began = time.monotonic()
                reply = await gateway.call("count", session=session)
                assert "error" not in reply.message, reply.message
                return time.monotonic() - began

            slowest = max(await asyncio.gather(*(timed(session) for session in sessions)))
            assert slowest < 1 + 1
            assert await gateway.metric("mcpgroup_failovers_total", reason="connect") > 0
            assert call_log.count("count") == 12
        finally:
            for filler in fillers:
                filler.close()


async def test_an_open_breaker_does_not_outlive_the_restart_of_its_member(
    control: Control,
) -> None:
    members = [faulty("a", *control.flags)]
    breaker = {"failureThreshold": 3, "cooldownSeconds": 1}
    async with Gateway(members=members, memberBreaker=breaker) as gateway:
        await gateway.all_ready()
        for _ in range(3):
            await gateway.call("crash_unsafe")
            await gateway.wait_state("a")
        await gateway.wait_for(lambda s: member_of(s, "a")["state"] == "Ready")
        end = time.monotonic() + 10
        while "error" in (await gateway.call("whoami")).message:
            assert time.monotonic() < end
            await asyncio.sleep(0.1)
        assert (await gateway.member("a"))["breaker"] == "Closed"
