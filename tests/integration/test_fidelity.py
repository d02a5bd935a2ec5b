"""What passes through is what was sent: bytes, ids, progress tokens, entries of real servers."""

from __future__ import annotations

import asyncio
import json

import mcp
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from tests.harness.gateway import Gateway
from tests.harness.members import FaultyHttp, everything, faulty, time_server

ARGUMENTS = (
    '{"big":9007199254740993,"id":1915883588174806058,"float":1.0,"exponent":1e2,"zero":-0.0,'
    '"huge":1e400,"digits":0.123456789012345678901234567890,"half":"\\ud83d","unknown":{"a":[null]}}'
)
IDS = ['"1"', "1", '"007"', "0", "-5", "9007199254740993", '""']


async def check_bytes_and_ids(gateway: Gateway) -> None:
    sessions = [await gateway.open_session(), await gateway.open_session(), None]
    for session in sessions:
        reply = await gateway.call("echo", ARGUMENTS, session=session)
        assert ARGUMENTS.encode() in reply.messages[-1], reply.body

    async def answered(request_id: str, session: str | None, number: int) -> None:
        text = f'{{"n":{number}}}'
        reply = await gateway.call("echo", text, request_id=request_id, session=session)
        assert f'"id":{request_id},'.encode() in reply.messages[-1]
        assert reply.text == text

    await asyncio.gather(
        *(
            answered(request_id, session, number)
            for number, request_id in enumerate(IDS * 4)
            for session in sessions
        )
    )


async def test_arguments_and_ids_pass_a_stdio_member_unchanged() -> None:
    async with Gateway(members=[faulty("a"), faulty("b")]) as gateway:
        await gateway.all_ready()
        await check_bytes_and_ids(gateway)


@pytest.mark.parametrize("flags", [(), ("--sse",)])
async def test_arguments_and_ids_pass_an_http_member_unchanged(flags: tuple[str, ...]) -> None:
    async with FaultyHttp("a", *flags) as a, Gateway(members=[a.spec()]) as gateway:
        await gateway.all_ready()
        await check_bytes_and_ids(gateway)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_equal_progress_tokens_of_two_clients_never_mix(transport: str) -> None:
    async with FaultyHttp("h", "--sse") as http:
        member = faulty("a") if transport == "stdio" else http.spec()
        async with Gateway(members=[member]) as gateway:
            await gateway.all_ready()

            async def steps(number: int) -> None:
                session = await gateway.open_session()
                params = (
                    f'{{"name":"progress","arguments":{{"steps":{number},"delay":0.05}},'
                    '"_meta":{"progressToken":1}}'
                )
                reply = await gateway.request("tools/call", params, session=session)
                progress = [json.loads(message) for message in reply.messages[:-1]]
                assert [p["params"]["progressToken"] for p in progress] == [1] * number
                assert [p["params"]["progress"] for p in progress] == list(range(1, number + 1))

            await asyncio.gather(*(steps(number) for number in (2, 3, 5, 7)))


@pytest.mark.parametrize("server", ["time", "everything"])
async def test_the_official_client_sees_a_real_server_as_it_is(server: str) -> None:
    member = time_server() if server == "time" else everything()
    command = member["stdio"]["command"]
    direct = stdio_client(StdioServerParameters(command=command[0], args=command[1:]))
    async with (
        Gateway(members=[member]) as gateway,
        gateway.client() as through,
        mcp.Client(direct, mode="legacy") as straight,
    ):
        ours = {t.name: t for t in (await through.list_tools()).tools}
        theirs = {t.name: t for t in (await straight.list_tools()).tools}
        as_tasks = {name for name in theirs if name not in ours}
        assert as_tasks <= {"simulate-research-query"}
        assert ours == {name: tool for name, tool in theirs.items() if name not in as_tasks}
        tool, arguments = (
            ("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "UTC"})
            if server == "time"
            else ("get-sum", {"a": 2, "b": 3})
        )
        mine = await through.call_tool(tool, arguments)
        assert mine.content == (await straight.call_tool(tool, arguments)).content
        if server == "everything":
            prompts = sorted(p.name for p in (await straight.list_prompts()).prompts)
            assert sorted(p.name for p in (await through.list_prompts()).prompts) == prompts
            resources = (await straight.list_resources()).resources
            found = {r.uri: r for r in (await through.list_resources()).resources}
            assert found == {r.uri: r for r in resources}
            uri = resources[0].uri
            assert (await through.read_resource(uri)).contents == (
                await straight.read_resource(uri)
            ).contents
