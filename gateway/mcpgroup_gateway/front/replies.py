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
from mcpgroup_gateway.wire.refusals import Draining, GatewayError, Overloaded


class Reply(NamedTuple):
    """A complete answer: without `media` it has no content type.

    `session_id` is announced to the client, `retry_after` is in seconds, `close` ends
    the connection; `allow` names the methods that a 405 leaves, None for all that we know.
    """

    status: int
    body: bytes = b""
    media: str | None = JSON
    session_id: str | None = None
    retry_after: int | None = None
    close: bool = False
    allow: str | None = None


ACCEPTED: Final = Reply(202, media=None)
SESSION_ENDED: Final = Reply(204, media=None)
#: The stream has ended and the client has all of it. A client of events takes this for the end
#: (WHATWG HTML, section 9.2); an empty stream it would ask for again and again.
NOTHING_FOLLOWS: Final = Reply(204, media=None)
#: The answer to a call that its caller cancelled: a stream that ends without a message.
CANCELLED_STREAM: Final = Reply(200, media=EVENTS)


def answer(body: bytes) -> Reply:
    return Reply(200, body)


def refusal(
    status: int, text: str, *, code: int = INVALID_REQUEST, raw_id: bytes | None = None
) -> Reply:
    """A request that never became a call: an HTTP error with a JSON-RPC body."""
    return Reply(status, encode_error(raw_id, error_object(code, text)))


def posts_only(method: str) -> Reply:
    """The modern era has neither streams to GET nor sessions to DELETE."""
    text = f"{method} is not allowed with this MCP-Protocol-Version; use POST"
    return refusal(405, text)._replace(allow="POST, OPTIONS")


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
