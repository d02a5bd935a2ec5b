"""The table of client sessions: how many there may be, and when one ends.

A session is idle while it has neither a call in flight nor an open GET stream. It lives on one
replica. The table is bounded; the front expires idle sessions.
"""

from __future__ import annotations

import math
import secrets
import time
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.members.upstream import GATEWAY_IDENTITY
from mcpgroup_gateway.serving.replay import ReplayBudget
from mcpgroup_gateway.serving.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcpgroup_gateway.members.upstream import ClientIdentity

__all__ = ["DISPLACE_AFTER_SECONDS", "Session", "SessionTable", "unguessable_id"]

#: At the limit a session gives way to a new one after so many idle seconds (DESIGN-MCP section 1).
DISPLACE_AFTER_SECONDS: Final = 60.0


def unguessable_id() -> str:
    """A session id of 256 random bits in URL-safe characters, all of them within 0x21-0x7E."""
    return secrets.token_urlsafe(32)


class SessionTable:
    """All sessions of this replica.

    `listener` hears (session, what): `opened`, and as it ends `deleted`, `idle`, `displaced` or
    `shutdown`. `ids` must be unguessable. `replay` is what all sessions keep of their streams.
    """

    def __init__(
        self,
        *,
        max_sessions: int,
        idle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        ids: Callable[[], str] = unguessable_id,
        listener: Callable[[Session, str], None] | None = None,
        replay: ReplayBudget | None = None,
    ) -> None:
        self.replay = ReplayBudget() if replay is None else replay
        self._sessions: dict[str, Session] = {}
        self._max = max_sessions
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._ids = ids
        self._listener = listener
        self._full_until = -math.inf

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def all(self) -> list[Session]:
        return list(self._sessions.values())

    def reconfigure(self, *, max_sessions: int, idle_seconds: float) -> None:
        """New limits; sessions over a lowered maximum stay until they end by themselves."""
        self._max = max_sessions
        self._idle_seconds = idle_seconds
        self._full_until = -math.inf

    def open(
        self, protocol_version: str, client: ClientIdentity = GATEWAY_IDENTITY
    ) -> Session | None:
        """A new session; None when the table is full of sessions that are in use."""
        now = self._clock()
        if len(self._sessions) >= self._max and not self._displace_one(now):
            return None
        session = Session(self._ids(), protocol_version, client, now, self.replay)
        self._sessions[session.id] = session
        self._tell(session, "opened")
        return session

    def get(self, session_id: str) -> Session | None:
        return self._sessions.get(session_id)

    def use(self, session_id: str) -> Session | None:
        """Like `get`, and the session was used now."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.used(self._clock())
        return session

    def close(self, session_id: str, reason: str = "deleted") -> bool:
        """End a session; False when there is none of that id."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return False
        session.close(f"the session ended ({reason})")
        self._tell(session, reason)
        return True

    def close_all(self, reason: str = "shutdown") -> None:
        for session_id in list(self._sessions):
            self.close(session_id, reason)

    def expire(self) -> int:
        """End what was idle for longer than allowed; the number of sessions that ended.

        Forgets streams, too, that were remembered for long enough.
        """
        now = self._clock()
        self.replay.expire(now)
        horizon = now - self._idle_seconds
        idle = [
            session.id
            for session in self._sessions.values()
            if session.last_used <= horizon and session.is_idle
        ]
        for session_id in idle:
            self.close(session_id, "idle")
        return len(idle)

    def seconds_until_room(self) -> float:
        """How long a client that found the table full should wait, 1 to 60 s."""
        return min(DISPLACE_AFTER_SECONDS, max(1.0, self._full_until - self._clock()))

    def _displace_one(self, now: float) -> bool:
        # The scan costs about a millisecond at 10,000 sessions; while none can have become idle
        # for long enough it is not repeated, so that a flood of `initialize` stays cheap.
        if now < self._full_until:
            return False
        oldest = min(
            (session for session in self._sessions.values() if session.is_idle),
            key=lambda session: session.last_used,
            default=None,
        )
        if oldest is None:
            self._full_until = now + 1.0
            return False
        if now - oldest.last_used < DISPLACE_AFTER_SECONDS:
            self._full_until = oldest.last_used + DISPLACE_AFTER_SECONDS
            return False
        return self.close(oldest.id, "displaced")

    def _tell(self, session: Session, what: str) -> None:
        if self._listener is not None:
            self._listener(session, what)
