"""The connector for members over the old HTTP+SSE transport (MCP 2024-11-05)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpgroup_gateway.members.http_target import HttpTarget
from mcpgroup_gateway.members.sse_session import SseUpstream
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from mcpgroup_gateway.members.http_address import Address
    from mcpgroup_gateway.members.http_reach import HttpReach
    from mcpgroup_gateway.members.upstream import Opening


class SseConnector:
    """Opens sessions with one HTTP endpoint, see `members.upstream.Connector`.

    `reach` is the connector's own. A session stays on the URL that it opened.
    """

    def __init__(self, reach: HttpReach) -> None:
        self._reach = reach

    async def open(self, opening: Opening, deadline: float) -> SseUpstream:
        """`opening.control` makes no difference: every session holds its stream."""
        fields = self._reach.headers()

        async def attempt(address: Address) -> SseUpstream:
            session = SseUpstream(
                self._reach.name,
                lambda address: HttpTarget(self._reach, address, fields),
                address,
                opening,
                response_limit=self._reach.response_limit,
            )
            try:
                await session.shake_hands()
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
