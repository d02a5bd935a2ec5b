"""What changes in a message between a member of one era and a client of the other.

Within one era results are passed on byte for byte; here is everything that is touched between them
(DESIGN-MCP section 6). Sources: MCP 2026-07-28, base protocol ("results", "caching", "error
codes") and multi-round-trip requests; MCP 2025-11-25, elicitation (URL mode), tools.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mcpgroup_gateway.wire.envelope import (
    INVALID_PARAMS,
    MalformedMessage,
    Raw,
    encode_json,
    encode_object,
    parse_list,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.protocol import (
    CACHEABLE_METHODS,
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    RESOURCE_NOT_FOUND,
    URL_ELICITATION_REQUIRED,
    VERSION_KEY,
)

_RESULT_TYPE: Final = "resultType"
_ENVELOPE_KEYS: Final = frozenset(
    key.decode() for key in (VERSION_KEY, CLIENT_INFO_KEY, CLIENT_CAPABILITIES_KEY, LOG_LEVEL_KEY)
)
_NOT_CACHED: Final = {"ttlMs": Raw(b"0"), "cacheScope": Raw(b'"private"')}


class InputRequired(NamedTuple):
    """A result that asks the client first: requests by key, raw, and the member's own state."""

    requests: dict[str, Raw]
    state: str | None
    members: dict[str, Raw]


def read_input_required(result: bytes | Raw) -> InputRequired | None:
    """The parts of an `input_required` result; None for every other result.

    Raises `MalformedMessage` when it is one and cannot be understood.
    """
    raw = bytes(result)
    if b"input_required" not in raw:
        return None
    members = parse_object(raw)
    if parse_string(members.get(_RESULT_TYPE)) != "input_required":
        return None
    requests = parse_object(members.get("inputRequests", Raw(b"{}")))
    return InputRequired(requests, parse_string(members.get("requestState")), members)


def input_required(requests: dict[str, bytes], state: str) -> bytes:
    """The bytes of an `input_required` result of our own."""
    asked = encode_object({key: Raw(request) for key, request in requests.items()})
    return b'{"resultType":"input_required","inputRequests":%b,"requestState":%b}' % (
        asked,
        encode_json(state),
    )


def with_state(asked: InputRequired, state: str) -> bytes:
    """The member's result with our state in the place of its own."""
    return encode_object({**asked.members, "requestState": Raw(encode_json(state))})


def to_modern_result(method: str, result: bytes | Raw) -> bytes:
    """A legacy member's result as a modern client needs it."""
    members = parse_object(result)
    members.setdefault(_RESULT_TYPE, Raw(b'"complete"'))
    if method in CACHEABLE_METHODS:
        for key, value in _NOT_CACHED.items():
            members.setdefault(key, value)
    return encode_object(members)


def to_modern_error(error: bytes | Raw) -> bytes:
    """A legacy member's error object with the code that the modern era uses for the same."""
    try:
        members = parse_object(error)
    except MalformedMessage:
        return bytes(error)
    if bytes(members.get("code", b"")) != b"%d" % RESOURCE_NOT_FOUND:
        return bytes(error)
    members["code"] = Raw(b"%d" % INVALID_PARAMS)
    return encode_object(members)


def url_elicitations(error: bytes | Raw) -> dict[str, bytes] | None:
    """The input requests that a legacy member's error -32042 stands for; None for other errors."""
    try:
        members = parse_object(error)
        if bytes(members.get("code", b"")) != b"%d" % URL_ELICITATION_REQUIRED:
            return None
        asked = parse_list(parse_object(members.get("data", b"")).get("elicitations", Raw(b"[]")))
    except MalformedMessage:
        return None
    return {
        f"elicitation-{number}": b'{"method":"elicitation/create","params":%b}' % bytes(params)
        for number, params in enumerate(asked, 1)
    } or None


def to_legacy_result(method: str, result: bytes | Raw) -> bytes:
    """A modern member's result without what makes legacy SDKs refuse the whole of it."""
    raw = bytes(result)
    if method != "tools/call" or b'"structuredContent"' not in raw:
        return raw
    members = parse_object(raw)
    content = bytes(members.get("structuredContent", b"{}"))
    if content[:1] == b"{":
        return raw
    del members["structuredContent"]
    return encode_object(members)


def to_legacy_tool(entry: bytes) -> bytes:
    """A modern member's tool without an `outputSchema` that is not one of an object."""
    if b'"outputSchema"' not in entry:
        return entry
    members = parse_object(entry)
    schema = members.get("outputSchema")
    if schema is None or bytes(schema)[:1] != b"{":
        return entry
    if parse_string(parse_object(schema).get("type")) == "object":
        return entry
    del members["outputSchema"]
    return encode_object(members)


def without_envelope(meta: dict[str, Raw]) -> dict[str, Raw]:
    """`_meta` without what a modern request says of its client: it is said anew on each hop."""
    return {key: value for key, value in meta.items() if key not in _ENVELOPE_KEYS}
