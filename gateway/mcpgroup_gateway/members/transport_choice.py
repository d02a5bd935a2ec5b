"""Finding out which HTTP transport a member speaks (`transport: Auto`).

Source: MCP 2025-11-25, transports, "backwards compatibility": a client posts `initialize` and,
when that is refused, tries GET for the `endpoint` event of the older transport.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.members.http_reach import tries_next
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpgroup_gateway.members.upstream import Connector, Opening, Upstream

#: What servers answer to a POST, or to a GET, of a transport that they do not speak.
_NOT_SPOKEN: Final = frozenset({400, 404, 405, 406, 415, 501})
#: A server that has just refused the POST is awake: it names its endpoint soon (seconds).
_SECOND_TRY_SECONDS: Final = 10.0


class UrlTransports:
    """One URL of a member, with a connector for each transport."""

    def __init__(self, streamable: Connector, sse: Connector) -> None:
        self._streamable = streamable
        self._sse = sse
        self._speaks_sse = False

    async def open(self, opening: Opening, due: float) -> Upstream:
        """Raises `MemberFailure`: that of streamable HTTP, unless only the old one was tried."""

        def left() -> float:
            return max(due - asyncio.get_running_loop().time(), 0.0)

        if self._speaks_sse:
            try:
                return await self._sse.open(opening, left())
            except MemberFailure as failure:
                self._speaks_sse = False  # found out again by the next start, or at once
                if failure.status not in _NOT_SPOKEN:
                    raise
        try:
            return await self._streamable.open(opening, left())
        except MemberFailure as failure:
            if failure.status not in _NOT_SPOKEN:
                raise
            first = failure
        try:
            session = await self._sse.open(opening, min(left(), _SECOND_TRY_SECONDS))
        except MemberFailure as second:
            raise _neither(first, second) from second
        self._speaks_sse = True
        return session

    async def close(self) -> None:
        await self._streamable.close()
        await self._sse.close()


class TransportChoice:
    """Tries streamable HTTP, then the old HTTP+SSE transport. See `Connector`.

    `urls` are tried in order for a new session; each may speak another transport. What was found
    out is remembered until a start fails.
    """

    def __init__(self, urls: Sequence[UrlTransports]) -> None:
        self._urls = tuple(urls)

    async def open(self, opening: Opening, deadline: float) -> Upstream:
        due = asyncio.get_running_loop().time() + deadline
        for url in self._urls[:-1]:
            try:
                return await url.open(opening, due)
            except MemberFailure as failure:
                if not tries_next(failure):
                    raise
        return await self._urls[-1].open(opening, due)

    async def close(self) -> None:
        for url in self._urls:
            await url.close()


def _neither(first: MemberFailure, second: MemberFailure) -> MemberFailure:
    return MemberFailure(
        first.failure,
        f"{first.reason} (streamable HTTP); the older HTTP+SSE transport failed as well:"
        f" {second.reason}",
        sent=False,
        status=first.status,
        retry_after=first.retry_after,
        late=first.late or second.late,
    )
