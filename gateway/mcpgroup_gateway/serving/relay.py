"""Notifications of a member that belong to a call, on their way to the caller."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mcpgroup_gateway.wire.envelope import (
    MalformedMessage,
    Raw,
    encode_notification,
    encode_object,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.protocol import LOG_LEVELS

if TYPE_CHECKING:
    from mcpgroup_gateway.serving.interface import Caller
    from mcpgroup_gateway.wire.envelope import Message

_SEVERITY = {level: number for number, level in enumerate(LOG_LEVELS)}


class Relay:
    """Passes a call's progress and log messages on, one relay a call.

    Progress gets the client's own token back, value and JSON type; a value that is not above the
    last relayed one (after the call moved) is dropped.
    """

    __slots__ = ("_caller", "_last_progress", "_token")

    def __init__(self, caller: Caller, token: Raw | None) -> None:
        self._caller = caller
        self._token = token
        self._last_progress: float | None = None

    @property
    def token(self) -> Raw | None:
        """The client's progress token, None when it gave none."""
        return self._token

    async def notification(self, message: Message) -> None:
        sink = self._caller.sink
        if sink is None:
            return
        if message.method == "notifications/progress":
            if self._token is None:
                return
            rewritten = self._progress(message.params, self._token)
            if rewritten is not None:
                await sink.send(rewritten)
        elif message.method == "notifications/message":
            if passes_level(self._caller, message):
                await sink.send(encode_notification("notifications/message", message.params))
        elif message.method is not None:
            await sink.send(encode_notification(message.method, message.params))

    def _progress(self, params: Raw, token: Raw) -> bytes | None:
        try:
            members = parse_object(params)
            value = json.loads(bytes(members["progress"]))
        except (MalformedMessage, KeyError, ValueError, RecursionError):
            return None
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        if self._last_progress is not None and value <= self._last_progress:
            return None
        self._last_progress = value
        members["progressToken"] = token
        return encode_notification("notifications/progress", encode_object(members))


def passes_level(caller: Caller, message: Message) -> bool:
    """Whether a log message is at least as severe as the caller asked for.

    A modern caller asks with each request, and gets none when it does not.
    """
    if caller.modern:
        wanted = caller.log_level
        if wanted is None:
            return False
    else:
        wanted = caller.session.log_level if caller.session is not None else None
        if wanted is None:
            return True
    try:
        level = parse_string(parse_object(message.params).get("level"))
    except MalformedMessage:
        return False
    return _SEVERITY.get(level or "", 0) >= _SEVERITY[wanted]
