"""Streamable HTTP on a raw socket: statuses, headers, bodies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.front import Stage, call, staged
from tests.harness.messages import ACCEPT, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as stage:
        yield stage


@pytest.mark.parametrize(
    "raw_id", ['"1"', "1", '"007"', "0", "-5", "9007199254740993", '"\\u00e9"', '""', "1" * 40]
)
@pytest.mark.parametrize("accept", [ACCEPT, "application/json", "text/event-stream"])
async def test_an_id_comes_back_as_it_was_spelled(stage: Stage, raw_id: str, accept: str) -> None:
    session = await stage.session()
    wire = await stage.connect()
    for method in ("ping", "tools/list", "tools/call"):
        body = f'{{"jsonrpc":"2.0","id":{raw_id},"method":"{method}"}}'.encode()
        answer = await wire.ask(body, mcp_session_id=session, accept=accept)
        message = answer.events[0] if answer.events else answer.body
        assert b'"id":%b,' % raw_id.encode() in message


@pytest.mark.parametrize("raw_id", ["null", "true", "{}", "[]", "1.5", "1e3"])
async def test_an_id_that_is_none_is_refused_and_reaches_nobody(stage: Stage, raw_id: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":{raw_id},"method":"tools/list"}}'.encode()
    answer = await stage.ask(body)
    assert (answer.status, answer.json["error"]["code"]) == (400, -32600)
    assert not stage.service.calls


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("with_session", [True, False])
async def test_a_notification_is_accepted_with_nothing(
    stage: Stage, known: bool, with_session: bool
) -> None:
    session = await stage.session() if with_session else None
    message = NOTIFICATION if known else {"jsonrpc": "2.0", "method": "no/such"}
    answer = await stage.ask(message, mcp_session_id=session)
    assert (answer.status, answer.body) == (202, b"")
    assert "content-type" not in answer.headers
    assert len(stage.service.notified) == 1


async def test_a_response_of_the_client_is_accepted_within_a_session_only(stage: Stage) -> None:
    session = await stage.session()
    response = {"jsonrpc": "2.0", "id": 9, "result": {}}
    within = await stage.ask(response, mcp_session_id=session)
    assert (within.status, within.body) == (202, b"")
    assert (await stage.ask(response)).status == 400


@pytest.mark.parametrize("body", [b"[]", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', b" [1]"])
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", None])
async def test_a_batch_is_refused_and_nothing_of_it_runs(
    stage: Stage, body: bytes, version: str | None
) -> None:
    session = await stage.session(version) if version else None
    answer = await stage.ask(body, mcp_session_id=session)
    assert (answer.status, answer.json["error"]["code"]) == (400, -32600)
    assert not stage.service.calls


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}',
        b"\xff",
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b'{"a":' * 5000,
    ],
)
async def test_what_is_not_json_is_refused_and_the_session_lives_on(
    stage: Stage, body: bytes
) -> None:
    session = await stage.session()
    wire = await stage.connect()
    answer = await wire.ask(body, mcp_session_id=session)
    assert (answer.status, answer.json["error"]["code"]) == (400, -32700)
    assert (await wire.ask(request("ping", 1), mcp_session_id=session)).status == 200


@pytest.mark.parametrize(
    ("accept", "status", "media"),
    [
        (None, 200, "application/json"),
        ("*/*", 200, "application/json"),
        ("application/*, text/*", 200, "application/json"),
        ("Application/JSON;q=0.9,TEXT/Event-Stream;v=1", 200, "application/json"),
        ("application/json", 200, "application/json"),
        ("application/json, text/event-stream;q=0", 200, "application/json"),
        ("text/event-stream", 200, "text/event-stream"),
        ("text/html", 406, "application/json"),
        ("application/json;q=0, text/html", 406, "application/json"),
        ("*/*;q=0", 406, "application/json"),
    ],
)
async def test_accept_decides_what_is_sent(
    stage: Stage, accept: str | None, status: int, media: str
) -> None:
    session = await stage.session()
    answer = await stage.ask(call("echo"), mcp_session_id=session, accept=accept)
    assert (answer.status, answer.headers["content-type"]) == (status, media)
    if status == 406:
        assert "Accept" in answer.json["error"]["message"]


async def test_deep_nesting_harms_nobody(stage: Stage) -> None:
    assert (await stage.ask(b"[" * 500_000)).status == 400
    assert (await stage.ask(b'{"params":' * 100_000)).status == 400
    assert (await stage.ask(request("ping", 1))).status == 200


async def test_accept_on_several_lines_is_one_list(stage: Stage) -> None:
    session = await stage.session()
    lines = "application/json\r\naccept: text/event-stream"
    answer = await stage.ask(call("progress"), mcp_session_id=session, accept=lines)
    assert answer.headers["content-type"] == "text/event-stream"
    assert len(answer.events) == 3


async def test_a_client_of_json_only_gets_no_events(stage: Stage) -> None:
    session = await stage.session()
    answer = await stage.ask(call("progress"), mcp_session_id=session, accept="application/json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["result"]["name"] == "progress"


async def test_a_stream_begins_with_the_first_notification(stage: Stage) -> None:
    session = await stage.session()
    answer = await stage.ask(call("progress", "p"), mcp_session_id=session)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    *progress, last = answer.events
    assert [json.loads(message)["method"] for message in progress] == ["notifications/progress"] * 2
    assert json.loads(last)["id"] == "p"


@pytest.mark.parametrize("accept", ["*/*", ACCEPT])
async def test_without_a_session_events_go_to_those_who_name_them(
    stage: Stage, accept: str
) -> None:
    answer = await stage.ask(call("progress"), accept=accept)
    assert bool(answer.events) == (accept == ACCEPT)


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ('Application/Json;charset="UTF-8"', 200),
        ("application/json; x=y", 200),
        ("application/json; charset=utf-16", 415),
        ("application/jsonp", 415),
        ("text/plain", 415),
        (None, 415),
    ],
)
async def test_content_type_must_be_json(
    stage: Stage, content_type: str | None, status: int
) -> None:
    answer = await stage.ask(request("ping", 1), content_type=content_type)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("version", "status"),
    [(None, 200), ("2025-03-26", 200), ("2024-11-05", 200), ("2026-07-28", 400), ("x", 400)],
)
async def test_a_version_that_is_not_legacy_asks_for_the_modern_era(
    stage: Stage, version: str | None, status: int
) -> None:
    session = await stage.session("2025-11-25")
    answer = await stage.ask(
        request("ping", 1), mcp_session_id=session, mcp_protocol_version=version
    )
    assert answer.status == status
    if status == 400:
        assert answer.json["error"]["code"] == -32602
        assert "_meta" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
    ],
)
async def test_initialize_answers_the_version_asked_for_or_the_newest(
    stage: Stage, asked: str, given: str
) -> None:
    answer = await stage.ask(
        request("initialize", 1, protocolVersion=asked), mcp_session_id="a-stale-one"
    )
    assert answer.json["result"]["protocolVersion"] == given
    session = stage.sessions.get(answer.headers["mcp-session-id"])
    assert session is not None
    assert session.protocol_version == given


@pytest.mark.parametrize(
    "params",
    [{}, {"protocolVersion": 1}, {"protocolVersion": "2025-11-25", "capabilities": []}],
)
async def test_an_initialize_that_says_too_little_opens_no_session(
    stage: Stage, params: dict[str, Any]
) -> None:
    answer = await stage.ask(request("initialize", 1, **params))
    assert answer.json["error"]["code"] == -32602
    assert "mcp-session-id" not in answer.headers
    assert len(stage.sessions) == 0


async def test_a_full_table_of_busy_sessions_refuses_initialize_for_a_while() -> None:
    async with staged(max_sessions=1) as stage:
        await stage.session()
        answer = await stage.ask(request("initialize", 7, protocolVersion="2025-11-25"))
        assert answer.status == 503
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert answer.json["id"] == 7
        assert answer.json["error"]["code"] == -31004


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_an_unknown_session_is_404_with_a_json_rpc_error(stage: Stage, method: str) -> None:
    body = request("ping", "a") if method == "POST" else b""
    answer = await stage.ask(body, method=method, mcp_session_id="gone")
    assert answer.status == 404
    assert "error" in answer.json
    if method == "POST":
        assert answer.json["id"] == "a"


@pytest.mark.parametrize(
    "method", ["resources/subscribe", "resources/unsubscribe", "logging/setLevel"]
)
async def test_some_requests_need_a_session(stage: Stage, method: str) -> None:
    assert (await stage.ask(request(method, 1))).status == 400
    assert not stage.service.calls


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_get_and_delete_need_a_session(stage: Stage, method: str) -> None:
    assert (await stage.ask(method=method)).status == 400


async def test_delete_ends_the_session_and_its_calls(stage: Stage) -> None:
    session = await stage.session()
    wire = await stage.connect()
    wire.request(call("hold"), mcp_session_id=session)
    await stage.service.holding.wait()
    assert (await stage.ask(method="DELETE", mcp_session_id=session)).status in (200, 204)
    answer = await wire.answer()
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"] == "text/event-stream"
    assert stage.service.held[0].cancelled is not None
    assert (await stage.ask(request("ping", 1), mcp_session_id=session)).status == 404
    assert (await stage.ask(method="DELETE", mcp_session_id=session)).status == 404


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/mcp?x=1", "http://localhost/mcp"])
async def test_both_spellings_of_the_path_are_served(stage: Stage, path: str) -> None:
    assert (await stage.ask(request("ping", 1), path=path)).status == 200


@pytest.mark.parametrize("path", ["/", "/mcpx", "/mcp//", "/.well-known/x", "/%6dcp%2f"])
async def test_other_paths_are_404(stage: Stage, path: str) -> None:
    answer = await stage.ask(request("ping", 1), path=path)
    assert answer.status == 404
    assert "error" in answer.json


async def test_head_is_not_allowed_and_opens_nothing(stage: Stage) -> None:
    answer = await stage.ask(method="HEAD")
    assert (answer.status, answer.body) == (405, b"")
    assert "POST" in answer.headers["allow"]
    assert (await stage.ask(method="PUT")).status == 405
    assert len(stage.sessions) == 0


async def test_a_preflight_allows_what_mcp_needs() -> None:
    async with staged(allowed_origins=("https://app.example",), tenant_header="X-Tenant") as stage:
        answer = await stage.ask(method="OPTIONS", origin="https://app.example")
        assert answer.status == 204
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        for method in ("GET", "POST", "DELETE"):
            assert method in answer.headers["access-control-allow-methods"]
        allowed = answer.headers["access-control-allow-headers"].lower()
        for name in ("mcp-session-id", "mcp-protocol-version", "authorization", "x-tenant"):
            assert name in allowed
        assert (await stage.ask(method="OPTIONS", origin="https://evil.example")).status == 403


@pytest.mark.parametrize(
    ("message", "status"),
    [(request("initialize", 1, protocolVersion="2025-11-25"), 200), (b"{", 400)],
)
async def test_a_browser_may_read_the_session_header_on_errors_too(
    stage: Stage, message: bytes | dict[str, Any], status: int
) -> None:
    answer = await stage.ask(message, origin="http://localhost:6274")
    assert answer.status == status
    exposed = answer.headers["access-control-expose-headers"]
    assert "Mcp-Session-Id" in exposed
    assert "WWW-Authenticate" in exposed
    assert answer.headers["access-control-allow-origin"] == "http://localhost:6274"
    assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}])
async def test_on_the_loopback_only_loopback_names_are_served(
    stage: Stage, headers: dict[str, str]
) -> None:
    answer = await stage.ask(request("initialize", 1, protocolVersion="2025-11-25"), **headers)
    assert answer.status == 403
    assert "error" in answer.json
    assert len(stage.sessions) == 0


async def test_settings_change_while_serving(stage: Stage) -> None:
    stage.update(allowed_hosts=("mcp.example",), request_bytes=100)
    assert (await stage.ask(request("ping", 1), host="mcp.example")).status == 200
    assert (await stage.ask(call("echo", pad="x" * 100))).status == 413


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_over_the_limit_is_413_and_harms_no_session(chunked: bool) -> None:
    async with staged(request_bytes=1000) as stage:
        session = await stage.session()
        wire = await stage.connect()
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"%b"}}' % (b"x" * 5000)
        if chunked:
            framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            wire.request(framed, content_length=None, transfer_encoding="chunked")
        else:
            wire.request(body)
        answer = await wire.answer()
        assert answer.status == 413
        assert "1000" in answer.json["error"]["message"]
        assert (await stage.ask(request("ping", 1), mcp_session_id=session)).status == 200


async def test_numbers_and_unknown_keys_pass_unchanged(stage: Stage) -> None:
    raw = b'{"name":"echo","n":12345678901234567890,"f":1.0,"e":1e400,"z":-0, "u":"\\u0041"}'
    answer = await stage.ask(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % raw)
    assert answer.body == b'{"jsonrpc":"2.0","id":1,"result":%b}' % raw


async def test_more_calls_than_allowed_are_told_so() -> None:
    async with staged(requests_in_flight=1) as stage:
        wire = await stage.connect()
        wire.request(call("hold"))
        await stage.service.holding.wait()
        answer = await stage.ask(call("echo", 2))
        assert answer.status == 200
        error = answer.json["error"]
        assert (answer.json["id"], error["code"]) == (2, -31004)
        assert error["data"]["retryable"] is True
        assert (await stage.ask(request("ping", 1))).json["result"] == {}
        stage.service.held[0].released.set()
        assert (await wire.answer()).status == 200


async def test_two_calls_of_one_id_are_both_answered(stage: Stage) -> None:
    session_id = await stage.session()
    session = stage.sessions.get(session_id)
    assert session is not None
    first, second = await stage.connect(), await stage.connect()
    first.request(call("hold", 1, who="first"), mcp_session_id=session_id)
    await stage.service.holding.wait()
    answer = await second.ask(call("echo", 1, who="second"), mcp_session_id=session_id)
    assert answer.json["result"]["who"] == "second"
    assert len(session.calls[b"1"]) == 1
    stage.service.held[0].released.set()
    assert (await first.answer()).json["result"]["who"] == "first"
    assert (session.calls, session.in_flight) == ({}, 0)


@pytest.mark.parametrize(
    "message", [call("fail", 3), request("initialize", 3, protocolVersion="x", explode=1)]
)
async def test_a_fault_of_ours_is_a_json_rpc_error_without_details(
    stage: Stage, message: dict[str, Any]
) -> None:
    answer = await stage.ask(message)
    assert answer.status == 200
    assert (answer.json["id"], answer.json["error"]["code"]) == (3, -32603)
    assert b"scripted" not in answer.body


async def test_the_tenant_comes_from_its_header_once() -> None:
    async with staged(tenant_header="X-Tenant") as stage:
        assert (await stage.ask(call("echo"), x_tenant="acme")).status == 200
        assert stage.service.calls[0].caller.tenant == "acme"
        assert stage.service.calls[0].caller.remote == "127.0.0.1"
        assert (await stage.ask(call("echo"))).status == 200
        assert stage.service.calls[1].caller.tenant is None
        assert (await stage.ask(call("echo"), x_tenant="a\r\nx-tenant: b")).status == 400
