"""Answers as plain values, before any HTTP library sees them."""

from __future__ import annotations

from typing import Final, NamedTuple

from mcpgroup_gateway.front.checks import EVENTS, JSON
from mcpgroup_gateway.wire.envelope import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    encode_error,
    error_object,
)
from mcpgroup_gateway.wire.protocol import LEGACY_VERSIONS
from mcpgroup_gateway.wire.refusals import Draining, GatewayError, Overloaded

#: MCP 2026-07-28, UnsupportedProtocolVersion; its data is {supported, requested}.
UNSUPPORTED_VERSION: Final = -32022


class Reply(NamedTuple):
    """A complete answer: without `media` it has no content type.

    `session_id` is announced to the client, `retry_after` is in seconds, `close` ends
    the connection.
    """

    status: int
    body: bytes = b""
    media: str | None = JSON
    session_id: str | None = None
    retry_after: int | None = None
    close: bool = False


ACCEPTED: Final = Reply(202, media=None)
SESSION_ENDED: Final = Reply(204, media=None)
#: The answer to a call that its caller cancelled: a stream that ends without a message.
CANCELLED_STREAM: Final = Reply(200, media=EVENTS)


def answer(body: bytes) -> Reply:
    return Reply(200, body)


def refusal(
    status: int, text: str, *, code: int = INVALID_REQUEST, raw_id: bytes | None = None
) -> Reply:
    """A request that never became a call: an HTTP error with a JSON-RPC body."""
    return Reply(status, encode_error(raw_id, error_object(code, text)))


def unsupported_version(requested: str) -> Reply:
    # Header values may hold bytes that are no UTF-8, which JSON cannot repeat.
    shown = requested[:64].encode("ascii", "replace").decode()
    data: dict[str, object] = {"supported": list(LEGACY_VERSIONS), "requested": shown}
    text = f"MCP-Protocol-Version is not supported; use one of {', '.join(LEGACY_VERSIONS)}"
    return Reply(400, encode_error(None, error_object(UNSUPPORTED_VERSION, text, data)))


def internal_error(raw_id: bytes | None = None) -> bytes:
    """The JSON-RPC error for a fault of our own; its details are in the log only."""
    return encode_error(raw_id, error_object(INTERNAL_ERROR, "internal error of the gateway"))


def overloaded(group: str, raw_id: bytes) -> Reply:
    fault = Overloaded(
        "requestsInFlight",
        "the gateway serves as many requests as it may; try again",
        retryable=True,
        retry_after=1.0,
    )
    return Reply(200, encode_error(raw_id, fault.error_object(group)))


def too_many_sessions(group: str, raw_id: bytes, wait_seconds: float) -> Reply:
    fault = Overloaded(
        "sessions",
        "all sessions are in use; try again",
        retryable=True,
        retry_after=wait_seconds,
    )
    return _unavailable(group, raw_id, fault, wait_seconds)


def draining(group: str) -> Reply:
    fault = Draining(
        "draining", "this replica shuts down; try again", retryable=True, retry_after=2.0
    )
    return _unavailable(group, None, fault, 2.0)


def _unavailable(group: str, raw_id: bytes | None, fault: GatewayError, wait: float) -> Reply:
    body = encode_error(raw_id, fault.error_object(group))
    return Reply(503, body, retry_after=max(1, round(wait)))
