"""What a client's declared capabilities mean to us: what a member may ask of it."""

from __future__ import annotations

import json
from functools import lru_cache

from mcpgroup_gateway.wire.envelope import MalformedMessage, parse_object
from mcpgroup_gateway.wire.protocol import CLIENT_METHODS

#: Clients choose what is kept here: few, and none that is large.
_KEPT = 256
_KEPT_BYTES = 4096


#: What a client may say of itself (bytes of JSON): it is kept as long as its session, and repeated
#: to members. Information may hold icons.
MAX_CAPABILITIES_BYTES = 16 * 1024
MAX_INFO_BYTES = 64 * 1024


def may_be_asked(capabilities: bytes) -> frozenset[str]:
    """The methods of requests that a client with these capabilities answers."""
    if capabilities == b"{}":
        return frozenset()
    if len(capabilities) > _KEPT_BYTES:
        return _may_be_asked(capabilities)
    return _kept(capabilities)


def opens_urls(capabilities: bytes) -> bool:
    """Whether a client with these capabilities takes an elicitation that leads to a URL."""
    try:
        elicitation = parse_object(capabilities).get("elicitation", b"{}")
        return "url" in parse_object(elicitation)
    except MalformedMessage:
        return False


def canonical_capabilities(capabilities: bytes) -> bytes:
    """The same bytes for two spellings of the same capabilities; ``{}`` for none that can be read.

    Servers may offer other tools to clients that can do more (DESIGN-MCP section 2).
    """
    if capabilities == b"{}" or len(capabilities) > _KEPT_BYTES:
        return b"{}" if capabilities == b"{}" else _canonical(capabilities)
    return _kept_canonical(capabilities)


def _may_be_asked(capabilities: bytes) -> frozenset[str]:
    try:
        declared = parse_object(capabilities)
    except MalformedMessage:
        return frozenset()
    return frozenset(
        method for method, capability in CLIENT_METHODS.items() if capability in declared
    )


def _canonical(capabilities: bytes) -> bytes:
    try:
        return json.dumps(json.loads(capabilities), sort_keys=True).encode()
    except (ValueError, RecursionError):
        return b"{}"


_kept = lru_cache(maxsize=_KEPT)(_may_be_asked)
_kept_canonical = lru_cache(maxsize=_KEPT)(_canonical)
