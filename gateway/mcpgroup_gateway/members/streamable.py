"""The connector for members over streamable HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mcpgroup_gateway.members.http_opening import HttpOpening
from mcpgroup_gateway.members.http_target import HttpTarget
from mcpgroup_gateway.members.negotiation import OUTAGES, PATIENCE_SHARE, Era
from mcpgroup_gateway.members.streamable_session import StreamableUpstream
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from mcpgroup_gateway.members.http_address import Address
    from mcpgroup_gateway.members.http_opening import HttpSession
    from mcpgroup_gateway.members.http_reach import HttpReach
    from mcpgroup_gateway.members.upstream import Handshake, Opening


class _Known(NamedTuple):
    """What the last session that was negotiated found, and where."""

    handshake: Handshake
    address: Address


class StreamableConnector:
    """Opens sessions with one HTTP endpoint, see `members.upstream.Connector`.

    `reach` is the connector's own. A session stays on the URL that it opened. `era` says how the
    member is spoken to; what `Auto` finds out is remembered until a session fails to open or the
    member contradicts it.
    """

    def __init__(self, reach: HttpReach, era: Era = Era.AUTO) -> None:
        self._reach = reach
        self._era = era
        self._known: _Known | None = None
        self._has_sessions = True  # as far as is known, beside its modern side

    async def open(self, opening: Opening, deadline: float) -> HttpSession:
        """A session that is no control session costs a modern member nothing once it is known."""
        fields = self._reach.headers()

        def at(address: Address, *, routed: bool = False) -> HttpOpening:
            return HttpOpening(
                lambda address: HttpTarget(self._reach, address, fields),
                address,
                opening,
                response_limit=self._reach.response_limit,
                on_other_era=self._forget,
                routed=routed,
            )

        async def attempt(address: Address) -> HttpSession:
            known = None if self._known is None else self._known.handshake
            return await at(address).open(self._era, known, deadline)

        async def initialized(address: Address) -> HttpSession:
            return await at(address, routed=True).open(Era.LEGACY, None, deadline)

        if self._known is not None and self._known.handshake.modern and not opening.control:
            if opening.with_session and self._era is Era.AUTO and self._has_sessions:
                try:
                    session = await self._reach.first(initialized, deadline / PATIENCE_SHARE)
                except MemberFailure as failure:
                    if failure.failure in OUTAGES:
                        raise
                    self._has_sessions = False  # it is modern only
                else:
                    return _listening(session)
            return at(self._known.address).adopt(self._known.handshake)
        try:
            session = await self._reach.first(attempt, deadline)
        except MemberFailure:
            self._forget()
            raise
        self._known = _Known(session.handshake, session.target.address)
        listens = opening.control or opening.on_request is not None
        return _listening(session) if listens else session

    async def close(self) -> None:
        await self._reach.close()

    def _forget(self) -> None:
        self._known = None
        self._has_sessions = True


def _listening(session: HttpSession) -> HttpSession:
    if isinstance(session, StreamableUpstream):
        session.hold_stream()
    return session
