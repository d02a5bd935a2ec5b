"""Opening sessions with scripted members that speak the old HTTP+SSE transport."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.servers.raw_http import RawServer

from mcpgroup_gateway.members.http_reach import HttpReach
from mcpgroup_gateway.members.sse_connector import SseConnector
from mcpgroup_gateway.members.upstream import Opening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers.raw_http import Request
    from tests.servers.raw_sse import OldMember, OldStream

    from mcpgroup_gateway.members.sse_session import SseUpstream
    from mcpgroup_gateway.members.upstream import MemberFailure
    from mcpgroup_gateway.wire.envelope import Message


@dataclass
class OpenedSse:
    """A session with a scripted member and what it reported."""

    server: RawServer
    member: OldMember
    notifications: list[Message] = field(default_factory=list)
    requests: list[Message] = field(default_factory=list)
    losses: list[MemberFailure] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    session: SseUpstream = field(init=False)

    @property
    def stream(self) -> OldStream:
        """The session's stream at the member."""
        return self.member.streams[0]

    async def told(self, messages: list[Any], number: int = 1) -> None:
        """Wait until that many entries are in one of the lists."""
        async with asyncio.timeout(5):
            while len(messages) < number:
                self.news.clear()
                await self.news.wait()

    async def received(self, method: str, number: int = 1) -> list[Request]:
        """Wait until the member got that many messages of a method."""
        await self.server.until(lambda: len(self.server.seen(method)) >= number)
        return self.server.seen(method)


@contextlib.asynccontextmanager
async def opened_sse(
    member: OldMember, *, asked: bool = False, path: str = "/sse", **options: Any
) -> AsyncIterator[OpenedSse]:
    """`asked` says that the session takes the member's requests."""
    async with RawServer(member) as server:
        it = OpenedSse(server, member)

        def noting(messages: list[Any]) -> Any:
            def note(message: Any) -> None:
                messages.append(message)
                it.news.set()

            return note

        connector = connector_to(server, path, **options)
        opening = Opening(
            on_notification=noting(it.notifications),
            on_lost=noting(it.losses),
            control=False,
            on_request=noting(it.requests) if asked else None,
        )
        it.session = await connector.open(opening, 5)
        try:
            yield it
        finally:
            await it.session.close()
            await connector.close()


def connector_to(server: RawServer, path: str = "/sse", **options: Any) -> SseConnector:
    url = server.url.removesuffix("/mcp") + path
    return SseConnector(HttpReach("one", url, **options))
