"""What a request of the modern era (2026-07-28) must say of itself, judged without I/O.

Each request carries in `params._meta` what `initialize` used to say, and repeats in headers what
intermediaries route by. The checks run in the order that the protocol's suite and other servers
use; the first that fails gives the answer:

    -32602  `_meta` with protocolVersion and clientCapabilities
    -32020  headers that are repeated, missing, or differ from the body
    -32022  a version that is not served
    -32602  client info, capabilities and log level of the right shape

Source: MCP 2026-07-28, base protocol and streamable HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mcpgroup_gateway.members.upstream import GATEWAY_IDENTITY, ClientIdentity
from mcpgroup_gateway.wire.capabilities import MAX_CAPABILITIES_BYTES, MAX_INFO_BYTES
from mcpgroup_gateway.wire.envelope import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    MalformedMessage,
    Message,
    Raw,
    encode_object,
    parse_message,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.eras import without_envelope
from mcpgroup_gateway.wire.header_values import decode_header_value
from mcpgroup_gateway.wire.protocol import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HEADER_MISMATCH,
    LEGACY_VERSIONS,
    LOG_LEVEL_KEY,
    LOG_LEVELS,
    MEMBER_VERSIONS,
    METHOD_HEADER,
    MISSING_CLIENT_CAPABILITY,
    MODERN_VERSIONS,
    NAME_HEADER,
    NAMED_METHODS,
    UNSUPPORTED_VERSION,
    VERSION_HEADER,
    VERSION_KEY,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: What the protocol took away from clients of this era; no member is asked.
_REMOVED: Final = frozenset(
    {
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    }
)
_ROUTING_HEADERS: Final = {
    name.lower(): name for name in (VERSION_HEADER, METHOD_HEADER, NAME_HEADER)
}
_VERSION: Final = VERSION_KEY.decode()
_CAPABILITIES: Final = CLIENT_CAPABILITIES_KEY.decode()
_INFO: Final = CLIENT_INFO_KEY.decode()
_LOG_LEVEL: Final = LOG_LEVEL_KEY.decode()
#: The HTTP status of an answer by its JSON-RPC code, whoever made it; every other one is 200.
_STATUS: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}


class Refused(Exception):
    """A request that is not served: the JSON-RPC error to answer with."""

    def __init__(self, code: int, text: str, data: dict[str, object] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.data = data


class ModernRequest(NamedTuple):
    """What a request said of its client; `params` is without it, all else is as it came.

    `name` and `arguments` are those of a tool call.
    """

    protocol_version: str
    client: ClientIdentity
    log_level: str | None
    params: bytes
    name: str | None
    arguments: bytes


def status_of(code: int) -> int:
    """The HTTP status of an answer with this JSON-RPC error code."""
    return _STATUS.get(code, 200)


def is_modern(versions: Iterable[str]) -> bool:
    """Whether the values of `MCP-Protocol-Version` ask for the modern era.

    So does a version that nobody knows: it is newer than we are, or a mistake to be told of.
    """
    return any(version not in MEMBER_VERSIONS for version in versions)


def check_legacy(body: bytes) -> bytes | None:
    """The id of a modern request, given the body of a POST without a modern header, else None."""
    if VERSION_KEY not in body:
        return None  # the usual case, without a parse
    try:
        message = parse_message(body)
        version = parse_string(parse_object(parse_object(message.params)["_meta"])[_VERSION])
    except (MalformedMessage, KeyError):
        return None
    if not message.is_request or version is None or version in MEMBER_VERSIONS:
        return None
    return message.raw_id


def check_version(version: str) -> None:
    """Raises `Refused` for a version that is not served in this era."""
    if version not in MODERN_VERSIONS:
        # Header values may hold bytes that are no UTF-8, which JSON cannot repeat.
        shown = version[:64].encode("ascii", "replace").decode()
        data: dict[str, object] = {
            "supported": [*MODERN_VERSIONS, *LEGACY_VERSIONS],
            "requested": shown,
        }
        raise Refused(UNSUPPORTED_VERSION, f"{VERSION_HEADER} is not supported", data)


def check_method(method: str) -> None:
    """Raises `Refused` for what this era has no more."""
    if method in _REMOVED or method.startswith("notifications/"):
        text = f"Method not found: {method[:200]} is not part of {MODERN_VERSIONS[0]}"
        raise Refused(METHOD_NOT_FOUND, text)


def read_request(message: Message, headers: Iterable[tuple[str, str]]) -> ModernRequest:
    """Judge a request; `headers` are all that came. Raises `Refused`."""
    method = message.method or ""
    params, meta = _envelope(message)
    _check_headers(method, params, parse_string(meta[_VERSION]), headers)
    version = parse_string(meta[_VERSION]) or ""
    check_version(version)
    client = ClientIdentity(bytes(meta[_CAPABILITIES]), _client_info(meta) or GATEWAY_IDENTITY.info)
    if len(client.capabilities) > MAX_CAPABILITIES_BYTES or len(client.info) > MAX_INFO_BYTES:
        text = f"clientCapabilities may have {MAX_CAPABILITIES_BYTES} bytes, clientInfo "
        raise Refused(INVALID_PARAMS, f"{text}{MAX_INFO_BYTES}")
    log_level = _log_level(meta)
    is_tool_call = method == "tools/call"
    return ModernRequest(
        version,
        client,
        log_level,
        _without_envelope(params, meta),
        parse_string(params.get("name")) if is_tool_call else None,
        bytes(params.get("arguments", b"")) if is_tool_call else b"",
    )


def _envelope(message: Message) -> tuple[dict[str, Raw], dict[str, Raw]]:
    """The members of `params` and of its `_meta`, which has all that is required."""
    try:
        params = parse_object(message.params)
        meta = parse_object(params.get("_meta", b""))
    except MalformedMessage as fault:
        raise Refused(INVALID_PARAMS, "params and params._meta must be objects") from fault
    missing = [key for key in (_VERSION, _CAPABILITIES) if key not in meta]
    if missing:
        raise Refused(INVALID_PARAMS, f"params._meta lacks {' and '.join(missing)}")
    if bytes(meta[_CAPABILITIES])[:1] != b"{":
        raise Refused(INVALID_PARAMS, f"{_CAPABILITIES} must be an object")
    return params, meta


def _check_headers(
    method: str,
    params: Mapping[str, Raw],
    version: str | None,
    headers: Iterable[tuple[str, str]],
) -> None:
    received: dict[str, str] = {}
    for spelled, value in headers:
        name = _ROUTING_HEADERS.get(spelled.lower())
        if name is None:
            continue
        if name in received:
            raise Refused(HEADER_MISMATCH, f"{name} is given more than once")
        received[name] = value
    if received.get(VERSION_HEADER) != version:
        raise Refused(HEADER_MISMATCH, f"{VERSION_HEADER} differs from {_VERSION}")
    _compare(METHOD_HEADER, received.get(METHOD_HEADER), method, "the method")
    named_by = NAMED_METHODS.get(method)
    if named_by is not None:
        in_body = parse_string(params.get(named_by))
        # A request that names nothing is told so when it is served, if no header says otherwise.
        if in_body is not None or NAME_HEADER in received:
            _compare(NAME_HEADER, received.get(NAME_HEADER), in_body, f"params.{named_by}")


def _compare(name: str, value: str | None, in_body: str | None, what: str) -> None:
    if value is None:
        raise Refused(HEADER_MISMATCH, f"{name} is missing")
    decoded = decode_header_value(value)
    if decoded is None:
        raise Refused(HEADER_MISMATCH, f"{name} is not valid base64 of UTF-8")
    if decoded != in_body:
        raise Refused(HEADER_MISMATCH, f"{name} differs from {what}")


def _client_info(meta: Mapping[str, Raw]) -> bytes | None:
    raw = bytes(meta.get(_INFO, b"null"))
    if raw == b"null":
        return None
    if raw[:1] != b"{":
        raise Refused(INVALID_PARAMS, f"{_INFO} must be an object")
    return raw


def _log_level(meta: Mapping[str, Raw]) -> str | None:
    raw = meta.get(_LOG_LEVEL)
    if raw is None:
        return None
    level = parse_string(raw)
    if level not in LOG_LEVELS:
        raise Refused(INVALID_PARAMS, f"{_LOG_LEVEL} must be one of {', '.join(LOG_LEVELS)}")
    return level


def _without_envelope(params: dict[str, Raw], meta: dict[str, Raw]) -> bytes:
    """The params as they go on: what was said to this hop stays here."""
    rest = without_envelope(meta)
    shown = dict(params)
    if rest:
        shown["_meta"] = Raw(encode_object(rest))
    else:
        del shown["_meta"]
    return encode_object(shown)
