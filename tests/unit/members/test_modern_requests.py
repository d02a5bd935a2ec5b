"""What is added to the params of a modern request, and what stays as it is."""

from __future__ import annotations

import json

import pytest

from mcpgroup_gateway.members.modern_requests import ModernRequests
from mcpgroup_gateway.members.upstream import ClientIdentity, Forwarded

CLIENT = ClientIdentity(b'{"sampling":{}}', b'{"name":"c","version":"1"}')
OWN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
}
REQUESTS = ModernRequests("2026-07-28", CLIENT)


@pytest.mark.parametrize("params", [b"", b"{}", b'{"_meta":{}}', b' { "_meta" : { } } '])
def test_params_that_say_nothing_say_version_client_and_capabilities(params: bytes) -> None:
    completed, name = REQUESTS.complete("tools/list", params)
    assert json.loads(completed) == {"_meta": OWN}
    assert name is None


def test_meta_of_the_request_stays_beside_ours() -> None:
    params = b'{"a":1.0,"_meta":{"progressToken":7, "x/y":1e2}}'
    completed, _ = REQUESTS.complete("tools/list", params)
    assert json.loads(completed)["_meta"] == {**OWN, "progressToken": 7, "x/y": 100.0}
    assert b'"a":1.0' in completed
    assert b'"progressToken":7, "x/y":1e2' in completed


def test_a_log_level_is_that_of_one_request() -> None:
    forwarded = Forwarded(log_level="warning")
    completed, _ = REQUESTS.complete("tools/list", b"{}", forwarded)
    meta = json.loads(completed)["_meta"]
    assert meta["io.modelcontextprotocol/logLevel"] == "warning"
    completed, _ = REQUESTS.complete("tools/list", b"{}")
    assert json.loads(completed)["_meta"] == OWN


def test_a_request_may_be_that_of_another_client_than_the_session() -> None:
    client = ClientIdentity(b"{}", b'{"name":"d"}')
    completed, _ = REQUESTS.complete("tools/list", b"{}", Forwarded(client=client))
    meta = json.loads(completed)["_meta"]
    assert meta["io.modelcontextprotocol/clientInfo"] == {"name": "d"}
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {}


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", b'{"name":"t","arguments":{"name":"x"}}', "t"),
        ("prompts/get", b'{"name":"\\u65e5"}', "\u65e5"),
        ("resources/read", b'{"uri":"file:///x"}', "file:///x"),
        ("tools/call", b'{"name":5}', None),
        ("tools/call", b'{"name":"\\ud83d"}', None),
        ("tools/call", b"{}", None),
        ("completion/complete", b'{"name":"t"}', None),
    ],
)
def test_methods_that_name_something_give_the_name(
    method: str, params: bytes, name: str | None
) -> None:
    assert REQUESTS.complete(method, params)[1] == name


def test_meta_that_is_no_object_is_replaced() -> None:
    completed, _ = REQUESTS.complete("tools/list", b'{"_meta":[1]}')
    assert json.loads(completed) == {"_meta": OWN}


def test_half_a_surrogate_pair_in_an_argument_crosses() -> None:
    completed, name = REQUESTS.complete("tools/call", b'{"name":"t","arguments":{"a":"\\ud83d"}}')
    assert b'"arguments":{"a":"\\ud83d"}' in completed
    assert name == "t"
