"""Opening sessions with scripted HTTP members, and calling through them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.raw_http import Handler, Peer, RawServer, Request

from mcpgroup_gateway.members.http_reach import HttpReach
from mcpgroup_gateway.members.negotiation import Era
from mcpgroup_gateway.members.streamable import StreamableConnector
from mcpgroup_gateway.members.streamable_session import StreamableUpstream
from mcpgroup_gateway.members.upstream import MemberFailure, Opening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mcpgroup_gateway.members.upstream import Connector, Upstream
    from mcpgroup_gateway.wire.envelope import Message

#: For sessions of which nothing but the answers matters.
UNHEARD = Opening(on_notification=lambda _: None, on_lost=lambda _: None, control=False)


@dataclass
class Opened:
    """A session with a scripted member and what it reported."""

    server: RawServer
    connector: StreamableConnector
    session: StreamableUpstream
    notifications: list[Message]
    losses: list[MemberFailure]
    news: asyncio.Event


def connector_to(url: str, *, era: Era = Era.AUTO, **options: Any) -> StreamableConnector:
    """A connector to this URL; `options` are those of `HttpReach`."""
    return StreamableConnector(HttpReach("one", url, **options), era)


@contextlib.asynccontextmanager
async def opened(
    handler: Handler, *, control: bool = False, **options: Any
) -> AsyncIterator[Opened]:
    async with RawServer(handler) as server:
        connector = connector_to(server.url, **options)
        notifications: list[Message] = []
        losses: list[MemberFailure] = []
        news = asyncio.Event()

        def notified(message: Message) -> None:
            notifications.append(message)
            news.set()

        def lost(failure: MemberFailure) -> None:
            losses.append(failure)
            news.set()

        opening = Opening(on_notification=notified, on_lost=lost, control=control)
        session = await connector.open(opening, 5)
        assert isinstance(session, StreamableUpstream)
        try:
            yield Opened(server, connector, session, notifications, losses, news)
        finally:
            await session.close()
            await connector.close()


async def call(
    session: Upstream,
    method: str = "tools/call",
    *,
    safe: bool = False,
    seen: list[Message] | None = None,
    token: int | None = None,
) -> Message:
    exchange = session.request(method, b'{"name":"t"}', safe=safe, progress_token=token)
    try:
        async with asyncio.timeout(10):
            while True:
                message = await exchange.next()
                if message.is_response:
                    return message
                if seen is not None:
                    seen.append(message)
    finally:
        exchange.close()


async def failure_of_call(session: Upstream, **options: Any) -> MemberFailure:
    with pytest.raises(MemberFailure) as caught:
        await call(session, **options)
    return caught.value


def always(data: bytes) -> Handler:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(data)

    return script


def made(make: Callable[[Request], bytes]) -> Handler:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(make(request))

    return script


async def failed_open(connector: Connector, deadline: float = 5) -> MemberFailure:
    with pytest.raises(MemberFailure) as caught:
        await connector.open(UNHEARD, deadline)
    await connector.close()
    return caught.value
