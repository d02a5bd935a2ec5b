"""What sessions over streamable HTTP share in both eras: where their messages go."""

from __future__ import annotations

import abc
import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.members.http_address import event_id_field
from mcpgroup_gateway.members.http_target import STREAM_FIELDS
from mcpgroup_gateway.members.open_exchanges import ExchangeKeeper
from mcpgroup_gateway.members.streamable_exchange import StreamableExchange

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from mcpgroup_gateway.members.http1 import HttpCall, Signal
    from mcpgroup_gateway.members.http_target import Fields, HttpTarget
    from mcpgroup_gateway.members.upstream import MemberFailure, Opening
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


class HttpUpstream(ExchangeKeeper[StreamableExchange], abc.ABC):
    """One session over streamable HTTP; `response_limit` is bytes a message.

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
        super().__init__(opening)
        self.target = target
        self.response_limit = response_limit
        self.dials = dials
        self._loop = asyncio.get_running_loop()

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
