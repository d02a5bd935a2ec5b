"""What a modern request must say of itself, and in which order it is told what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound
from tests.harness.front import modern
from tests.harness.messages import CAPABILITIES_KEY, MODERN, VERSION_KEY, request

from mcpgroup_gateway.front.modern import (
    ModernRequest,
    Refused,
    check_legacy,
    check_method,
    is_modern,
    read_request,
    status_of,
)
from mcpgroup_gateway.members.upstream import GATEWAY_IDENTITY
from mcpgroup_gateway.wire.envelope import parse_message

INFO_KEY = "io.modelcontextprotocol/clientInfo"
LEVEL_KEY = "io.modelcontextprotocol/logLevel"
CALL = modern("tools/call", name="echo")


def headers_of(body: dict[str, Any]) -> list[tuple[str, str]]:
    params = body["params"]
    pairs = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", body["method"])]
    if "name" in params or "uri" in params:
        pairs.append(("Mcp-Name", params.get("name", params.get("uri"))))
    return pairs


def read(body: dict[str, Any] | bytes, *headers: tuple[str, str]) -> ModernRequest:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_request(parse_message(raw), headers or headers_of(json.loads(raw)))


def refused(body: dict[str, Any] | bytes, *headers: tuple[str, str]) -> Refused:
    with pytest.raises(Refused) as caught:
        read(body, *headers)
    return caught.value


# -- which era ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ([], False),
        (["2025-03-26"], False),
        (["2024-11-05", "2025-11-25"], False),
        ([MODERN], True),
        (["2025-11-25", MODERN], True),
        (["2099-01-01"], True),
        ([""], True),
    ],
)
def test_the_header_alone_decides_the_era(versions: list[str], *, expected: bool) -> None:
    assert is_modern(versions) is expected


@pytest.mark.parametrize(
    ("body", "raw_id"),
    [
        (modern("tools/list", "a"), b'"a"'),
        (modern("tools/list", 1, {VERSION_KEY: "2099-01-01"}), b"1"),
        (modern("tools/list", 1, {VERSION_KEY: "2025-11-25"}), None),
        (modern("tools/list", 1, {VERSION_KEY: 7}), None),
        (request("tools/list", 1, note=VERSION_KEY), None),
        ({**modern("notifications/cancelled"), "id": None}, None),
        (request("tools/list", 1), None),
    ],
)
def test_a_modern_body_is_found_out_without_its_header(
    body: dict[str, Any], raw_id: bytes | None
) -> None:
    if body["id"] is None:
        del body["id"]
    assert check_legacy(json.dumps(body).encode()) == raw_id


def test_what_is_no_json_is_left_to_whoever_reads_it() -> None:
    assert check_legacy(b"{" + VERSION_KEY.encode()) is None


# -- the checks and their order ----------------------------------------------------------


@pytest.mark.parametrize("key", [VERSION_KEY, CAPABILITIES_KEY])
def test_a_request_without_its_envelope_is_told_what_it_lacks(key: str) -> None:
    fault = refused(modern("tools/call", 1, {key: None}, name="echo"))
    assert fault.code == -32602
    assert key in fault.text


@pytest.mark.parametrize(
    "params",
    [b"", b',"params":{}', b',"params":{"_meta":7}', b',"params":{"_meta":{}}'],
)
def test_a_request_without_any_envelope_is_refused(params: bytes) -> None:
    raw = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"%b}' % params
    fault = refused(raw, ("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/list"))
    assert fault.code == -32602


VERSION = ("MCP-Protocol-Version", MODERN)
METHOD = ("Mcp-Method", "tools/call")
NAME = ("Mcp-Name", "echo")


@pytest.mark.parametrize(
    ("headers", "word"),
    [
        ([METHOD, NAME], "MCP-Protocol-Version differs"),
        ([("MCP-Protocol-Version", "2099-01-01"), METHOD, NAME], "MCP-Protocol-Version differs"),
        ([VERSION, NAME], "Mcp-Method is missing"),
        ([VERSION, ("Mcp-Method", "Tools/Call"), NAME], "Mcp-Method differs"),
        ([VERSION, METHOD], "Mcp-Name is missing"),
        ([VERSION, METHOD, ("Mcp-Name", "Echo")], "Mcp-Name differs"),
        ([VERSION, METHOD, ("Mcp-Name", "=?base64?ZWNo?=")], "Mcp-Name differs"),
        ([VERSION, METHOD, ("Mcp-Name", "=?base64?ZWNob?=")], "Mcp-Name is not valid"),
        ([VERSION, VERSION, METHOD, NAME], "MCP-Protocol-Version is given more than once"),
        ([VERSION, METHOD, ("mcp-method", "tools/call"), NAME], "Mcp-Method is given more than"),
        ([VERSION, METHOD, NAME, ("MCP-NAME", "echo")], "Mcp-Name is given more than once"),
    ],
)
def test_headers_that_do_not_repeat_the_body_are_named(
    headers: list[tuple[str, str]], word: str
) -> None:
    fault = refused(CALL, *headers)
    assert fault.code == -32020
    assert word in fault.text


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "wetter für morgen"}),
        ("prompts/get", {"name": " padded "}),
        ("resources/read", {"uri": "file:///ü"}),
        ("resources/read", {"uri": "=?base64?eA==?="}),
    ],
)
def test_a_name_beyond_ascii_is_compared_as_text(method: str, params: dict[str, Any]) -> None:
    body = modern(method, 1, **params)
    value = inbound.encode_header_value(next(iter(params.values())))
    read(body, VERSION, ("Mcp-Method", method), ("mcp-name", value))


def test_a_request_that_names_nothing_is_left_to_be_served() -> None:
    read(modern("tools/call"), VERSION, METHOD)
    read(modern("tools/list"), VERSION, ("Mcp-Method", "tools/list"), NAME)
    assert refused(modern("tools/call"), VERSION, METHOD, NAME).code == -32020


def test_a_version_that_is_not_served_is_answered_with_those_that_are() -> None:
    body = modern("tools/list", 1, {VERSION_KEY: "2099-01-01"})
    fault = refused(body, ("MCP-Protocol-Version", "2099-01-01"), ("Mcp-Method", "tools/list"))
    assert fault.code == -32022
    assert fault.data == {
        "supported": [MODERN, "2025-11-25", "2025-06-18", "2025-03-26"],
        "requested": "2099-01-01",
    }


@pytest.mark.parametrize(
    ("meta", "word"),
    [
        ({CAPABILITIES_KEY: []}, CAPABILITIES_KEY),
        ({INFO_KEY: "me"}, INFO_KEY),
        ({LEVEL_KEY: "loud"}, LEVEL_KEY),
        ({LEVEL_KEY: 3}, LEVEL_KEY),
    ],
)
def test_an_envelope_of_another_shape_is_refused(meta: dict[str, Any], word: str) -> None:
    fault = refused(modern("tools/call", 1, meta, name="echo"))
    assert fault.code == -32602
    assert word in fault.text


def test_the_first_thing_that_is_wrong_is_told() -> None:
    everything = modern("tools/call", 1, {CAPABILITIES_KEY: None, VERSION_KEY: "x"}, name="echo")
    assert refused(everything, VERSION).code == -32602
    unserved = modern("tools/call", 1, {VERSION_KEY: "x", LEVEL_KEY: "loud"}, name="echo")
    assert refused(unserved, VERSION).code == -32020
    assert refused(unserved, ("MCP-Protocol-Version", "x"), METHOD, NAME).code == -32022


@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"],
)
def test_methods_that_the_era_has_no_more_are_unknown(method: str) -> None:
    with pytest.raises(Refused) as caught:
        check_method(method)
    assert caught.value.code == -32601
    check_method("tools/call")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        *((code, 400) for code in (-32700, -32600, -32602, -32020, -32021, -32022)),
        (-32601, 404),
        *((code, 200) for code in (-32603, -32002, *range(-31007, -31000), 0, 7)),
    ],
)
def test_the_status_follows_the_code(code: int, status: int) -> None:
    assert status_of(code) == status


# -- what goes on ------------------------------------------------------------------------


def test_what_a_request_says_of_its_client_is_read_and_taken_away() -> None:
    meta = {
        CAPABILITIES_KEY: {"sampling": {}},
        INFO_KEY: {"name": "me", "version": "1"},
        LEVEL_KEY: "warning",
        "progressToken": 7,
        "traceparent": "00-ab-cd-01",
    }
    asked = read(modern("tools/call", 1, meta, name="echo", arguments={"n": 1}))
    assert asked.protocol_version == MODERN
    assert json.loads(asked.client.capabilities) == {"sampling": {}}
    assert json.loads(asked.client.info) == {"name": "me", "version": "1"}
    assert asked.log_level == "warning"
    assert (asked.name, json.loads(asked.arguments)) == ("echo", {"n": 1})
    assert json.loads(asked.params) == {
        "name": "echo",
        "arguments": {"n": 1},
        "_meta": {"progressToken": 7, "traceparent": "00-ab-cd-01"},
    }


def test_an_envelope_that_said_nothing_else_disappears() -> None:
    asked = read(modern("tools/list", 1, cursor="c"))
    assert json.loads(asked.params) == {"cursor": "c"}
    assert asked.log_level is None
    assert (asked.name, asked.arguments) == (None, b"")


@pytest.mark.parametrize("info", [None, "absent"])
def test_a_client_without_a_name_goes_by_that_of_the_gateway(info: str | None) -> None:
    raw = json.dumps(modern("tools/list"))
    if info is None:
        raw = raw.replace('"_meta": {', f'"_meta": {{"{INFO_KEY}": null, ')
    assert read(raw.encode()).client.info == GATEWAY_IDENTITY.info


def test_bytes_that_are_not_for_us_are_not_touched() -> None:
    raw = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":'
        b'{ "big":12345678901234567890123, "n":1.0, "s":"\\u00e9\\ud83d" },"_meta":{"%b":"%b",'
        b'"%b":{},"progressToken":1e3}}}'
    ) % (VERSION_KEY.encode(), MODERN.encode(), CAPABILITIES_KEY.encode())
    params = read(raw).params
    assert b'{ "big":12345678901234567890123, "n":1.0, "s":"\\u00e9\\ud83d" }' in params
    assert b'{"progressToken":1e3}' in params


# -- against another implementation ------------------------------------------------------

META = st.fixed_dictionaries(
    {},
    optional={
        VERSION_KEY: st.sampled_from([MODERN, "2025-11-25", "2099-01-01"]),
        CAPABILITIES_KEY: st.just({}),
    },
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "mcp-protocol-version": st.sampled_from([MODERN, "2099-01-01"]),
        "mcp-method": st.sampled_from(["tools/call", "prompts/get", "tools/list"]),
        "mcp-name": st.sampled_from(["echo", "=?base64?ZWNobw==?=", "=?base64?ZWNobx==?=", "x"]),
    },
)


@given(st.sampled_from(["tools/call", "prompts/get", "tools/list"]), META, HEADERS)
def test_our_verdict_is_that_of_the_sdk(
    method: str, meta: dict[str, Any], headers: dict[str, str]
) -> None:
    body = request(method, 1, name="echo", _meta=meta)
    theirs = inbound.classify_inbound_request(body, headers=headers)
    code = theirs.code if isinstance(theirs, inbound.InboundLadderRejection) else None
    try:
        read_request(parse_message(json.dumps(body).encode()), headers.items())
        ours = None
    except Refused as fault:
        ours = fault.code
    assert ours == code


@given(st.binary(max_size=60), st.text(max_size=20))
def test_nothing_makes_the_checks_fail(params: bytes, header: str) -> None:
    message = parse_message(b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}')
    message.params = type(message.params)(params)
    with pytest.raises(Refused):
        read_request(message, [("Mcp-Method", header)])
