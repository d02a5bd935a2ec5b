"""What waits for a listening client that does not read."""

from __future__ import annotations

from typing import Any, cast

from mcpgroup_gateway.serving.interface import Caller
from mcpgroup_gateway.serving.listening import ListenCall
from mcpgroup_gateway.wire.envelope import Raw, encode_json, parse_message

LISTEN = parse_message(b'{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}')


async def test_a_member_that_names_ever_other_parts_of_a_resource_fills_no_memory() -> None:
    call = ListenCall(cast("Any", None), LISTEN, Caller(None))
    for number in range(20_000):
        uri = f"file:///a/{number}"
        call.notify_updated(uri, {"uri": Raw(encode_json(uri))})
    assert 0 < call.waiting <= 1_100
    for number in range(1_000):
        uri = f"file:///b/{number}" + "x" * 10_000
        call.notify_updated(uri, {"uri": Raw(encode_json(uri))})
    assert 0 < call.waiting <= 30


async def test_a_resource_that_changes_often_waits_once() -> None:
    call = ListenCall(cast("Any", None), LISTEN, Caller(None))
    for _ in range(100_000):
        call.notify_updated("file:///a", {"uri": Raw(b'"file:///a"')})
    assert call.waiting == 1
