"""What a modern request says of itself: version, client and log level, in its `_meta`.

Source: MCP 2026-07-28, base protocol, "request metadata".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.members.upstream import NOTHING_FORWARDED
from mcpgroup_gateway.wire.envelope import (
    Raw,
    encode_json,
    encode_object,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.header_values import encode_header_value
from mcpgroup_gateway.wire.protocol import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    METHOD_HEADER,
    NAME_HEADER,
    NAMED_METHODS,
    VERSION_KEY,
)

if TYPE_CHECKING:
    from mcpgroup_gateway.members.upstream import ClientIdentity, Forwarded

_BLANK: Final = b" \t\r\n"


class ModernRequests:
    """Completes the params of requests at one protocol version.

    `client` is whose requests they are when a request does not say it itself.
    """

    def __init__(self, version: str, client: ClientIdentity) -> None:
        self._version = encode_json(version)
        self._entries = self._entries_of(client)

    def complete(
        self, method: str, params: bytes, forwarded: Forwarded = NOTHING_FORWARDED
    ) -> tuple[bytes, str | None]:
        """The params to send, and the value of `Mcp-Name` for the methods that have one.

        `params` is an object or empty; everything else in it stays as it is, byte for byte.
        """
        members = parse_object(params)
        entries = self._entries
        if forwarded.client is not None:
            entries = self._entries_of(forwarded.client)
        if forwarded.log_level is not None:
            entries += b',"%b":%b' % (LOG_LEVEL_KEY, encode_json(forwarded.log_level))
        given = bytes(members.get("_meta", b"")).strip(_BLANK)
        others = given[1:-1].strip(_BLANK) if given[:1] == b"{" else b""
        members["_meta"] = Raw(b"{%b,%b}" % (entries, others) if others else b"{%b}" % entries)
        return encode_object(members), _name_in(method, members)

    def _entries_of(self, client: ClientIdentity) -> bytes:
        return b'"%b":%b,"%b":%b,"%b":%b' % (
            VERSION_KEY,
            self._version,
            CLIENT_INFO_KEY,
            client.info,
            CLIENT_CAPABILITIES_KEY,
            client.capabilities,
        )


def routing_fields(method: str, name: str | None) -> tuple[tuple[str, str], ...]:
    """The headers by which a request of the modern era is routed."""
    fields = ((METHOD_HEADER, encode_header_value(method)),)
    return fields if name is None else (*fields, (NAME_HEADER, encode_header_value(name)))


def named_by(method: str, params: bytes) -> str | None:
    """The tool, prompt or URI that a request is about, None for methods without one."""
    return _name_in(method, parse_object(params)) if method in NAMED_METHODS else None


def _name_in(method: str, members: dict[str, Raw]) -> str | None:
    key = NAMED_METHODS.get(method)
    return None if key is None else parse_string(members.get(key))
