"""What passes through is what was sent: bytes, in arguments, results, ids and lists."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.harness.gateway import Gateway
from tests.harness.members import FaultyHttp, faulty

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
