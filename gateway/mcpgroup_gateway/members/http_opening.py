"""Opening one session with a member over HTTP, of whichever era it turns out to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpgroup_gateway.members.modern_session import ModernUpstream
from mcpgroup_gateway.members.negotiation import Era, negotiate
from mcpgroup_gateway.members.streamable_session import StreamableUpstream
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.members.http_address import Address
    from mcpgroup_gateway.members.http_target import HttpTarget
    from mcpgroup_gateway.members.upstream import Handshake, Opening
    from mcpgroup_gateway.wire.envelope import Message

HttpSession = StreamableUpstream | ModernUpstream


class HttpOpening:
    """One attempt at one address; it is the `Member` that `negotiate` asks.

    `make_target` gives the target at an address, `on_other_era` is `ModernUpstream`'s,
    `routed` is `StreamableUpstream`'s.
    """

    def __init__(
        self,
        make_target: Callable[[Address], HttpTarget],
        address: Address,
        opening: Opening,
        *,
        response_limit: int,
        on_other_era: Callable[[], None],
        routed: bool = False,
    ) -> None:
        self._make_target = make_target
        self._address = address
        self._opening = opening
        self._response_limit = response_limit
        self._on_other_era = on_other_era
        self._routed = routed
        self._answered = False
        self._modern: ModernUpstream | None = None
        self._legacy: StreamableUpstream | None = None

    def adopt(self, handshake: Handshake) -> ModernUpstream:
        """Go on with what is known of a modern member, without asking it."""
        session = self._make_modern()
        session.adopt(handshake)
        return session

    async def open(self, era: Era, known: Handshake | None, deadline: float) -> HttpSession:
        """Raises `MemberFailure`; nothing is left open then."""
        try:
            handshake = await negotiate(self, era, known, deadline)
            if handshake.modern:
                assert self._modern is not None  # noqa: S101 - its answer is the handshake
                self._modern.adopt(handshake)
                await self._close(self._legacy)
                return self._modern
            assert self._legacy is not None  # noqa: S101 - its answer is the handshake
            await self._legacy.adopt(handshake)
            await self._close(self._modern)
        except MemberFailure:
            await self._close(self._legacy, self._modern)
            raise
        except BaseException:
            for session in (self._legacy, self._modern):
                if session is not None:
                    session.abandon()
            raise
        return self._legacy

    async def discover(self, version: str) -> Message:
        if self._modern is None:
            self._modern = self._make_modern()
        try:
            answer = await self._modern.discover(version)
        except MemberFailure as failure:
            self._answered = failure.status is not None
            raise
        self._answered = True
        return answer

    async def initialize(self) -> Message:
        await self._close(self._legacy)
        # A redirect of the probe need not be followed again, nor a second connection be made.
        moved_to = None if self._modern is None else self._modern.target.moved_to
        self._legacy = StreamableUpstream(
            self._make_target(moved_to or self._address),
            self._opening,
            response_limit=self._response_limit,
            dials=not self._answered,
            routed=self._routed,
        )
        return await self._legacy.initialize()

    def _make_modern(self) -> ModernUpstream:
        return ModernUpstream(
            self._make_target(self._address),
            self._opening,
            response_limit=self._response_limit,
            on_other_era=self._on_other_era,
        )

    async def _close(self, *sessions: HttpSession | None) -> None:
        for session in sessions:
            if session is not None:
                await session.close()
