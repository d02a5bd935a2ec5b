"""Those who follow resources, and how a member is asked to tell of one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from mcpgroup_gateway.wire.envelope import (
    Raw,
    encode_json,
    encode_notification,
    encode_object,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcpgroup_gateway.members.upstream import Upstream
    from mcpgroup_gateway.serving.interface import Caller


class Follower(Protocol):
    """Who is told; `caller` says for whom members are chosen."""

    @property
    def caller(self) -> Caller: ...

    def notify_updated(self, uri: str, params: Mapping[str, Raw]) -> None: ...


class SessionFollower:
    """A client session as a follower. Of the request that made it one nothing is kept."""

    def __init__(self, caller: Caller) -> None:
        self._caller = replace(caller, sink=None, headers={})

    @property
    def caller(self) -> Caller:
        return self._caller

    def notify_updated(self, uri: str, params: Mapping[str, Raw]) -> None:
        session = self._caller.session
        if session is not None:
            message = encode_notification(
                "notifications/resources/updated", encode_object(dict(params))
            )
            session.notify_updated(uri, message)


@dataclass(slots=True)
class Refused(Exception):
    """The member answered a subscription with this error object."""

    error: bytes = field(default=b"")


async def ask(upstream: Upstream, method: str, uri: str) -> None:
    """A request of the era with sessions about a resource. Raises `MemberFailure` or `Refused`."""
    exchange = upstream.request(method, b'{"uri":%b}' % encode_json(uri), safe=True)
    try:
        while not (message := await exchange.next()).is_response:
            pass
    finally:
        exchange.close()
    if message.is_error:
        raise Refused(bytes(message.error))
