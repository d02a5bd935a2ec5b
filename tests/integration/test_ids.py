"""Ids and progress tokens are each client's own, however many clients choose the same ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.gateway import Gateway
from tests.harness.members import CallLog, FaultyHttp, faulty

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

IDS = ['"1"', "1", '"007"', "0", "-5", "9007199254740993", "9007199254740992", '"\\u00e9"', '"é"']
TOKENS = ["1", '"1"', "0", "-5", "9007199254740993", '"007"', '""']

each_kind = pytest.mark.parametrize("kind", ["stdio", "stdio-own", "http", "mixed"])


@contextlib.asynccontextmanager
async def group(kind: str, *flags: str) -> AsyncIterator[Gateway]:
    """Members of one kind: processes shared or one a client, HTTP with one session a client."""
    async with contextlib.AsyncExitStack() as stack:
        members: list[dict[str, Any]] = []
        if kind in ("stdio", "mixed"):
            members += [faulty("a", *flags), faulty("b", *flags)]
        if kind == "stdio-own":
            members += [faulty("a", *flags, isolation="PerSession")]
        if kind in ("http", "mixed"):
            http = await stack.enter_async_context(FaultyHttp("h", "--sse", *flags))
            members.append(http.spec())
        gateway = await stack.enter_async_context(Gateway(members=members))
        await gateway.all_ready()
        yield gateway


@each_kind
async def test_equal_ids_and_progress_tokens_of_many_clients_never_mix(kind: str) -> None:
    async with group(kind) as gateway:
        sessions = [await gateway.open_session() for _ in range(3)]

        async def one(client: int, session: str | None, number: int) -> None:
            request_id, token = IDS[number % len(IDS)], TOKENS[number % len(TOKENS)]
            # Every call has a number of steps of its own: a mixed message would be seen.
            steps = 1 + (client + number) % 5
            params = (
                f'{{"name":"progress","arguments":{{"steps":{steps},"delay":0.02}},'
                f'"_meta":{{"progressToken":{token}}}}}'
            )
            reply = await gateway.request(
                "tools/call", params, request_id=request_id, session=session
            )
            assert reply.text == f"{steps} steps"
            assert f'"id":{request_id},'.encode() in reply.messages[-1]
            told = [json.loads(message)["params"] for message in reply.messages[:-1]]
            assert [p["progress"] for p in told] == list(range(1, steps + 1)), (told, steps)
            assert {p["total"] for p in told} == {float(steps)}
            for message in reply.messages[:-1]:
                assert f'"progressToken":{token}'.encode() in message
                assert b'"unknown":1e2' in message

        await asyncio.gather(
            *(
                one(client, session, number)
                for number in range(2 * len(IDS))
                for client, session in enumerate([*sessions, None])
            )
        )


@each_kind
async def test_a_cancel_ends_the_call_of_its_own_client_only(kind: str, call_log: CallLog) -> None:
    async with group(kind, *call_log.flags) as gateway:
        mine, other = await gateway.open_session(), await gateway.open_session()
        calls = {
            (session, request_id): asyncio.create_task(
                gateway.call(
                    "sleep", f'{{"seconds":2,"x":{x}}}', request_id=request_id, session=session
                )
            )
            for x, session in enumerate((mine, other))
            for request_id in ("1", '"1"')
        }
        await call_log.until(4, tool="sleep")
        cancel = (
            '{"jsonrpc":"2.0","method":"notifications/cancelled","params":'
            '{"requestId":1,"reason":"enough"}}'
        )
        assert (await gateway.post(cancel.encode(), session=mine)).status == 202
        told = await call_log.until(1, event="cancelled")
        assert told[0]["args"] == {"seconds": 2, "x": 0}
        cancelled = await calls.pop((mine, "1"))
        assert b"result" not in cancelled.body
        for (_, request_id), call in calls.items():
            reply = await call
            assert "slept 2 s" in reply.text
            assert f'"id":{request_id},'.encode() in reply.body
        assert len(call_log.entries("told")) == 1
