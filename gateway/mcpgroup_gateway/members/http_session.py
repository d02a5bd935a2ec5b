"""What sessions over HTTP of both eras share: the requests in flight and how they end."""

from __future__ import annotations

import abc
import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http_address import event_id_field
from mcpgroup_gateway.members.http_target import STREAM_FIELDS
from mcpgroup_gateway.members.streamable_exchange import StreamableExchange
from mcpgroup_gateway.members.upstream import Handshake, MemberFailure
from mcpgroup_gateway.wire.envelope import MalformedMessage, encode_request, parse_object
from mcpgroup_gateway.wire.protocol import CALL_METHODS

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from mcpgroup_gateway.members.http1 import HttpCall, Signal
    from mcpgroup_gateway.members.http_target import Fields, HttpTarget
    from mcpgroup_gateway.members.upstream import Opening
    from mcpgroup_gateway.wire.envelope import Message

#: Notifications that concern the session, on whatever stream they come.
OF_THE_SESSION: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)


class HttpUpstream(abc.ABC):
    """The exchanges of one session; `response_limit` is bytes a message.

    `dials` says that requests are not to be tried on an idle connection first: one to a member that
    hangs would hold up the opening of a session for all the time that it has.
    """

    #: Whether a broken stream may be taken up again behind its last event.
    resumable: bool

    def __init__(
        self,
        target: HttpTarget,
        opening: Opening,
        *,
        response_limit: int,
        dials: bool,
    ) -> None:
        self.target = target
        self.response_limit = response_limit
        self.dials = dials
        self.handshake = Handshake("", b"", b"", None)
        self.pid: int | None = None
        self.in_flight = 0
        self._loop = asyncio.get_running_loop()
        self._on_notification = opening.on_notification
        self._on_lost = opening.on_lost
        self._last_id = 0
        self._exchanges: set[StreamableExchange] = set()
        self._by_token: dict[bytes, StreamableExchange] = {}
        self._calls: set[StreamableExchange] = set()
        self._open = False
        self._lost = False
        self._closed = False

    @property
    def lost(self) -> bool:
        return self._lost

    @property
    @abc.abstractmethod
    def in_session(self) -> bool:
        """True when requests carry a session id; a member may work without one."""

    @abc.abstractmethod
    def deliver(self, message: Message, exchange: StreamableExchange) -> None:
        """Route a notification that came on the stream of an exchange."""

    @abc.abstractmethod
    def requested(self, message: Message, exchange: StreamableExchange) -> None:
        """Take a request of the member that came on the stream of an exchange."""

    @abc.abstractmethod
    def refusal(self, exchange: StreamableExchange, answer: Message) -> MemberFailure | None:
        """The failure that an answer means although it is one, None when it is to be passed on."""

    @abc.abstractmethod
    def refused(self, failure: MemberFailure) -> None:
        """Hear of a response that is no answer to the request."""

    @abc.abstractmethod
    def abandoned(self, exchange: StreamableExchange, failure: MemberFailure) -> None:
        """Tell the member that nobody waits for the answer to a request that it has got."""

    def heard(self, message: Message) -> None:
        """Pass a notification on that belongs to no exchange.

        A fault in what becomes of it must not end the stream on which it came.
        """
        try:
            self._on_notification(message)
        except Exception:  # noqa: BLE001 - logged; the messages after it go on
            _log.exception("a message was not handled: %s", message.method)

    def post(self, body: bytes, signal: Signal, *, safe: bool, fields: Fields = ()) -> HttpCall:
        return self.target.post(body, signal, safe=safe, fresh=self.dials, fields=fields)

    def listen(self, signal: Signal, *, last_event_id: str, fields: Fields = ()) -> HttpCall:
        """Open an event stream with GET, behind an event when its id is given."""
        own = STREAM_FIELDS
        position = event_id_field(last_event_id)
        if position is not None:
            own += (("Last-Event-ID", position),)
        return self.target.call("GET", own + fields, signal)

    def forget(self, exchange: StreamableExchange) -> None:
        """Take a closed exchange out of the tables."""
        self._exchanges.discard(exchange)
        self._calls.discard(exchange)
        if exchange.token and self._by_token.get(exchange.token) is exchange:
            del self._by_token[exchange.token]
        self.in_flight -= 1

    def lose(self, failure: MemberFailure) -> None:
        """The session is of no use any more; reported once."""
        if not self._lost and not self._closed:
            self._lost = True
            if self._open:
                self._on_lost(failure)

    def _begin(
        self, method: str, params: bytes, *, token: int | None, safe: bool, fields: Fields
    ) -> StreamableExchange:
        self._last_id += 1
        exchange = StreamableExchange(
            self,
            self._loop,
            method=method,
            request_id=self._last_id,
            request=encode_request(self._last_id, method, params),
            fields=fields,
            token=b"" if token is None else b"%d" % token,
            safe=safe,
            limit=self.response_limit,
        )
        if self._lost or self._closed:
            reason = "the session was lost" if self._lost else "the session was closed"
            exchange.fail(MemberFailure(Failure.SESSION_LOST, reason, sent=False))
        self._exchanges.add(exchange)
        if exchange.token:
            self._by_token[exchange.token] = exchange
        if method in CALL_METHODS:
            self._calls.add(exchange)
        self.in_flight += 1
        return exchange

    def _abort_all(self) -> None:
        for exchange in tuple(self._exchanges):
            reason = "the session was closed"
            exchange.abort(MemberFailure(Failure.CANCELLED, reason, sent=exchange.sent))
        self._closed = True


def progress_token(message: Message) -> bytes:
    """The raw token of a progress notification, b"" without one."""
    try:
        return bytes(parse_object(message.params).get("progressToken", b""))
    except MalformedMessage:
        return b""
