"""Members that speak the old HTTP+SSE transport (MCP 2024-11-05), through a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.asking import Person
from tests.harness.gateway import Gateway
from tests.harness.members import EverythingSse, FaultyHttp, OldSse
from tests.servers.raw_http import Peer, RawServer, Request, response, result
from tests.servers.raw_sse import OldMember, OldStream

if TYPE_CHECKING:
    from mcp_types import CallToolResult
    from tests.harness.members import CallLog

HEALTH = {"intervalSeconds": 1}


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert content.type == "text"
    return content.text


@pytest.mark.parametrize("transport", ["Auto", "Sse"])
async def test_the_official_client_can_use_the_reference_server(transport: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(EverythingSse())
        members = [server.spec(transport=transport)]
        gateway = await stack.enter_async_context(Gateway(members=members))
        await gateway.all_ready()
        client = await stack.enter_async_context(gateway.client())
        assert "get-sum" in {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.list_prompts()).prompts
        assert (await client.list_resources()).resources
        assert (await client.list_resource_templates()).resource_templates
        steps: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append(progress)

        result = await client.call_tool(
            "trigger-long-running-operation",
            {"duration": 0.5, "steps": 4},
            progress_callback=on_progress,
        )
        assert "Steps: 4" in str(result.content)
        assert steps == [1, 2, 3, 4]
        prompt = await client.get_prompt("args-prompt", {"city": "Bern"})
        assert "Bern" in str(prompt.messages)
        read = await client.read_resource("demo://resource/dynamic/text/7")
        assert "Resource 7" in str(read.contents)
        sums = [client.call_tool("get-sum", {"a": n, "b": 1}) for n in range(50)]
        for n, answer in enumerate(await asyncio.gather(*sums)):
            assert f"is {n + 1}" in str(answer.content)


async def test_the_official_client_can_use_a_server_of_the_sdk() -> None:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(OldSse())
        gateway = await stack.enter_async_context(Gateway(members=[server.spec()]))
        await gateway.all_ready()
        logged: list[Any] = []
        arrived = asyncio.Event()

        async def log(message: Any) -> None:
            logged.append(message.data)
            arrived.set()

        client = await stack.enter_async_context(
            gateway.client(mode="legacy", logging_callback=log)
        )
        assert "echo" in {tool.name for tool in (await client.list_tools()).tools}
        steps: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append(progress)

        await client.call_tool("progress", {"steps": 20}, progress_callback=on_progress)
        assert steps == list(range(1, 21))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            await client.call_tool("log", {"text": "mind the gap"})
        await asyncio.wait_for(arrived.wait(), 5)
        assert logged == ["mind the gap"]
        assert "Greet Ada" in str(await client.get_prompt("welcome", {"who": "Ada"}))
        assert "hello" in str(await client.read_resource("old://greeting"))
        calls = [client.call_tool("echo", {"text": f"t{n}"}) for n in range(50)]
        for n, answer in enumerate(await asyncio.gather(*calls)):
            assert text_of(answer) == f"t{n}"
        large = await client.call_tool("big", {"size": 500_000})
        assert len(text_of(large)) == 500_000


@pytest.mark.parametrize("isolation", ["Shared", "PerSession"])
async def test_a_cancel_reaches_the_member_within_100_ms(isolation: str, call_log: CallLog) -> None:
    async with (
        OldSse("old", *call_log.flags) as server,
        Gateway(members=[server.spec(isolation=isolation)]) as gateway,
    ):
        await gateway.all_ready()
        session = await gateway.open_session()
        call = asyncio.create_task(
            gateway.call("sleep", {"seconds": 20}, request_id='"c1"', session=session)
        )
        await call_log.until(1, tool="sleep")
        notice = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c1"}}'
        cancelled_at = time.monotonic()
        await gateway.post(notice, session=session)
        (told,) = await call_log.until(1, event="cancelled", tool="sleep")
        assert told["at"] - cancelled_at < 0.1
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert (await gateway.call("echo", {"text": "on"}, session=session)).text == "on"
        member = await gateway.member("old")
        assert (member["inRotation"], member["inFlight"]) == (True, 0)


@pytest.mark.parametrize("isolation", ["Shared", "PerSession"])
async def test_a_member_that_dies_in_a_call_ends_it_at_once_and_is_used_again_when_it_is_back(
    isolation: str, call_log: CallLog
) -> None:
    async with (
        OldSse("old", *call_log.flags) as server,
        Gateway(members=[server.spec(isolation=isolation)], health=HEALTH) as gateway,
    ):
        await gateway.all_ready()
        session = await gateway.open_session()
        call = asyncio.create_task(gateway.call("sleep", {"seconds": 20}, session=session))
        await call_log.until(1, tool="sleep")
        os.kill(server.pid, signal.SIGKILL)
        died_at = time.monotonic()
        error = (await call).error
        assert time.monotonic() - died_at < 0.5
        assert error["code"] == -31003
        assert (error["data"]["mayHaveRun"], error["data"]["retryable"]) == (True, False)
        await server.restart()
        await gateway.all_ready()
        assert (await gateway.call("echo", {"text": "back"}, session=session)).text == "back"
        assert call_log.count("sleep") == 1


@pytest.mark.parametrize("isolation", ["Shared", "PerSession"])
async def test_a_member_restarted_between_calls_is_used_in_the_same_client_session(
    isolation: str,
) -> None:
    async with (
        OldSse() as server,
        Gateway(members=[server.spec(isolation=isolation)], health=HEALTH) as gateway,
    ):
        await gateway.all_ready()
        session = await gateway.open_session()
        assert (await gateway.call("echo", {"text": "1"}, session=session)).text == "1"
        await server.stop()
        await gateway.wait_for(lambda status: not status["members"][0]["inRotation"])
        await server.start()
        await gateway.all_ready()
        calls = [gateway.call("echo", {"text": f"t{n}"}, session=session) for n in range(20)]
        replies = await asyncio.gather(*calls)
        assert [reply.text for reply in replies] == [f"t{n}" for n in range(20)]


async def test_auto_finds_the_old_transport_wherever_it_is_and_streamable_http_beside_it() -> None:
    async with (
        OldSse("odd", path="/deep/er/events") as odd,
        FaultyHttp("new") as new,
        Gateway(members=[odd.spec(), new.spec()]) as gateway,
    ):
        await gateway.all_ready()
        tools = {tool["name"] for tool in (await gateway.request("tools/list")).result["tools"]}
        assert {"crash", "only_new"} <= tools
        reply = await gateway.call("only_new")
        assert "error" not in reply.message
        prompt = await gateway.request(
            "prompts/get", {"name": "welcome", "arguments": {"who": "A"}}
        )
        assert "A" in str(prompt.result)


async def test_what_a_member_asks_in_a_call_reaches_the_client() -> None:
    person = Person()
    async with (
        OldSse() as server,
        Gateway(members=[server.spec()]) as gateway,
    ):
        await gateway.all_ready()
        async with person.client(gateway.url, "legacy") as client:
            assert text_of(await client.call_tool("ask", {})) == "WHICH CITY?"
            person.action = "decline"
            assert text_of(await client.call_tool("ask", {})) == "decline"
            assert person.questions == ["which city?"] * 2


def scripted(endpoint: str = "/messages?id={number}") -> OldMember:
    """A member with one tool."""
    tool = {"name": "t", "inputSchema": {"type": "object"}}

    async def tools(request: Request, stream: OldStream) -> None:
        await stream.say(result(request, {"tools": [tool]}))

    async def call(request: Request, stream: OldStream) -> None:
        await stream.say(result(request, {"content": []}))

    return OldMember(endpoint).on("tools/list", tools).on("tools/call", call)


def at(server: RawServer, path: str = "/sse", **fields: Any) -> dict[str, Any]:
    url = server.url.removesuffix("/mcp") + path
    return {"name": "raw", "http": {"url": url}, **fields}


@pytest.mark.parametrize("isolation", ["Shared", "PerSession"])
async def test_silent_streams_that_a_proxy_cuts_cost_nobody_an_error(isolation: str) -> None:
    member = scripted()
    async with (
        RawServer(member) as server,
        Gateway(members=[at(server, transport="Sse", isolation=isolation)]) as gateway,
    ):
        await gateway.all_ready()
        session = await gateway.open_session()
        assert (await gateway.call("t", session=session)).result == {"content": []}
        for _ in range(3):
            async with asyncio.timeout(5):
                for stream in member.streams:
                    await stream.cut()
            reply = await gateway.call("t", session=session)
            assert reply.result == {"content": []}
        assert await gateway.metric("mcpgroup_evictions_total") == 0


async def test_a_stream_that_is_cut_in_calls_loses_those_and_no_later_one() -> None:
    async def wait(request: Request, stream: OldStream) -> None:
        if request.message["params"]["arguments"].get("answer"):
            await stream.say(result(request, {"content": []}))

    member = scripted().on("tools/call", wait)
    async with (
        RawServer(member) as server,
        Gateway(members=[at(server, isolation="Shared")]) as gateway,
    ):
        await gateway.all_ready()
        calls = [asyncio.create_task(gateway.call("t")) for _ in range(10)]
        await server.until(lambda: len(server.seen("tools/call")) == 10)
        async with asyncio.timeout(5):
            await member.streams[-1].cut()
            assert [(await call).error["code"] for call in calls] == [-31003] * 10
        assert (await gateway.call("t", {"answer": True})).result == {"content": []}
        assert await gateway.metric("mcpgroup_evictions_total") == 0


async def test_a_member_that_sends_its_messages_elsewhere_is_not_started() -> None:
    async with RawServer(scripted("http://example.com/messages")) as server:
        async with Gateway(members=[at(server)], wait_ready=False) as gateway:
            await gateway.wait_state("raw", "Failed")
            await gateway.running.printed("names another scheme, host or port")
        assert {request.method for request in server.requests if request.target != "/sse"} == set()


async def test_a_member_that_speaks_neither_is_told_with_both_names() -> None:
    async def nowhere(request: Request, peer: Peer) -> None:
        await peer.send(response(b"<html>", status=404, content_type="text/html"))

    async with (
        RawServer(nowhere) as raw,
        Gateway(members=[at(raw, "/mcp")], wait_ready=False) as gateway,
    ):
        await gateway.wait_state("raw", "Failed")
        line = await gateway.running.printed(r'"to":"Failed","reason":"([^"]+)"')
        assert "streamable HTTP" in line[1]
        assert "HTTP+SSE" in line[1]
