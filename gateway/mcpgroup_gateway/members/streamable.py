"""The connector for members over streamable HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcpgroup_gateway.members.http_reach import CONNECT_SECONDS, RESPONSE_LIMIT, HttpReach
from mcpgroup_gateway.members.streamable_session import StreamableUpstream
from mcpgroup_gateway.members.upstream import GATEWAY_IDENTITY, MemberFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcpgroup_gateway.members.http_address import Address
    from mcpgroup_gateway.members.http_pool import Pool
    from mcpgroup_gateway.members.upstream import ClientIdentity
    from mcpgroup_gateway.wire.envelope import Message


class StreamableConnector:
    """Opens sessions with one HTTP endpoint, see `members.upstream.Connector`.

    A session stays on the URL that it opened. For the arguments see `HttpReach`.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        fallback_urls: Sequence[str] = (),
        headers: Sequence[tuple[str, str]] | Callable[[], Sequence[tuple[str, str]]] = (),
        ca_pem: bytes | None = None,
        insecure_skip_verify: bool = False,
        connect_seconds: float = CONNECT_SECONDS,
        response_limit: int = RESPONSE_LIMIT,
    ) -> None:
        self.name = name
        self.response_limit = response_limit
        self._reach = HttpReach(
            name,
            url,
            fallback_urls=fallback_urls,
            headers=headers,
            ca_pem=ca_pem,
            insecure_skip_verify=insecure_skip_verify,
            connect_seconds=connect_seconds,
            response_limit=response_limit,
        )

    async def open(
        self,
        *,
        on_notification: Callable[[Message], None],
        on_lost: Callable[[MemberFailure], None],
        control: bool,
        deadline: float,
        client: ClientIdentity = GATEWAY_IDENTITY,
        on_request: Callable[[Message], None] | None = None,
    ) -> StreamableUpstream:
        loop = asyncio.get_running_loop()
        fields = self._reach.headers()

        async def attempt(address: Address) -> StreamableUpstream:
            session = StreamableUpstream(
                self,
                address,
                fields,
                loop,
                on_notification=on_notification,
                on_lost=on_lost,
                on_request=on_request,
            )
            try:
                await session.shake_hands(client)
            except MemberFailure:
                await session.close()
                raise
            except BaseException:
                session.abandon()
                raise
            if control or on_request is not None:
                session.start_listening()
            return session

        return await self._reach.first(attempt, deadline)

    async def close(self) -> None:
        await self._reach.close()

    def pool(self, address: Address) -> Pool:
        """The connections to the origin of an address."""
        return self._reach.pool(address)
