"""What passes through is what was sent: bytes, in arguments, results, ids and lists."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness import direct
from tests.harness.gateway import Gateway
from tests.harness.members import FaultyHttp, faulty, faulty_command
from tests.servers.raw_http import Member, Peer, RawServer, Request, response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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


ODD = [
    ARGUMENTS,
    "{}",
    '{"a":1e400,"b":-1E-999,"c":[-0.0,-0,0.0,1.0,1e2,1E+2,100.00]}',
    '{"thirty":123456789012345678901234567890,"more":0.1234567890123456789012345678901}',
    '{"digits":%s}' % ("7" * 6000),
    '{"half":"\\ud83d","other":"\\udE00 x","both":"\\ud83d\\ude00","raw":"😀","esc":"\\/\\u0041"}',
    '{"\\ud83d":"a key"}',
    '{"twice":1,"twice":2.0}',
    '{"":{"":[[],{},[{}]]},"null":null,"true":true,"no":false}',
    '{"separators":"\u2028\u2029\u0085\ufeff","nul":"\\u0000","tab":"\\t"}',
    '{ "space" : [ 1 ,\t2 ] }',
    '{"name":"other","arguments":{"_meta":{"progressToken":1}},"id":7,"method":"x"}',
    '{"__proto__":{"x":1},"constructor":"y"}',
]


@contextlib.asynccontextmanager
async def every_kind() -> AsyncIterator[Gateway]:
    """Four members: over stdio, with a process a client, over HTTP with JSON and with events."""
    async with FaultyHttp("json") as plain, FaultyHttp("sse", "--sse") as events:
        members = [
            faulty("pipe"),
            faulty("own", isolation="PerSession"),
            plain.spec(),
            events.spec(),
        ]
        async with Gateway(members=members) as gateway:
            await gateway.all_ready()
            yield gateway


MEMBERS = ("pipe", "own", "json", "sse")


async def test_odd_json_passes_every_kind_of_member_byte_for_byte() -> None:
    async with every_kind() as gateway:
        sessions = [await gateway.open_session(), None]

        async def echoed(arguments: str, tool: str, session: str | None) -> None:
            reply = await gateway.call(tool, arguments, session=session)
            got = reply.messages[-1]
            assert b'"structuredContent":%b}' % arguments.encode() in got, (tool, got)

        await asyncio.gather(
            *(
                echoed(arguments, tool, session)
                for arguments in ODD
                for tool in ("echo", *(f"{name}__echo" for name in MEMBERS))
                for session in sessions
            )
        )


async def test_a_result_with_unknown_keys_is_the_one_that_the_member_wrote() -> None:
    async with (
        every_kind() as gateway,
        direct.over_stdio(faulty_command("stdio", "pipe")) as straight,
    ):
        session = await gateway.open_session()
        for method, params in (
            ("tools/call", '{"name":"structured"}'),
            ("tools/call", '{"name":"fail","arguments":{"text":"\\u00e9"}}'),
            ("tools/call", '{"name":"rpc_error","arguments":{"code":-32042,"data":{"x":[1.0]}}}'),
            ("tools/call", '{"name":"rpc_error","arguments":{"code":7}}'),
            ("prompts/get", '{"name":"greet"}'),
            ("prompts/get", '{"name":"greet","arguments":{"who":"\\/ me"},"x":1.0}'),
            ("resources/read", '{"uri":"test://shared/readme"}'),
            ("resources/read", '{"uri":"test://items/1"}'),
        ):
            theirs = await straight.answer(method, params)
            for who in MEMBERS if method != "resources/read" else ("pipe",):
                ours = params.replace('"name":"', f'"name":"{who}__', 1)
                reply = await gateway.request(method, ours, session=session)
                got = direct.payload(reply.messages[-1])
                assert re.sub(rb"(this is|on) (own|json|sse)", rb"\1 pipe", got) == theirs, (
                    who,
                    method,
                    params,
                )


async def test_list_entries_with_unknown_keys_are_those_of_the_member() -> None:
    async with (
        direct.over_stdio(faulty_command("stdio", "a")) as straight,
        Gateway(members=[faulty("a", "--page-size", "3")]) as gateway,
    ):
        await gateway.all_ready()

        async def through(method: str, params: str) -> bytes:
            return direct.payload((await gateway.request(method, params)).messages[-1])

        for method, key in (
            ("tools/list", "tools"),
            ("prompts/list", "prompts"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
        ):
            ours = await direct.entries(through, method, key)
            assert ours == await direct.entries(straight.answer, method, key)
            assert ours


async def test_what_else_a_client_sends_with_a_call_reaches_the_member() -> None:
    seen: list[dict[str, Any]] = []
    member = Member()

    async def tools(request: Request, peer: Peer) -> None:
        tool = {"name": "t", "inputSchema": {"type": "object"}}
        message = {"jsonrpc": "2.0", "id": request.id, "result": {"tools": [tool]}}
        await peer.send(response(json.dumps(message).encode()))

    async def called(request: Request, peer: Peer) -> None:
        seen.append({"body": request.body, **request.message["params"]})
        message = b'{"id":%d,"x-own":1.0,"jsonrpc":"2.0", "result":{"r":1e2 }}' % request.id
        await peer.send(response(message))

    async with (
        RawServer(member.on("tools/list", tools).on("tools/call", called)) as server,
        Gateway(members=[{"name": "m", "http": {"url": server.url}}]) as gateway,
    ):
        meta = '{"progressToken":"mine","example.com/trace":{"id":9007199254740993,"f":1.0}}'
        params = f'{{"_meta":{meta},"x-new":1e2,"arguments":{{"a":1.0}},"name":"m__t"}}'
        reply = await gateway.request("tools/call", params)
        assert b'"result":{"r":1e2 }' in reply.body
    assert seen[0]["name"] == "t"
    assert seen[0]["_meta"]["progressToken"] != "mine"
    for kept in (b'"x-new":1e2', b'"arguments":{"a":1.0}', b'{"id":9007199254740993,"f":1.0}'):
        assert kept in seen[0]["body"]
