"""Metrics say what clients did, and clients decide nothing about which series exist."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import string
from typing import TYPE_CHECKING, Any

from tests.harness.gateway import Gateway, member_of
from tests.harness.members import faulty

if TYPE_CHECKING:
    from tests.harness.members import CallLog, Control

Series = set[tuple[str, frozenset[tuple[str, str]]]]


async def series(gateway: Gateway) -> Series:
    samples = await gateway.metrics()
    return {(name, labels) for name, found in samples.items() for labels in found}


def word(source: random.Random) -> str:
    alphabet = string.ascii_letters + string.digits + '_-./é\\"\n{}'
    return "".join(source.choice(alphabet) for _ in range(source.randint(1, 40)))


async def test_no_client_input_creates_a_series() -> None:
    source = random.Random(7)  # noqa: S311 - the same words in each run
    spec: dict[str, Any] = {"tenant": {"header": "X-Tenant-ID"}}
    async with Gateway(members=[faulty("a"), faulty("b")], **spec) as gateway:
        await gateway.all_ready()
        session = await gateway.open_session()
        # Each ordinary thing once.
        ordinary: list[tuple[str, dict[str, Any]]] = [
            ("tools/list", {}),
            ("tools/call", {"name": "echo", "arguments": {}}),
            ("tools/call", {"name": "no_such_tool"}),
            ("tools/call", {}),
            ("prompts/get", {"name": "greet"}),
            ("resources/read", {"uri": "test://shared/readme"}),
            ("resources/read", {"uri": "unknown://x"}),
            (
                "completion/complete",
                {
                    "ref": {"type": "ref/prompt", "name": "greet"},
                    "argument": {"name": "who", "value": "a"},
                },
            ),
            ("no/such/method", {}),
            ("logging/setLevel", {"level": "info"}),
        ]
        for method, params in ordinary:
            await gateway.request(method, params, session=session)
        # A gauge exists once it has a meaning; the lag of the event loop is measured each second.
        lag = ("mcpgroup_event_loop_lag_seconds", frozenset({("group", "test")}))
        async with asyncio.timeout(10):
            while lag not in (before := await series(gateway)):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)
        for number in range(300):
            name, token = word(source), word(source)
            ascii_name = "".join(c for c in token if c.isalnum() and c.isascii()) or "x"
            headers = {"X-Tenant-ID": ascii_name, f"X-{ascii_name}": ascii_name}
            match number % 6:
                case 0:
                    await gateway.call(name, {name: token}, headers=headers)
                case 1:
                    method = name.replace("\\", "").replace('"', "").replace("\n", "")
                    await gateway.request(method, {"x": token}, session=session)
                case 2:
                    params = {"name": name, "arguments": {token: name}}
                    await gateway.request("prompts/get", params, headers=headers)
                case 3:
                    await gateway.request("resources/read", {"uri": f"{ascii_name}://{name}"})
                case 4:
                    url = gateway.url.removesuffix("/mcp") + f"/{ascii_name}"
                    async with gateway.http.request("PUT", url, headers=headers) as answer:
                        await answer.read()
                    async with gateway.http.get(f"{gateway.admin_url}/{ascii_name}") as answer:
                        await answer.read()
                    query = {"tool": name, "tenant": token}
                    async with gateway.http.get(
                        f"{gateway.admin_url}/explain", params=query
                    ) as answer:
                        await answer.read()
                case _:
                    await gateway.request(
                        "initialize",
                        {
                            "protocolVersion": name,
                            "capabilities": {},
                            "clientInfo": {"name": name, "version": token},
                        },
                        headers={"User-Agent": ascii_name},
                    )
                    await gateway.request("ping", headers={"Mcp-Session-Id": ascii_name})
        assert await series(gateway) - before == set()


async def test_a_removed_member_loses_its_series_and_no_other_does() -> None:
    async with Gateway(members=[faulty("a"), faulty("b"), faulty("gone")]) as gateway:
        await gateway.all_ready()
        for _ in range(6):
            await gateway.call("whoami")
        before = await series(gateway)
        own = {(name, labels) for name, labels in before if ("member", "gone") in labels}
        assert len(own) > 10
        await gateway.reload(members=[faulty("a"), faulty("b")])
        await gateway.wait_for(lambda s: len(s["members"]) == 2)
        await gateway.call("whoami")
        after = await series(gateway)
        assert not any("gone" in dict(labels).values() for _, labels in after)
        lost = {(name, labels) for name, labels in before - after - own if name.startswith("mcpg")}
        # Of the group's own only what names the configuration and the tools that went with it.
        assert {
            name
            for name, labels in lost
            if not name.startswith("mcpgroup_config_info") and ("tool", "only_gone") not in labels
        } == set()
        assert await gateway.metric("mcpgroup_group_members") == 2


async def test_counts_agree_with_what_a_client_did(call_log: CallLog) -> None:
    members = [faulty(name, *call_log.flags) for name in ("a", "b")]
    async with Gateway(members=members, tools={"deny": ["log"]}) as gateway:
        await gateway.all_ready()
        for _ in range(7):
            assert (await gateway.call("echo", {"n": 1})).result
        assert (await gateway.call("fail")).result["isError"] is True
        assert (await gateway.call("rpc_error", {"code": -32000})).error
        assert (await gateway.call("no_such")).error
        assert (await gateway.call("log")).error
        for _ in range(3):
            assert (await gateway.request("tools/list")).result
        assert (await gateway.request("prompts/get", {"name": "greet"})).result

        async def requests(method: str, outcome: str) -> float:
            return await gateway.metric("mcpgroup_requests_total", method=method, outcome=outcome)

        assert await requests("tools/call", "ok") == 7
        assert await requests("tools/call", "tool_error") == 1
        assert await requests("tools/call", "rpc_error") == 1
        assert await gateway.metric("mcpgroup_requests_total", method="tools/call") == 11
        assert await requests("tools/list", "ok") == 3
        assert await requests("prompts/get", "ok") == 1
        assert await gateway.metric("mcpgroup_attempts_total") == 10
        assert await gateway.metric("mcpgroup_attempts_total", outcome="ok") == 8
        assert await gateway.metric("mcpgroup_selections_total") == 10
        assert await gateway.metric("mcpgroup_selections_total", reason="strategy") == 10
        assert await gateway.metric("mcpgroup_tool_calls_total", tool="echo", outcome="ok") == 7
        assert await gateway.metric("mcpgroup_tool_calls_total", tool="fail") == 1
        seconds = "mcpgroup_request_duration_seconds_count"
        assert await gateway.metric(seconds, method="tools/call") == 11
        assert await gateway.metric("mcpgroup_attempt_duration_seconds_count") == 10
        for name in "ab":
            ran = len([e for e in call_log.entries() if e["name"] == name])
            selections = (await gateway.member(name))["selections"]
            counted = await gateway.metric("mcpgroup_selections_total", member=name)
            assert selections == counted
            assert counted in (ran, ran + 1)  # the prompt is in no call log
        assert await gateway.metric("mcpgroup_requests_in_flight") == 0
        assert await gateway.metric("mcpgroup_failovers_total") == 0


async def test_a_call_that_failed_over_is_one_request_and_two_attempts(control: Control) -> None:
    control.set(fail_calls=True)
    members = [faulty("a", *control.flags, priority=1), faulty("b", priority=2)]
    async with Gateway(members=members, strategy="Priority") as gateway:
        await gateway.all_ready()
        assert (await gateway.call("whoami")).text == "b"
        metric = gateway.metric
        assert await metric("mcpgroup_requests_total", method="tools/call") == 1
        assert await metric("mcpgroup_requests_total", method="tools/call", outcome="ok") == 1
        assert await metric("mcpgroup_attempts_total") == 2
        assert await metric("mcpgroup_attempts_total", member="a", outcome="member_failed") == 1
        assert await metric("mcpgroup_attempts_total", member="b", outcome="ok") == 1
        assert await metric("mcpgroup_failovers_total") == 1
        assert await metric("mcpgroup_selections_total", member="a", reason="strategy") == 1
        assert await metric("mcpgroup_selections_total", member="b", reason="failover") == 1
        assert await metric("mcpgroup_tool_calls_total", tool="whoami", outcome="ok") == 1
        assert await metric("mcpgroup_retries_exhausted_total") == 0
        # An unsafe call is never sent twice.
        error = (await gateway.call("count")).error
        assert error["data"]["member"] == "a"
        assert await metric("mcpgroup_requests_total", outcome="member_failed") == 1
        assert await metric("mcpgroup_attempts_total") == 3


async def test_calls_that_waited_in_the_queue_are_counted_like_others(call_log: CallLog) -> None:
    members = [faulty("a", *call_log.flags, maxConcurrentRequests=1)]
    limits = {"queueMilliseconds": 10000}
    async with Gateway(members=members, limits=limits) as gateway:
        await gateway.all_ready()
        calls = [gateway.call("sleep_unsafe", {"seconds": 0.1}) for _ in range(4)]
        assert all(reply.result for reply in await asyncio.gather(*calls))
        assert await gateway.metric("mcpgroup_requests_total", method="tools/call") == 4
        assert await gateway.metric("mcpgroup_attempts_total", member="a", outcome="ok") == 4
        assert await gateway.metric("mcpgroup_selections_total", member="a") == 4
        assert (await gateway.member("a"))["selections"] == 4


async def test_cancelled_and_lost_calls_have_outcomes_of_their_own(call_log: CallLog) -> None:
    async with Gateway(members=[faulty("a", *call_log.flags)]) as gateway:
        await gateway.all_ready()
        session = await gateway.open_session()
        call = asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 30}, session=session))
        await call_log.until(1, tool="sleep_unsafe")
        cancel = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
        assert (await gateway.post(cancel, session=session)).status == 202
        await call_log.until(1, event="cancelled")
        call.cancel()
        lost = asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 30}, request_id="2"))
        await call_log.until(2, tool="sleep_unsafe")
        os.kill((await gateway.member("a"))["pid"], signal.SIGKILL)
        assert (await lost).error["code"] == -31003
        await gateway.wait_for(lambda s: member_of(s, "a")["inFlight"] == 0)
        for metric in ("mcpgroup_requests_total", "mcpgroup_attempts_total"):
            assert await gateway.metric(metric, outcome="cancelled") == 1
            assert await gateway.metric(metric, outcome="member_failed") == 1
        assert await gateway.metric("mcpgroup_member_exits_total", member="a") == 1
