"""GET streams and the end of a front: drain, refuse, close."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from tests.harness.front import Stage, Wire, call, staged, until
from tests.harness.messages import request

from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcpgroup_gateway.serving.sessions import Session

PING = request("ping", 1)
MESSAGE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":%d}}'


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


async def listen(stage: Stage, session_id: str) -> Wire:
    """Open a GET stream and read its head and its first event."""
    events = await stage.listen(session_id)
    first = await events.next()
    assert first is not None
    assert first.data == b""
    return events.wire


async def opened(stage: Stage) -> Session:
    session = stage.sessions.get(await stage.session())
    assert session is not None
    return session


async def test_get_needs_to_accept_events(stage: Stage) -> None:
    session = await opened(stage)
    answer = await stage.ask(method="GET", mcp_session_id=session.id, accept="application/json")
    assert answer.status == 406


async def test_a_message_goes_to_the_newest_live_stream(stage: Stage) -> None:
    session = await opened(stage)
    first, second = await listen(stage, session.id), await listen(stage, session.id)
    assert session.push(MESSAGE % 1)
    assert b'"data":1' in await second.chunk()
    second.abort()
    await until(lambda: len(session.streams) == 1)
    assert session.push(MESSAGE % 2)
    assert b'"data":2' in await first.chunk()
    assert stage.front.open_streams == 1


async def test_without_a_stream_list_changed_waits_and_the_rest_is_dropped(stage: Stage) -> None:
    session = await opened(stage)
    session.notify_list_changed(Kind.TOOL)
    session.notify_list_changed(Kind.TOOL)
    session.notify_list_changed(Kind.TEMPLATE)
    assert not session.push(MESSAGE % 1)
    wire = await listen(stage, session.id)
    blocks = (await wire.chunk()).strip().split(b"\n\n")
    methods = [json.loads(block.split(b"data: ")[1])["method"] for block in blocks]
    assert methods == ["notifications/tools/list_changed", "notifications/resources/list_changed"]
    session.notify_list_changed(Kind.PROMPT)
    assert b"notifications/prompts/list_changed" in await wire.chunk()


async def test_a_silent_stream_is_kept_alive() -> None:
    async with staged(keep_alive_seconds=0.1) as stage:
        session = await opened(stage)
        wire = await listen(stage, session.id)
        assert await wire.chunk() == b": keep-alive\n\n"
        session.push(MESSAGE % 1)
        while (chunk := await wire.chunk()) == b": keep-alive\n\n":
            pass
        assert b'"data":1' in chunk


async def test_delete_ends_its_streams(stage: Stage) -> None:
    session = await opened(stage)
    wire = await listen(stage, session.id)
    assert (await stage.ask(method="DELETE", mcp_session_id=session.id)).status == 204
    assert await wire.chunk() == b""


async def test_a_stream_opened_again_and_again_by_dying_clients_leaves_nothing(
    stage: Stage,
) -> None:
    session = await opened(stage)
    for _ in range(50):
        (await listen(stage, session.id)).abort()
    await until(lambda: not session.streams)
    assert (await stage.ask(PING, mcp_session_id=session.id)).status == 200


async def test_drain_serves_on_and_lets_connections_go(stage: Stage) -> None:
    session = await opened(stage)
    listener = await listen(stage, session.id)
    idle, busy = await stage.connect(), await stage.connect()
    assert "connection" not in (await idle.ask(PING)).headers
    busy.request(call("hold"), mcp_session_id=session.id)
    await stage.service.holding.wait()
    stage.front.begin_drain()
    assert await listener.chunk() == b""
    assert await listener.closed() == b""
    # It was answered a moment ago: its client may be about to send the next request.
    assert await idle.closed(3) == b""
    assert stage.front.idle_since is None
    late = await stage.connect()
    answer = await late.ask(request("initialize", 1, protocolVersion="2025-11-25"))
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert await late.closed() == b""
    stage.service.held[0].released.set()
    answer = await busy.answer()
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    await until(lambda: stage.front.idle_since is not None)


async def test_a_request_that_is_on_its_way_when_the_drain_begins_is_served(stage: Stage) -> None:
    wires = [await stage.connect() for _ in range(20)]
    for wire in wires:
        assert (await wire.ask(PING)).status == 200
    for number, wire in enumerate(wires):
        wire.request(call("echo", number))
    # Nothing was awaited since: the requests wait in the sockets.
    stage.front.begin_drain()
    for number, wire in enumerate(wires):
        assert (await wire.answer()).json["id"] == number


async def test_at_the_end_requests_are_refused_with_503(stage: Stage) -> None:
    session = await opened(stage)
    busy = await stage.connect()
    busy.request(call("hold"), mcp_session_id=session.id)
    await stage.service.holding.wait()
    stage.front.refuse()
    for method in ("POST", "GET", "DELETE"):
        answer = await stage.ask(
            PING if method == "POST" else b"", method=method, mcp_session_id=session.id
        )
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json["error"]["code"] == -31005
    stage.service.held[0].released.set()
    assert (await busy.answer()).status == 200


async def test_close_ends_everything_in_bounded_time() -> None:
    async with staged() as stage:
        session = await opened(stage)
        stream = await listen(stage, session.id)
        gone, sessionless, idle = [await stage.connect() for _ in range(3)]
        gone.request(call("hold"), mcp_session_id=session.id)
        await until(lambda: len(stage.service.held) == 1)
        gone.abort()
        sessionless.request(call("hold"))
        await until(lambda: len(stage.service.held) == 2)
        stage.service.held[1].cancel = lambda reason: None  # type: ignore[method-assign]
        idle.send(b"POST /mcp")
        async with asyncio.timeout(3):
            await stage.front.close()
        assert len(stage.sessions) == 0
        assert stage.front.in_flight == 0
        assert await stream.chunk() == b""
        for wire in (sessionless, idle):
            await wire.closed()
        with pytest.raises(ConnectionError):
            await stage.connect()
