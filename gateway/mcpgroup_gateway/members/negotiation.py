"""Which era a member speaks, found out when a session opens.

A modern request is sent first. Only a proper answer to it makes a member modern; anything else is
answered with `initialize`. Silence is no verdict, since a member may be slow to start: `initialize`
follows, and the first answer with which a session can be had decides.

Source: MCP 2026-07-28, lifecycle, "version negotiation" and "backward compatibility".
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.handshake import read_handshake
from mcpgroup_gateway.members.http_answers import error_code
from mcpgroup_gateway.members.upstream import Handshake, MemberFailure
from mcpgroup_gateway.wire.envelope import (
    MalformedMessage,
    parse_list,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.protocol import MODERN_VERSIONS, SERVER_INFO_KEY, UNSUPPORTED_VERSION

if TYPE_CHECKING:
    from mcpgroup_gateway.wire.envelope import Message, Raw

#: How long a member may be silent after `server/discover` until `initialize` follows (seconds).
PATIENCE_SECONDS: Final = 2.0
#: The share of a start's time that this may take.
PATIENCE_SHARE: Final = 3
#: Nobody heard the question, or nobody is left to hear another one.
OUTAGES: Final = frozenset(
    {
        Failure.REFUSED,
        Failure.CONNECT_TIMEOUT,
        Failure.TLS,
        Failure.EXIT,
        Failure.CANCELLED,
    }
)


class Era(StrEnum):
    """How a member is spoken to: found out, with sessions, or without."""

    AUTO = "Auto"
    LEGACY = "Legacy"
    MODERN = "Modern"


class Member(Protocol):
    """The two ways to begin with a member. Both raise `MemberFailure`."""

    async def discover(self, version: str) -> Message:
        """The answer to `server/discover` at a modern version."""
        ...

    async def initialize(self) -> Message:
        """The answer to `initialize`."""
        ...


async def negotiate(
    member: Member, era: Era, known: Handshake | None, deadline: float
) -> Handshake:
    """Shake hands in the member's era; the handshake's version says which one that is.

    `known` is the last handshake with the same member; `deadline` (seconds) is what the caller
    allows for all of it, and the caller's to enforce. Raises `MemberFailure`.
    """
    if era is Era.LEGACY:
        return read_handshake(await member.initialize())
    if era is Era.MODERN:
        return await _modern(member)
    if known is not None and not known.modern:
        answer = await member.initialize()
        if not answer.is_error:
            return read_handshake(answer)
        # The member was replaced by one that has other habits.
    return await _either(member, min(PATIENCE_SECONDS, deadline / PATIENCE_SHARE))


def read_discovery(answer: Message) -> Handshake | None:
    """The handshake that an answer to `server/discover` makes, None when it makes none.

    Servers that know no such method answer it in many ways, with a result too.
    """
    try:
        result = parse_object(answer.result)
        version = _best(bytes(result.get("supportedVersions", b"")))
        capabilities = bytes(result.get("capabilities", b""))
        if version is None or capabilities[:1] != b"{" or not _is_complete(result):
            return None
        meta = parse_object(result.get("_meta", b""))
    except MalformedMessage:
        return None
    return Handshake(
        version,
        capabilities,
        bytes(meta.get(SERVER_INFO_KEY.decode(), b"")),
        parse_string(result.get("instructions")),
    )


def served_version(answer: Message) -> str | None:
    """The modern version that an error for our version offers instead, None without one."""
    if error_code(answer) != UNSUPPORTED_VERSION:
        return None
    try:
        data = parse_object(parse_object(answer.error).get("data", b""))
        return _best(bytes(data.get("supported", b"")))
    except MalformedMessage:
        return None


def _best(versions: bytes) -> str | None:
    """The newest modern version in a JSON array. Raises `MalformedMessage`."""
    if not versions:
        return None
    offered = {parse_string(each) for each in parse_list(versions)}
    return next((each for each in MODERN_VERSIONS if each in offered), None)


def _is_complete(result: dict[str, Raw]) -> bool:
    kind = result.get("resultType")
    return kind is None or parse_string(kind) == "complete"


async def _modern(member: Member) -> Handshake:
    answer = await member.discover(MODERN_VERSIONS[0])
    version = served_version(answer)
    if version is not None:
        answer = await member.discover(version)
    handshake = read_discovery(answer)
    if handshake is None:
        known = ", ".join(MODERN_VERSIONS)
        reason = f"the member does not speak {known}, which its era Modern asks for"
        raise MemberFailure(Failure.START_FAILED, reason, sent=False)
    return handshake


async def _discovered(member: Member, version: str) -> Handshake | None:
    """The modern handshake, None when the member is not modern. Raises for an outage."""
    try:
        answer = await member.discover(version)
        other = served_version(answer)
        if other is not None:
            # Once more also at the version that was refused: the error offers it all the same.
            answer = await member.discover(other)
    except MemberFailure as failure:
        if failure.failure in OUTAGES:
            raise
        return None
    return read_discovery(answer)


async def _initialized(member: Member) -> Handshake:
    answer = await member.initialize()
    version = served_version(answer)
    if version is not None:
        # It heard the first question after all, which settled the connection's era.
        handshake = await _discovered(member, version)
        if handshake is not None:
            return handshake
    return read_handshake(answer)


async def _either(member: Member, patience: float) -> Handshake:
    probe = asyncio.create_task(_discovered(member, MODERN_VERSIONS[0]))
    tasks: list[asyncio.Task[Handshake | None] | asyncio.Task[Handshake]] = [probe]
    try:
        await asyncio.wait({probe}, timeout=patience)
        if probe.done() and (found := probe.result()) is not None:
            return found
        hello = asyncio.create_task(_initialized(member))
        tasks.append(hello)
        if not probe.done():
            await asyncio.wait({probe, hello}, return_when=asyncio.FIRST_COMPLETED)
        if not probe.done() and hello.exception() is not None:
            await asyncio.wait({probe}, timeout=patience)  # the other way was refused
        if probe.done() and probe.exception() is None and (found := probe.result()) is not None:
            return found
        return await hello
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
