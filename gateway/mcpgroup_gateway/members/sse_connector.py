"""The connector for members over the old HTTP+SSE transport (MCP 2024-11-05)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpgroup_gateway.members.http_target import HttpTarget
from mcpgroup_gateway.members.sse_session import SseUpstream
from mcpgroup_gateway.members.upstream import GATEWAY_IDENTITY, MemberFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.members.http_address import Address
    from mcpgroup_gateway.members.http_reach import HttpReach
    from mcpgroup_gateway.members.upstream import ClientIdentity
    from mcpgroup_gateway.wire.envelope import Message


class SseConnector:
    """Opens sessions with one HTTP endpoint, see `members.upstream.Connector`.

    `reach` is the connector's own. A session stays on the URL that it opened.
    """

    def __init__(self, reach: HttpReach) -> None:
        self._reach = reach

    async def open(
        self,
        *,
        on_notification: Callable[[Message], None],
        on_lost: Callable[[MemberFailure], None],
        control: bool,
        deadline: float,
        client: ClientIdentity = GATEWAY_IDENTITY,
        on_request: Callable[[Message], None] | None = None,
        with_session: bool = False,
    ) -> SseUpstream:
        """`control` makes no difference: every session holds its stream."""
        fields = self._reach.headers()

        async def attempt(address: Address) -> SseUpstream:
            session = SseUpstream(
                self._reach.name,
                lambda address: HttpTarget(self._reach, address, fields),
                address,
                response_limit=self._reach.response_limit,
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
            return session

        return await self._reach.first(attempt, deadline)

    async def close(self) -> None:
        await self._reach.close()
