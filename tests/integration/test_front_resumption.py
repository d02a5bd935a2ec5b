"""Event ids, and clients that come back for a stream whose connection they lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.front import Events, Stage, call, staged, until
from tests.harness.messages import request

from mcpgroup_gateway.wire.envelope import encode_notification, encode_request
from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcpgroup_gateway.serving.session import Session
    from mcpgroup_gateway.wire.sse import Event


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


async def opened(stage: Stage, version: str = "2025-11-25") -> Session:
    session = stage.sessions.get(await stage.session(version))
    assert session is not None
    return session


def progress(number: int) -> bytes:
    return encode_notification(
        "notifications/progress", b'{"progressToken":1,"progress":%d}' % number
    )


ASK = encode_request("q1", "elicitation/create", b'{"message":"?"}')


def told(events: list[Event]) -> list[Any]:
    """Of each event with data: its progress, or the id of a request or an answer."""
    messages = [json.loads(event.data) for event in events if event.data]
    return [m["params"]["progress"] if "id" not in m else m["id"] for m in messages]


async def broken(stage: Stage, session: Session, sent: int = 2) -> str:
    """A call that made progress before its client was cut off; the last id that was seen."""
    events = await stage.streaming(session.id)
    for number in range(1, sent + 1):
        await stage.say(progress(number))
    ids = await events.ids(sent + 1)
    events.wire.abort()
    await until(lambda: session.posts[0].is_gone)
    return ids[-1]


@pytest.mark.parametrize(
    ("version", "primed"),
    [("2025-11-25", True), ("2025-06-18", False), ("2025-03-26", False)],
)
async def test_every_event_of_a_session_has_an_id_that_names_its_stream(
    stage: Stage, version: str, primed: bool
) -> None:
    session = await opened(stage, version)
    first = await stage.events(call("progress"), mcp_session_id=session.id)
    events = await first.rest()
    numbers = range(0 if primed else 1, 4)
    assert [event.id for event in events] == [f"p1-{n}" for n in numbers]
    assert first.parser.retry_seconds == (1.0 if primed else None)
    if primed:
        assert events[0].data == b""
    second = await stage.listen(session.id)
    session.push(progress(1))
    assert await second.ids(2 if primed else 1) == [f"g2-{n}" for n in numbers][: 1 + primed]
    third = await stage.events(call("progress"), mcp_session_id=session.id)
    assert {event.id.split("-")[0] for event in await third.rest()} == {"p3"}


async def test_without_a_session_events_have_no_ids(stage: Stage) -> None:
    events = await stage.events(call("progress"))
    assert [event.id for event in await events.rest()] == ["", "", ""]


async def test_an_answer_as_the_only_event_has_an_id_too(stage: Stage) -> None:
    session = await opened(stage)
    events = await stage.events(
        call("echo", 5), mcp_session_id=session.id, accept="text/event-stream"
    )
    assert [event.id for event in await events.rest()] == ["p1-0", "p1-1"]


async def test_a_call_goes_on_after_a_disconnect_and_its_client_comes_back_for_the_rest(
    stage: Stage,
) -> None:
    session = await opened(stage)
    last = await broken(stage, session)
    await stage.say(progress(3))
    await stage.say(ASK)
    events = await stage.listen(session.id, last)
    # What came meanwhile, and then what comes.
    assert await events.ids(3) == ["p1-2", "p1-3", "p1-4"]
    await stage.say(progress(4))
    assert (await events.ids(1)) == ["p1-5"]
    stage.service.held[0].released.set()
    assert told(await events.rest()) == [1]
    assert (await stage.ask(request("ping", 2), mcp_session_id=session.id)).status == 200


async def test_an_answer_nobody_was_there_for_waits_for_the_client(stage: Stage) -> None:
    session = await opened(stage)
    last = await broken(stage, session)
    await stage.say(progress(3))
    stage.service.held[0].released.set()
    await until(lambda: stage.front.in_flight == 0)
    assert stage.sessions.replay.size > 0
    events = await stage.listen(session.id, last)
    assert told(await events.rest()) == [3, 1]
    # The connection may have lost it: asked for again it is there for a while.
    again = await stage.listen(session.id, "p1-3")
    assert told(await again.rest()) == [1]


async def test_who_has_seen_the_answer_is_told_that_nothing_follows(stage: Stage) -> None:
    session = await opened(stage)
    events = await stage.events(call("progress"), mcp_session_id=session.id)
    last = (await events.rest())[-1].id
    answer = await stage.ask(method="GET", mcp_session_id=session.id, last_event_id=last)
    assert (answer.status, answer.body) == (204, b"")
    assert not session.streams


async def test_the_answer_of_a_cancelled_call_never_comes(stage: Stage) -> None:
    session = await opened(stage)
    last = await broken(stage, session)
    stage.service.held[0].cancel("by the client")
    await until(lambda: stage.front.in_flight == 0)
    answer = await stage.ask(method="GET", mcp_session_id=session.id, last_event_id=last)
    assert answer.status == 204


@pytest.mark.parametrize("last", ["p1-9", "p7-1"])
async def test_events_of_a_post_that_are_not_remembered_are_refused(
    stage: Stage, last: str
) -> None:
    session = await opened(stage)
    await broken(stage, session)
    answer = await stage.ask(method="GET", mcp_session_id=session.id, last_event_id=last)
    assert (answer.status, answer.json["error"]["code"]) == (400, -32600)


@pytest.mark.parametrize("last", ["g9-4", "17", "another-server's", "\x81"])
async def test_any_other_unknown_id_gets_a_new_stream(stage: Stage, last: str) -> None:
    session = await opened(stage)
    events = await stage.listen(session.id, last)
    session.push(progress(1))
    assert await events.ids(2) == ["g1-0", "g1-1"]


async def test_a_get_stream_is_taken_over_and_the_old_connection_ends(stage: Stage) -> None:
    session = await opened(stage)
    old = await stage.listen(session.id)
    session.push(progress(1))
    session.push(progress(2))
    ids = await old.ids(3)
    other = await stage.listen(session.id)
    await other.next()
    new = await stage.listen(session.id, ids[1])
    assert await new.ids(2) == ["g1-1", "g1-2"]
    assert await old.next() is None
    # It is the newest now.
    session.push(progress(3))
    assert await new.ids(1) == ["g1-3"]
    assert stage.front.open_streams == 2
    session.push(progress(4))
    assert await new.ids(1) == ["g1-4"]


async def test_a_post_stream_is_taken_over_from_a_connection_that_is_still_open(
    stage: Stage,
) -> None:
    session = await opened(stage)
    old = await stage.streaming(session.id)
    await stage.say(progress(1))
    ids = await old.ids(2)
    new = await stage.listen(session.id, ids[0])
    await stage.say(progress(2))
    assert await new.ids(3) == ["p1-0", "p1-1", "p1-2"]
    with pytest.raises((ConnectionError, EOFError)):
        await old.wire.chunk()
    stage.service.held[0].released.set()
    assert told(await new.rest()) == [1]


async def test_what_a_get_stream_missed_is_there_after_a_disconnect(stage: Stage) -> None:
    session = await opened(stage)
    events = await stage.listen(session.id)
    session.push(progress(1))
    last = (await events.ids(2))[1]
    session.push(progress(2))
    events.wire.abort()
    await until(lambda: not session.streams)
    session.notify_list_changed(Kind.TOOL)
    again = await stage.listen(session.id, last)
    blocks = [await again.next() for _ in range(3)]
    assert [block.id for block in blocks if block] == ["g1-1", "g1-2", "g1-3"]
    assert blocks[2] is not None
    assert b"list_changed" in blocks[2].data


async def test_a_request_for_no_call_finds_a_post_that_is_silent_so_far(stage: Stage) -> None:
    session = await opened(stage)
    assert not session.push_request(ASK)
    plain, wire = await stage.connect(), await stage.connect()
    plain.request(call("hold", 1), mcp_session_id=session.id, accept="application/json")
    await until(lambda: len(stage.service.held) == 1)
    assert not session.push_request(ASK)
    wire.request(call("hold", 2), mcp_session_id=session.id)
    await until(lambda: len(stage.service.held) == 2)
    assert session.push_request(ASK)
    assert not session.push(progress(1))
    await wire.head()
    stage.service.held[1].released.set()
    assert told(await Events(wire).rest()) == ["q1", 2]
    listener = await stage.listen(session.id)
    await listener.next()
    assert session.push_request(ASK)
    event = await listener.next()
    assert event is not None
    assert event.data == ASK


async def test_a_request_at_the_moment_of_the_answer_comes_before_it(stage: Stage) -> None:
    session = await opened(stage)
    wire = await stage.connect()
    wire.request(call("hold", 7), mcp_session_id=session.id)
    await until(lambda: len(stage.service.held) == 1)
    stage.service.held[0].released.set()
    assert session.push_request(ASK)
    await wire.head()
    assert told(await Events(wire).rest()) == ["q1", 7]


async def test_a_question_of_a_call_whose_client_left_early_goes_where_it_listens(
    stage: Stage,
) -> None:
    session = await opened(stage)
    listener = await stage.listen(session.id)
    wire = await stage.connect()
    wire.request(call("hold", 1), mcp_session_id=session.id)
    await stage.service.holding.wait()
    wire.abort()
    await until(lambda: session.posts[0].is_gone)
    await stage.say(progress(1))
    await stage.say(ASK)
    assert [event.data for event in [await listener.next(), await listener.next()] if event] == [
        b"",
        ASK,
    ]


async def test_a_session_knows_whether_its_client_is_there(stage: Stage) -> None:
    session = await opened(stage)
    assert not session.attached
    wire = await stage.connect()
    wire.request(call("hold"), mcp_session_id=session.id)
    await stage.service.holding.wait()
    assert session.attached
    wire.abort()
    await until(lambda: not session.attached)
    away = session.detached_since
    assert away is not None
    stage.service.held[0].released.set()
    await until(lambda: stage.front.in_flight == 0)
    assert session.detached_since == away
    events = await stage.listen(session.id)
    assert session.attached
    events.wire.abort()
    await until(lambda: not session.attached)
    assert (session.detached_since or 0.0) > away


async def test_progress_of_a_call_whose_client_is_gone_neither_stalls_it_nor_piles_up(
    stage: Stage,
) -> None:
    session = await opened(stage)
    await broken(stage, session)
    padding = b"x" * 100_000
    for _ in range(100):
        await stage.say(encode_notification("notifications/message", b'{"x":"%b"}' % padding))
    assert stage.sessions.replay.size < 2_000_000
    await stage.say(ASK)
    for number in range(1000):
        await stage.say(progress(number))
    assert len(stage.sessions.replay) < 300
    stage.service.held[0].released.set()
    await until(lambda: stage.front.in_flight == 0)
    events = await stage.listen(session.id, "p1-1")
    seen = told(await events.rest())
    # The question and the answer outlive the progress between them.
    assert (seen[0], seen[-1]) == ("q1", 1)
    assert seen[1:-1] == list(range(1000))[1000 - len(seen[1:-1]) :]


async def test_one_session_cannot_take_what_all_may_keep(stage: Stage) -> None:
    stage.sessions.replay.max_bytes = 300_000
    for _ in range(8):
        session = await opened(stage)
        await broken(stage, session)
        for _ in range(4):
            await stage.service.held[-1].caller.sink.send(progress(3) + b" " * 90_000)  # type: ignore[union-attr]
    assert stage.sessions.replay.size < 300_000


async def test_delete_ends_a_stream_that_was_resumed_and_forgets_it(stage: Stage) -> None:
    session = await opened(stage)
    events = await stage.listen(session.id, await broken(stage, session))
    await events.next()
    assert (await stage.ask(method="DELETE", mcp_session_id=session.id)).status == 204
    assert await events.rest() == []
    await until(lambda: stage.front.in_flight == 0)
    assert len(stage.sessions.replay) == 0


async def test_a_drain_ends_get_streams_but_a_resumed_call_only_with_its_answer(
    stage: Stage,
) -> None:
    session = await opened(stage)
    resumed = await stage.listen(session.id, await broken(stage, session))
    listener = await stage.listen(session.id)
    stage.front.begin_drain()
    assert [event.data for event in await listener.rest()] == [b""]
    await stage.say(progress(3))
    stage.service.held[0].released.set()
    assert told(await resumed.rest()) == [3, 1]


async def test_streams_that_are_left_behind_cost_nothing_in_the_end(stage: Stage) -> None:
    session = await opened(stage)
    for number in range(20):
        events = await stage.listen(session.id, "g1-0" if number % 2 else None)
        events.wire.abort()
    await until(lambda: not session.streams)
    assert session._replay is not None
    assert not session._replay.logs
