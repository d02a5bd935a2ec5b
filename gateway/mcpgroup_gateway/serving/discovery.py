"""Read what a member offers through its control session.

Members' pages are followed to the end; a repeated cursor ends the walk and is reported. Only what a
member declared is asked for, and `-32601` means empty, not down (MCP, pagination; cases C14, C17).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.catalogue import (
    NOT_CACHED,
    Caching,
    MemberCatalogue,
    parse_entries,
)
from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import NOTHING_FORWARDED, MemberFailure
from mcpgroup_gateway.wire.envelope import (
    METHOD_NOT_FOUND,
    MalformedMessage,
    Raw,
    encode_object,
    parse_list,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.protocol import CAPABILITY_OF, LIST_METHOD_OF, Kind

if TYPE_CHECKING:
    from mcpgroup_gateway.core.catalogue import Entry
    from mcpgroup_gateway.members.upstream import Forwarded, Upstream
    from mcpgroup_gateway.wire.envelope import Message

_log = logging.getLogger(__name__)

#: A member that pages for ever must not fill our memory.
_MAX_PAGES = 1_000
_MAX_ENTRIES = 50_000
_TTL_DIGITS = 12


async def read_catalogue(
    member: str, control: Upstream, forwarded: Forwarded = NOTHING_FORWARDED
) -> MemberCatalogue:
    """All lists of one member, as its control session or the client in `forwarded` sees them.

    Raises `MemberFailure`; the caller bounds the time."""
    capabilities = _capabilities(control.handshake.capabilities)
    entries: dict[Kind, tuple[Entry, ...]] = {}
    caching: dict[Kind, Caching] = {}
    for kind in Kind:
        if CAPABILITY_OF[kind] in capabilities:
            entries[kind], caching[kind] = await _read_kind(member, control, kind, forwarded)
    return MemberCatalogue(
        entries=entries,
        capabilities=capabilities,
        instructions=control.handshake.instructions,
        caching=caching,
    )


def _capabilities(raw: bytes) -> dict[str, Raw]:
    try:
        return parse_object(raw)
    except MalformedMessage:
        return {}


async def _read_kind(
    member: str, control: Upstream, kind: Kind, forwarded: Forwarded
) -> tuple[tuple[Entry, ...], Caching]:
    items: list[Raw] = []
    caching = NOT_CACHED
    cursor: Raw | None = None
    seen: set[bytes] = set()
    for _ in range(_MAX_PAGES):
        params = b"{}" if cursor is None else encode_object({"cursor": cursor})
        page = await _request(control, LIST_METHOD_OF[kind], params, forwarded)
        if page is None:
            break
        try:
            members = parse_object(page)
            items += parse_list(members.get(kind.value, Raw(b"[]")))
            caching = _caching(members)  # the same on all pages
        except MalformedMessage as fault:
            raise MemberFailure(
                Failure.MALFORMED, f"{LIST_METHOD_OF[kind]}: {fault.text}", sent=True
            ) from fault
        if len(items) > _MAX_ENTRIES:
            _log.warning("member %s lists more than %d %s", member, _MAX_ENTRIES, kind.value)
            break
        cursor = members.get("nextCursor")
        if cursor is None or parse_string(cursor) is None:
            break
        if bytes(cursor) in seen:
            _log.warning("member %s repeats a cursor of %s", member, LIST_METHOD_OF[kind])
            break
        seen.add(bytes(cursor))
    entries, faults = parse_entries(kind, items[:_MAX_ENTRIES], modern=control.handshake.modern)
    for text in faults[:10]:
        _log.warning("member %s: %s", member, text)
    return entries, caching


def _caching(members: dict[str, Raw]) -> Caching:
    ttl = bytes(members.get("ttlMs", b""))
    if not ttl.isdigit() or len(ttl) > _TTL_DIGITS:
        return NOT_CACHED
    return Caching(int(ttl), parse_string(members.get("cacheScope")) == "public")


async def _request(
    control: Upstream, method: str, params: bytes, forwarded: Forwarded
) -> bytes | None:
    """The result of a read request; None when the member does not know the method."""
    exchange = control.request(method, params, safe=True, forwarded=forwarded)
    try:
        while True:
            message = await exchange.next()
            if not message.is_response:
                continue
            if not message.is_error:
                return bytes(message.result)
            if _code_of(message) == b"%d" % METHOD_NOT_FOUND:
                return None
            raise MemberFailure(
                Failure.MALFORMED, f"{method} was answered with an error", sent=True
            )
    finally:
        exchange.close()


def _code_of(message: Message) -> bytes:
    try:
        return bytes(parse_object(message.error).get("code", b""))
    except MalformedMessage:
        return b""
