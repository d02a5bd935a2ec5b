"""The modern era on a raw socket: statuses, headers, bodies, streams and their ends."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.front import Answer, Stage, call, modern, modern_headers, staged, until
from tests.harness.messages import ACCEPT, CAPABILITIES_KEY, MODERN, VERSION_KEY, request

from mcpgroup_gateway.wire.param_headers import ParamHeader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIST = modern("tools/list")


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


async def ask(stage: Stage, body: dict[str, Any], **headers: str | None) -> Answer:
    return await stage.ask(body, **modern_headers(body, **headers))


def error(answer: Answer) -> tuple[int, int]:
    assert answer.headers["content-type"] == "application/json"
    return answer.status, answer.json["error"]["code"]


# -- refusals ----------------------------------------------------------------------------


async def test_a_request_is_answered_in_json_without_a_session(stage: Stage) -> None:
    answer = await ask(stage, modern("tools/call", "x", name="echo", arguments={"n": 1}))
    assert (answer.status, answer.json["id"]) == (200, "x")
    assert answer.json["result"] == {"name": "echo", "arguments": {"n": 1}}
    assert "mcp-session-id" not in answer.headers
    assert len(stage.sessions) == 0


async def test_a_session_id_and_an_event_id_mean_nothing(stage: Stage) -> None:
    session = await stage.session()
    for known in (session, "stale"):
        answer = await ask(stage, LIST, mcp_session_id=known, last_event_id="7-1")
        assert answer.status == 200
        assert "mcp-session-id" not in answer.headers
    assert all(each.caller.session is None for each in stage.service.calls)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}', 400, -32700),
        (b"[" + json.dumps(LIST).encode() + b"]", 400, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', 400, -32602),
    ],
)
async def test_what_is_no_modern_request_is_refused_and_reaches_nobody(
    stage: Stage, body: bytes, status: int, code: int
) -> None:
    headers = {"mcp_protocol_version": MODERN, "mcp_method": "tools/list"}
    assert error(await stage.ask(body, **headers)) == (status, code)
    assert not stage.service.calls
    assert not stage.service.responded


async def test_a_header_that_differs_from_the_body_is_refused(stage: Stage) -> None:
    for changes in (
        {"mcp_method": "tools/call"},
        {"mcp_method": None},
        {"mcp_method": "tools/list\r\nmcp-method: tools/list"},
        {"mcp_protocol_version": "2099-01-01"},
        {"mcp_protocol_version": f"2025-11-25\r\nmcp-protocol-version: {MODERN}"},
    ):
        assert error(await ask(stage, LIST, **changes)) == (400, -32020), changes
    assert not stage.service.calls


@pytest.mark.parametrize("version", [None, "2025-11-25"])
async def test_a_modern_body_needs_its_header(stage: Stage, version: str | None) -> None:
    session = await stage.session()
    for known in (None, session):
        answer = await ask(stage, LIST, mcp_protocol_version=version, mcp_session_id=known)
        assert error(answer) == (400, -32020)
        assert answer.json["id"] == 1
    assert not stage.service.calls


async def test_a_version_that_is_not_served_is_answered_with_those_that_are(stage: Stage) -> None:
    body = modern("tools/list", 5, {VERSION_KEY: "2099-01-01"})
    answer = await ask(stage, body, mcp_protocol_version="2099-01-01")
    assert error(answer) == (400, -32022)
    assert answer.json["id"] == 5
    assert answer.json["error"]["data"]["requested"] == "2099-01-01"
    assert MODERN in answer.json["error"]["data"]["supported"]


async def test_arguments_that_come_in_headers_are_checked(stage: Stage) -> None:
    stage.service.declared = (ParamHeader(("region",), "Region", "string"),)
    body = modern("tools/call", name="echo", arguments={"region": "eu"})
    assert error(await ask(stage, body)) == (400, -32020)
    assert error(await ask(stage, body, mcp_param_region="us")) == (400, -32020)
    twice = "eu\r\nMcp-Param-Region: eu"
    assert error(await ask(stage, body, mcp_param_region=twice)) == (400, -32020)
    assert not stage.service.calls
    answer = await ask(stage, body, mcp_param_region="eu", mcp_param_other="x")
    assert answer.status == 200


@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "notifications/initialized"],
)
async def test_a_method_that_the_era_has_no_more_is_not_found(stage: Stage, method: str) -> None:
    assert error(await ask(stage, modern(method))) == (404, -32601)
    assert not stage.service.calls
    assert len(stage.sessions) == 0


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("version", [MODERN, "2099-01-01"])
async def test_only_posts_are_allowed(stage: Stage, method: str, version: str) -> None:
    session = await stage.session()
    answer = await stage.ask(
        method=method, mcp_protocol_version=version, mcp_session_id=session, accept=ACCEPT
    )
    assert answer.status == 405
    assert answer.headers["allow"] == "POST, OPTIONS"
    assert len(stage.sessions) == 1


async def test_a_notification_is_accepted_and_ends_here(stage: Stage) -> None:
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    answer = await stage.ask(body, mcp_protocol_version=MODERN)
    assert (answer.status, answer.body) == (202, b"")
    answer = await stage.ask(body, mcp_protocol_version="2099-01-01")
    assert error(answer) == (400, -32022)
    assert not stage.service.notified


# -- answers -----------------------------------------------------------------------------


async def test_who_asks_is_told_to_the_service(stage: Stage) -> None:
    info = {"name": "me", "version": "1"}
    meta = {
        CAPABILITIES_KEY: {"elicitation": {}},
        "io.modelcontextprotocol/clientInfo": info,
        "io.modelcontextprotocol/logLevel": "error",
        "progressToken": 1,
    }
    answer = await ask(stage, modern("tools/call", 1, meta, name="echo"))
    assert answer.json["result"] == {"name": "echo", "_meta": {"progressToken": 1}}
    (served,) = stage.service.calls
    caller = served.caller
    assert caller.modern
    assert caller.log_level == "error"
    assert json.loads(caller.client.capabilities) == {"elicitation": {}}
    assert json.loads(caller.client.info) == info


async def test_discover_is_answered(stage: Stage) -> None:
    answer = await ask(stage, modern("server/discover", "d"))
    assert (answer.status, answer.json["id"]) == (200, "d")
    assert answer.json["result"]["supportedVersions"] == [MODERN]


@pytest.mark.parametrize(
    ("code", "status"),
    [(-32602, 400), (-32020, 400), (-32021, 400), (-32601, 404), (-31001, 200), (-32603, 200)],
)
@pytest.mark.parametrize("accept", [ACCEPT, "text/event-stream", "application/json"])
async def test_the_status_follows_the_code_of_a_member(
    stage: Stage, code: int, status: int, accept: str
) -> None:
    answer = await ask(stage, modern("tools/call", name="echo", code=code), accept=accept)
    assert answer.status == status
    message = answer.events[0] if answer.events else answer.body
    assert json.loads(message)["error"]["code"] == code


async def test_a_fault_of_ours_is_an_error_and_not_a_500(stage: Stage) -> None:
    assert error(await ask(stage, modern("tools/call", name="fail"))) == (200, -32603)


async def test_what_precedes_the_answer_makes_it_a_stream(stage: Stage) -> None:
    answer = await ask(stage, modern("tools/call", "p", name="progress"))
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["x-accel-buffering"] == "no"
    *progress, last = answer.events
    assert [json.loads(each)["method"] for each in progress] == ["notifications/progress"] * 2
    assert json.loads(last)["id"] == "p"


async def test_an_error_at_the_end_of_a_stream_leaves_its_status(stage: Stage) -> None:
    answer = await ask(stage, modern("tools/call", name="progress", code=-32602))
    assert (answer.status, len(answer.events)) == (200, 3)
    assert json.loads(answer.events[-1])["error"]["code"] == -32602


@pytest.mark.parametrize("accept", ["application/json", "*/*"])
async def test_a_client_that_names_no_events_gets_none(stage: Stage, accept: str) -> None:
    answer = await ask(stage, modern("tools/call", name="progress"), accept=accept)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["result"]["name"] == "progress"


async def test_a_silent_call_becomes_a_stream_that_is_kept_alive() -> None:
    async with staged(keep_alive_seconds=0.05) as stage:
        wire = await stage.connect()
        body = modern("tools/call", name="hold")
        wire.request(body, **modern_headers(body))
        status, headers = await wire.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        assert await wire.chunk() == b": keep-alive\n\n"
        assert await wire.chunk() == b": keep-alive\n\n"
        stage.service.held[0].released.set()
        while b"result" not in (last := await wire.chunk()):
            assert last == b": keep-alive\n\n"
        assert await wire.chunk() == b""


@pytest.mark.parametrize("accept", [ACCEPT, "application/json"])
async def test_a_client_that_goes_away_cancels_at_once(stage: Stage, accept: str) -> None:
    wire = await stage.connect()
    body = modern("tools/call", name="hold")
    wire.request(body, **modern_headers(body, accept=accept))
    async with asyncio.timeout(5):
        await stage.service.holding.wait()
        wire.abort()
        began = asyncio.get_running_loop().time()
        await stage.service.cancels.wait()
    assert asyncio.get_running_loop().time() - began < 0.1
    await until(lambda: stage.front.in_flight == 0)


async def test_calls_of_both_eras_share_one_limit() -> None:
    async with staged(requests_in_flight=1) as stage:
        wire = await stage.connect()
        body = modern("tools/call", name="hold")
        wire.request(body, **modern_headers(body))
        async with asyncio.timeout(5):
            await stage.service.holding.wait()
        assert error(await ask(stage, modern("tools/call", name="echo"))) == (200, -31004)
        assert error(await stage.ask(call("echo"))) == (200, -31004)
        stage.service.held[0].released.set()
        assert (await wire.answer()).status == 200
        assert (await stage.ask(call("echo"))).status == 200


# -- subscriptions -----------------------------------------------------------------------


async def test_listening_needs_a_client_that_takes_events(stage: Stage) -> None:
    body = modern("subscriptions/listen", name="hold")
    answer = await ask(stage, body, accept="application/json")
    assert answer.status == 406
    assert not stage.service.calls


async def test_a_subscription_is_no_call_in_flight_and_ends_with_its_stream() -> None:
    async with staged(requests_in_flight=1) as stage:
        wire = await stage.connect()
        body = modern("subscriptions/listen", "l", name="hold")
        wire.request(body, **modern_headers(body))
        async with asyncio.timeout(5):
            await stage.service.holding.wait()
        (held,) = stage.service.held
        assert held.caller.sink is not None
        await held.caller.sink.send(b'{"jsonrpc":"2.0","method":"notifications/ack"}')
        status, headers = await wire.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        assert b"notifications/ack" in await wire.chunk()
        assert (stage.front.running, stage.front.in_flight) == (0, 0)
        assert (await ask(stage, LIST)).status == 200
        second = modern("subscriptions/listen", 2, name="hold")
        assert error(await ask(stage, second)) == (200, -31004)
        wire.abort()
        async with asyncio.timeout(5):
            await stage.service.cancels.wait()


async def test_a_subscription_that_ends_sends_its_result(stage: Stage) -> None:
    wire = await stage.connect()
    body = modern("subscriptions/listen", "l", name="hold")
    wire.request(body, **modern_headers(body))
    async with asyncio.timeout(5):
        await stage.service.holding.wait()
    (held,) = stage.service.held
    assert held.caller.sink is not None
    await held.caller.sink.send(b'{"jsonrpc":"2.0","method":"notifications/ack"}')
    held.released.set()
    answer = await wire.answer()
    assert json.loads(answer.events[-1])["id"] == "l"


# -- browsers ----------------------------------------------------------------------------


async def test_a_preflight_allows_headers_that_repeat_arguments(stage: Stage) -> None:
    asked = "mcp-method, mcp-name, mcp-param-region, x-evil, mcp-param-, mcp-param-a b, MCP-PARAM-Z"
    answer = await stage.ask(
        method="OPTIONS",
        origin="http://localhost:6274",
        access_control_request_headers=asked,
    )
    allowed = answer.headers["access-control-allow-headers"].split(", ")
    assert {"Mcp-Method", "Mcp-Name", "mcp-param-region", "MCP-PARAM-Z"} <= set(allowed)
    assert not {"x-evil", "mcp-param-", "mcp-param-a b"} & set(allowed)


async def test_legacy_requests_are_served_as_ever(stage: Stage) -> None:
    session = await stage.session()
    for body in (request("tools/list", 1), call("echo", _meta={"progressToken": VERSION_KEY})):
        assert (await stage.ask(body, mcp_session_id=session)).status == 200
