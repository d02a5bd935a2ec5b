"""Sessions of clients: what is kept between their requests, and when it ends.

A session is idle while it has neither a call in flight nor an open GET stream. It lives on one
replica. The table is bounded; the front expires idle sessions.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.members.upstream import GATEWAY_IDENTITY
from mcpgroup_gateway.serving.event_stream import EventStream
from mcpgroup_gateway.wire.envelope import encode_notification
from mcpgroup_gateway.wire.protocol import CAPABILITY_OF, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcpgroup_gateway.members.upstream import ClientIdentity
    from mcpgroup_gateway.serving.interface import Call

logger = logging.getLogger(__name__)

#: At the limit a session gives way to a new one after so many idle seconds (DESIGN-MCP section 1).
DISPLACE_AFTER_SECONDS: Final = 60.0

_LIST_CHANGED: Final = {
    capability: encode_notification(f"notifications/{capability}/list_changed")
    for capability in set(CAPABILITY_OF.values())
}


def unguessable_id() -> str:
    """A session id of 256 random bits in URL-safe characters, all of them within 0x21-0x7E."""
    return secrets.token_urlsafe(32)


class Session:
    """One client session.

    `client` is what its `initialize` said of it; times are those of the table's monotonic clock.
    `calls` holds the calls in flight by raw id: real clients use an id twice at once, therefore
    lists.
    """

    __slots__ = (
        "_on_close",
        "_pending",
        "calls",
        "client",
        "closed",
        "id",
        "in_flight",
        "last_used",
        "log_level",
        "opened_at",
        "protocol_version",
        "streams",
    )

    def __init__(
        self,
        session_id: str,
        protocol_version: str,
        client: ClientIdentity,
        now: float,
    ) -> None:
        self.id = session_id
        self.protocol_version = protocol_version
        self.client = client
        self.log_level: str | None = None
        self.calls: dict[bytes, list[Call]] = {}
        self.in_flight = 0
        self.streams: list[EventStream] = []  # oldest first
        self.opened_at = now
        self.last_used = now
        self.closed = False
        self._pending: dict[str, bytes] | None = None  # list_changed by capability
        self._on_close: list[Callable[[], None]] | None = None

    @property
    def is_idle(self) -> bool:
        return not self.in_flight and not self.streams

    def call_began(self, raw_id: bytes, call: Call) -> None:
        self.in_flight += 1
        same = self.calls.get(raw_id)
        if same is None:
            self.calls[raw_id] = [call]
        else:
            same.append(call)

    def call_ended(self, raw_id: bytes, call: Call, now: float) -> None:
        self.in_flight -= 1
        self.last_used = now
        same = self.calls[raw_id]
        if len(same) == 1:
            del self.calls[raw_id]
        else:
            same.remove(call)

    def open_stream(self) -> EventStream:
        """A new GET stream; `list_changed` that found none open waits in it already."""
        stream = EventStream()
        if self.closed:
            stream.close()
            return stream
        self.streams.append(stream)
        if self._pending:
            for message in self._pending.values():
                stream.push(message)
            self._pending = None
        return stream

    def close_stream(self, stream: EventStream, now: float) -> None:
        stream.close()
        if stream in self.streams:
            self.streams.remove(stream)
        self.last_used = now

    def push(self, message: bytes) -> bool:
        """Give a message that belongs to no call to the newest live GET stream.

        False when no stream takes it; then it is dropped.
        """
        return any(stream.push(message) for stream in reversed(self.streams))

    def push_request(self, message: bytes) -> bool:
        """Like `push`, for a message that the client must answer."""
        return self.push(message)

    @property
    def detached_since(self) -> float | None:
        """Since when the client has no connection open; None while it has one."""
        return self.last_used if self.is_idle else None

    def notify_updated(self, uri: str, message: bytes) -> None:
        """Tell the client that a resource changed."""
        self.push(message)

    def notify_list_changed(self, kind: Kind) -> None:
        """Tell the client that a list changed, at the latest when it opens a GET stream."""
        capability = CAPABILITY_OF[kind]
        message = _LIST_CHANGED[capability]
        if not self.push(message) and not self.closed:
            if self._pending is None:
                self._pending = {}
            self._pending[capability] = message

    def on_close(self, callback: Callable[[], None]) -> None:
        """Run `callback` once when the session ends; at once when it has ended."""
        if self.closed:
            callback()
        elif self._on_close is None:
            self._on_close = [callback]
        else:
            self._on_close.append(callback)

    def close(self, reason: str) -> None:
        """Cancel its calls, end its streams, run the callbacks. Once only."""
        if self.closed:
            return
        self.closed = True
        for calls in list(self.calls.values()):
            for call in list(calls):
                call.cancel(reason)
        for stream in self.streams:
            stream.close()
        self._pending = None
        callbacks, self._on_close = self._on_close, None
        for callback in callbacks or ():
            try:
                callback()
            except Exception:  # the others must run as well
                logger.exception("a session's close callback failed")


class SessionTable:
    """All sessions of this replica.

    `listener` hears (session, what): `opened`, and as it ends `deleted`, `idle`, `displaced` or
    `shutdown`. `ids` must be unguessable.
    """

    def __init__(
        self,
        *,
        max_sessions: int,
        idle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        ids: Callable[[], str] = unguessable_id,
        listener: Callable[[Session, str], None] | None = None,
    ) -> None:
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
        session = Session(self._ids(), protocol_version, client, now)
        self._sessions[session.id] = session
        self._tell(session, "opened")
        return session

    def get(self, session_id: str) -> Session | None:
        return self._sessions.get(session_id)

    def use(self, session_id: str) -> Session | None:
        """Like `get`, and the session was used now."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.last_used = self._clock()
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
        """End what was idle for longer than allowed; the number of sessions that ended."""
        horizon = self._clock() - self._idle_seconds
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
