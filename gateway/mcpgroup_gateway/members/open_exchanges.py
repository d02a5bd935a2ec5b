"""The requests in flight of one session over HTTP, on whichever transport, and how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import Handshake, MemberFailure
from mcpgroup_gateway.wire.envelope import MalformedMessage, parse_object
from mcpgroup_gateway.wire.protocol import CALL_METHODS

if TYPE_CHECKING:
    from mcpgroup_gateway.members.upstream import Opening
    from mcpgroup_gateway.wire.envelope import Message


class OpenExchange(Protocol):
    """`raw_id` and `token` are as they stand in messages; `token` is b"" without one."""

    method: str
    raw_id: bytes
    token: bytes

    @property
    def sent(self) -> bool: ...

    def abort(self, failure: MemberFailure) -> None: ...

    def fail(self, failure: MemberFailure) -> None: ...


AnExchange = TypeVar("AnExchange", bound=OpenExchange)


class ExchangeKeeper(Generic[AnExchange]):
    """The part of a session that keeps its exchanges, see `members.upstream.Upstream`."""

    def __init__(self, opening: Opening) -> None:
        self.handshake = Handshake("", b"", b"", None)
        self.pid: int | None = None
        self.in_flight = 0
        #: Whether it is in use: a loss before that is a failed start, which its caller sees.
        self.is_open = False
        self._on_notification = opening.on_notification
        self._on_lost = opening.on_lost
        self._last_id = 0
        self._exchanges: dict[bytes, AnExchange] = {}
        self._by_token: dict[bytes, AnExchange] = {}
        self._calls: set[AnExchange] = set()
        self._lost = False
        self._closed = False

    @property
    def lost(self) -> bool:
        return self._lost

    def forget(self, exchange: AnExchange) -> None:
        """Take a closed exchange out of the tables."""
        del self._exchanges[exchange.raw_id]
        self._calls.discard(exchange)
        if exchange.token and self._by_token.get(exchange.token) is exchange:
            del self._by_token[exchange.token]
        self.in_flight -= 1

    def lose(self, failure: MemberFailure) -> None:
        """The session is of no use any more; reported once."""
        if not self._lost and not self._closed:
            self._lost = True
            if self.is_open:
                self._on_lost(failure)

    def _begin(self, exchange: AnExchange) -> AnExchange:
        if self._lost or self._closed:
            reason = "the session was lost" if self._lost else "the session was closed"
            exchange.fail(MemberFailure(Failure.SESSION_LOST, reason, sent=False))
        self._exchanges[exchange.raw_id] = exchange
        if exchange.token:
            self._by_token[exchange.token] = exchange
        if exchange.method in CALL_METHODS:
            self._calls.add(exchange)
        self.in_flight += 1
        return exchange

    def _abort_all(self) -> None:
        for exchange in tuple(self._exchanges.values()):
            reason = "the session was closed"
            exchange.abort(MemberFailure(Failure.CANCELLED, reason, sent=exchange.sent))
        self._closed = True


def progress_token(message: Message) -> bytes:
    """The raw token of a progress notification, b"" without one."""
    try:
        return bytes(parse_object(message.params).get("progressToken", b""))
    except MalformedMessage:
        return b""
