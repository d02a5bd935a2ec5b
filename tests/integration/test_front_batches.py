"""Batches, which sessions of 2025-03-26 may send and no others."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.front import Answer, Events, Stage, call, staged, until
from tests.harness.messages import ACCEPT, request

from mcpgroup_gateway.front.batches import BATCH_CALLS, BATCH_MESSAGES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PING = request("ping", "p")
NOTE = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
RESPONSE = {"jsonrpc": "2.0", "id": 9, "result": {}}


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


async def batch(stage: Stage, *messages: object, session: str = "", **headers: str) -> Answer:
    session = session or await stage.session("2025-03-26")
    return await stage.ask(json.dumps(messages).encode(), mcp_session_id=session, **headers)


async def test_the_answers_come_as_one_array_without_entries_for_notifications(
    stage: Stage,
) -> None:
    answer = await batch(stage, call("echo", 1), NOTE, PING, RESPONSE, call("echo", "x"))
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert sorted(str(each["id"]) for each in answer.json) == ["1", "p", "x"]
    assert all("result" in each for each in answer.json)
    assert len(stage.service.notified) == len(stage.service.responded) == 1


@pytest.mark.parametrize("accept", [ACCEPT, "application/json"])
async def test_a_batch_of_which_nothing_is_to_be_answered_is_accepted(
    stage: Stage, accept: str
) -> None:
    answer = await batch(stage, NOTE, RESPONSE, NOTE, accept=accept)
    assert (answer.status, answer.body) == (202, b"")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[]", -32600),
        (b" [ ] ", -32600),
        (b"[1,", -32700),
        (b'[{"jsonrpc":"2.0","id":1,"method":"tools/call"}', -32700),
        (b"[\xff]", -32700),
        (b"[" * 5000, -32700),
        (b"[" + b",".join([b"1"] * (BATCH_MESSAGES + 1)) + b"]", -32600),
    ],
)
async def test_a_batch_that_is_none_is_refused_whole(stage: Stage, body: bytes, code: int) -> None:
    session = await stage.session("2025-03-26")
    answer = await stage.ask(body, mcp_session_id=session)
    assert (answer.status, answer.json["error"]["code"]) == (400, code)
    assert answer.json["id"] is None
    assert not stage.service.calls


async def test_each_message_that_is_none_gets_an_error_of_its_own(stage: Stage) -> None:
    wrong = {"jsonrpc": "1.0", "id": 3, "method": "tools/call"}
    first = request("initialize", 4, protocolVersion="2025-03-26")
    answer = await batch(stage, 1, wrong, first, [PING], call("echo", 5))
    assert answer.status == 200
    codes = [(each["id"], each.get("error", {}).get("code")) for each in answer.json]
    assert codes == [(None, -32600), (3, -32600), (4, -32600), (None, -32600), (5, None)]
    assert len(stage.sessions) == 1


async def test_an_unknown_session_is_404_for_a_batch_too(stage: Stage) -> None:
    answer = await batch(stage, PING, session="no-such-session")
    assert answer.status == 404


async def test_requests_of_a_batch_run_side_by_side_but_not_all_at_once(stage: Stage) -> None:
    asked = asyncio.create_task(batch(stage, *(call("hold", n) for n in range(BATCH_CALLS + 2))))
    await until(lambda: len(stage.service.held) == BATCH_CALLS)
    await asyncio.sleep(0.05)
    assert len(stage.service.held) == BATCH_CALLS
    for held in list(stage.service.held):
        held.released.set()
    await until(lambda: len(stage.service.held) == BATCH_CALLS + 2)
    for held in stage.service.held:
        held.released.set()
    assert {each["id"] for each in (await asked).json} == set(range(BATCH_CALLS + 2))


async def test_the_limit_of_calls_holds_for_each_request() -> None:
    async with staged(requests_in_flight=2) as stage:
        asked = asyncio.create_task(batch(stage, *(call("hold", n) for n in range(4))))
        await until(lambda: len(stage.service.held) == 2)
        for held in stage.service.held:
            held.released.set()
        codes = sorted(each.get("error", {}).get("code", 0) for each in (await asked).json)
        assert codes == [-31004, -31004, 0, 0]


async def test_answers_are_events_once_something_preceded_them(stage: Stage) -> None:
    answer = await batch(stage, call("progress", 1), PING, 1)
    assert answer.headers["content-type"] == "text/event-stream"
    messages = [json.loads(event) for event in answer.events]
    ids = [each["id"] for each in messages if "method" not in each]
    assert sorted(map(str, ids)) == ["1", "None", "p"]
    assert sum("method" in each for each in messages) == 2


async def test_a_client_of_events_only_gets_events(stage: Stage) -> None:
    answer = await batch(stage, PING, call("echo", 1), accept="text/event-stream")
    assert {json.loads(event)["id"] for event in answer.events} == {"p", 1}


async def test_very_many_bytes_of_answers_do_not_wait_for_each_other(stage: Stage) -> None:
    answer = await batch(stage, *(call("echo", n, size=3_000_000) for n in range(3)))
    assert answer.headers["content-type"] == "text/event-stream"
    assert {json.loads(event)["id"] for event in answer.events} == {0, 1, 2}


async def test_one_request_of_a_batch_can_be_cancelled(stage: Stage) -> None:
    session = await stage.session("2025-03-26")
    asked = asyncio.create_task(batch(stage, call("hold", 1), call("hold", 2), session=session))
    await until(lambda: len(stage.service.held) == 2)
    stage.service.held[0].cancel("by the client")
    stage.service.held[1].released.set()
    assert [each["id"] for each in (await asked).json] == [2]


async def test_a_batch_whose_client_left_is_resumed(stage: Stage) -> None:
    session_id = await stage.session("2025-03-26")
    wire = await stage.connect()
    wire.request(
        json.dumps([call("hold", 1), call("hold", 2), call("progress", 3)]).encode(),
        mcp_session_id=session_id,
    )
    await wire.head()
    events = Events(wire)
    assert await events.ids(1) == ["p1-1"]
    wire.abort()
    session: Any = stage.sessions.get(session_id)
    await until(lambda: session.posts and session.posts[0].is_gone)
    stage.service.held[0].released.set()
    await until(lambda: len(session.calls) == 1)
    resumed = await stage.listen(session_id, "p1-1")
    stage.service.held[1].released.set()
    messages = [json.loads(event.data) for event in await resumed.rest()]
    assert [each["id"] for each in messages if "id" in each] == [3, 1, 2]
