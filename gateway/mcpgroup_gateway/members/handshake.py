"""What we say in `initialize` and what we make of the answer, whatever the transport.

Source: MCP 2025-11-25, lifecycle.
"""

from __future__ import annotations

import re
from typing import Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import ClientIdentity, Handshake, MemberFailure
from mcpgroup_gateway.wire.envelope import (
    MalformedMessage,
    Message,
    encode_json,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.protocol import LATEST_VERSION, MEMBER_VERSIONS

_INTEGER: Final = re.compile(rb"-?[0-9]{1,10}")
_VERSION: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def initialize_params(client: ClientIdentity) -> bytes:
    """The params of `initialize` for a session on behalf of this client."""
    return b'{"protocolVersion":%b,"capabilities":%b,"clientInfo":%b}' % (
        encode_json(LATEST_VERSION),
        client.capabilities,
        client.info,
    )


def read_handshake(answer: Message) -> Handshake:
    """What a member answered. Raises `MemberFailure` (start_failed) when we cannot go on with it.

    An error of the member is told by its code only: its text may hold anything.
    """
    if answer.is_error:
        raise _refused(f"the member answered initialize with the error {_code(answer)}")
    try:
        result = parse_object(answer.result)
    except MalformedMessage as fault:
        raise _refused("the member's answer to initialize is not an object") from fault
    version = parse_string(result.get("protocolVersion"))
    if version not in MEMBER_VERSIONS:
        shown = "none" if version is None else _date(version)
        known = ", ".join(MEMBER_VERSIONS)
        raise _refused(f"the member wants protocol version {shown}; known are {known}")
    return Handshake(
        version,
        bytes(result.get("capabilities", b"")),
        bytes(result.get("serverInfo", b"")),
        parse_string(result.get("instructions")),
    )


def _code(answer: Message) -> str:
    try:
        code = bytes(parse_object(answer.error).get("code", b""))
    except MalformedMessage:
        code = b""
    return code.decode() if _INTEGER.fullmatch(code) else "without a code"


def _date(version: str) -> str:
    """A version as all of them are; other words of a member are not repeated."""
    return f"'{version}'" if _VERSION.fullmatch(version) else "that is no date"


def _refused(reason: str) -> MemberFailure:
    return MemberFailure(Failure.START_FAILED, reason, sent=False)
