"""What a client gets for what a member said, when they are of different eras or it asks first.

Within one era a member's response is not touched, but for the `requestState` that finds the way
back to it (DESIGN-MCP section 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.request_state import RequestState
from mcpgroup_gateway.wire.capabilities import opens_urls
from mcpgroup_gateway.wire.envelope import Message, Raw, encode_json, error_object
from mcpgroup_gateway.wire.eras import (
    input_required,
    to_legacy_result,
    to_modern_error,
    to_modern_result,
    url_elicitations,
    with_state,
)
from mcpgroup_gateway.wire.protocol import INPUT_REQUIRED_METHODS, MISSING_CLIENT_CAPABILITY

if TYPE_CHECKING:
    from mcpgroup_gateway.serving.attempts import Attempt
    from mcpgroup_gateway.serving.calls import ServedCall

#: To a client that cannot be led to the URL that a legacy member asks for (-32042).
_NEEDS_URLS: Final = error_object(
    MISSING_CLIENT_CAPABILITY,
    "the member wants to lead the user to a URL, and the client does not declare that it can",
    {"requiredCapabilities": {"elicitation": {"url": {}}}},
)


def own_result(call: ServedCall, result: bytes) -> Message:
    """A result that no member was asked for."""
    return _result(to_modern_result(call.method, result) if call.caller.modern else result)


def between_eras(call: ServedCall, attempt: Attempt, response: Message) -> Message:
    """The member's response as the client's era has it."""
    assert attempt.upstream is not None  # noqa: S101 - it answered
    modern = attempt.upstream.handshake.modern
    if not call.caller.modern:
        if not modern or response.is_error:
            return response
        return _result(to_legacy_result(call.method, response.result))
    member = attempt.endpoint.member
    if modern:
        asks = attempt.asks
        if asks is None:
            return response
        return _result(with_state(asks, _seal(call, RequestState(member, state=asks.state))))
    if not response.is_error:
        return _result(to_modern_result(call.method, response.result))
    may_ask = call.method in INPUT_REQUIRED_METHODS
    elicitations = url_elicitations(response.error) if may_ask else None
    if elicitations is None:
        return Message(jsonrpc="2.0", error=Raw(to_modern_error(response.error)))
    if not opens_urls(call.caller.client.capabilities):
        return Message(jsonrpc="2.0", error=Raw(_NEEDS_URLS))
    return _result(input_required(elicitations, _seal(call, RequestState(member))))


def input_required_of(attempt: Attempt) -> Message:
    """Hold an attempt whose member asked, and tell its client, which has no session, what."""
    call = attempt.call
    pending = call.context.pending.hold(attempt)
    requests = {
        key: b'{"method":%b,"params":%b}'
        % (encode_json(request.method), bytes(request.params) or b"{}")
        for key, request in attempt.parked.items()
    }
    state = RequestState(attempt.endpoint.member, pending=pending)
    return _result(input_required(requests, _seal(call, state)))


def _seal(call: ServedCall, state: RequestState) -> str:
    assert call.target is not None  # noqa: S101 - set before the first attempt
    return call.context.states.seal(state, call.target, call.caller)


def _result(result: bytes) -> Message:
    return Message(jsonrpc="2.0", result=Raw(result))
