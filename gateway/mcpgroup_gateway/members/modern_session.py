"""A member over HTTP that keeps no session: every request says all there is to know.

What is opened here is the gateway's word for what it asked and remembers; the member knows nothing
of it and cannot lose it. It ends when the member turns out to speak another era by now.

Source: MCP 2026-07-28, transports and lifecycle.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http_answers import error_code
from mcpgroup_gateway.members.http_session import OF_THE_SESSION, HttpUpstream
from mcpgroup_gateway.members.modern_requests import ModernRequests, routing_fields
from mcpgroup_gateway.members.negotiation import read_discovery
from mcpgroup_gateway.members.open_exchanges import progress_token
from mcpgroup_gateway.members.streamable_exchange import StreamableExchange
from mcpgroup_gateway.members.upstream import NOTHING_FORWARDED, Forwarded, MemberFailure
from mcpgroup_gateway.wire.protocol import (
    DISCOVER,
    LISTEN,
    UNSUPPORTED_VERSION,
    VERSION_HEADER,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.members.http_target import Fields, HttpTarget
    from mcpgroup_gateway.members.upstream import Handshake, Opening
    from mcpgroup_gateway.wire.envelope import Message

#: How servers with sessions refuse a request without one; a proxy may use the same words.
_DOUBTFUL: Final = frozenset({400, 404, 405, 406})
#: What a member may take to say whether it is still modern (seconds).
CHECK_SECONDS: Final = 10.0


class ModernUpstream(HttpUpstream):
    """Requests to a modern member on behalf of one client, see `members.upstream.Upstream`.

    `on_other_era` is called, before `on_lost`, when the member is modern no longer.
    """

    resumable = False
    in_session = False

    def __init__(
        self,
        target: HttpTarget,
        opening: Opening,
        *,
        response_limit: int,
        on_other_era: Callable[[], None],
    ) -> None:
        super().__init__(target, opening, response_limit=response_limit, dials=True)
        self._client = opening.client
        self._on_other_era = on_other_era
        self._requests = ModernRequests("", opening.client)
        self._checking: asyncio.Task[None] | None = None

    def request(
        self,
        method: str,
        params: bytes,
        *,
        progress_token: int | None = None,
        safe: bool = False,
        forwarded: Forwarded = NOTHING_FORWARDED,
    ) -> StreamableExchange:
        params, name = self._requests.complete(method, params, forwarded)
        fields: Fields = routing_fields(method, name)
        if forwarded.headers:
            fields += self.target.sendable(forwarded.headers)
        self._last_id += 1
        return self._begin(
            StreamableExchange(
                self, self._loop, self._last_id, method, params, progress_token, safe, fields
            )
        )

    async def notify(self, method: str, params: bytes) -> None:
        """Modern clients have nothing to tell over HTTP: a cancel is the end of a stream."""

    def respond(self, body: bytes) -> None:
        """Modern members send no requests: there is nothing to answer."""

    def hold_stream(self) -> None:
        """What a member says of itself comes with `subscriptions/listen`."""

    async def close(self) -> None:
        if not self._closed:
            self._abort_all()
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)

    def abandon(self) -> None:
        """End what is in flight at once, before the session was opened."""
        self._abort_all()

    # The exchanges call these.

    def deliver(self, message: Message, exchange: StreamableExchange) -> None:
        if message.method == "notifications/progress":
            if self._by_token.get(progress_token(message)) is exchange:
                exchange.push(message)
        elif message.method == "notifications/cancelled":
            if exchange.method == LISTEN:
                reason = "the member ended the subscription"
                exchange.fail(MemberFailure(Failure.RESET, reason, sent=True))
        elif exchange.method != LISTEN and message.method in OF_THE_SESSION:
            self.heard(message)
        else:
            exchange.push(message)

    def requested(self, message: Message, exchange: StreamableExchange) -> None:
        """Forbidden, and there is no way to say so: an answer would have to be a POST."""

    def refusal(self, exchange: StreamableExchange, answer: Message) -> MemberFailure | None:
        if not self.is_open:
            return None
        other_version = error_code(answer) == UNSUPPORTED_VERSION
        if not other_version and (exchange.method != DISCOVER or read_discovery(answer)):
            return None
        return self._end()

    def refused(self, failure: MemberFailure) -> None:
        if self.is_open and failure.status in _DOUBTFUL and self._checking is None:
            self._checking = self._loop.create_task(self._check())

    def abandoned(self, exchange: StreamableExchange, failure: MemberFailure) -> None:
        """The end of the request's connection says it."""

    # The connector calls these.

    async def discover(self, version: str) -> Message:
        """The member's answer. Raises `MemberFailure`."""
        self._speak(version)
        exchange = self.request(DISCOVER, b"", safe=True)
        try:
            message = await exchange.next()
            while not message.is_response:
                message = await exchange.next()
        finally:
            exchange.close()
        return message

    def adopt(self, handshake: Handshake) -> None:
        """Serve requests from now on."""
        self.handshake = handshake
        self.dials = False
        self._speak(handshake.protocol_version)
        self.target.settle()
        self.is_open = True

    def _speak(self, version: str) -> None:
        self._requests = ModernRequests(version, self._client)
        self.target.speak(((VERSION_HEADER, version),))

    async def _check(self) -> None:
        """Ask whether it is the member or the request that is not modern."""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self.discover(self.handshake.protocol_version)
        except TimeoutError:
            return
        except MemberFailure as failure:
            if failure.status in _DOUBTFUL:
                self._end()
        finally:
            self._checking = None

    def _end(self) -> MemberFailure:
        reason = "the member does not speak the protocol any more that it was opened with"
        failure = MemberFailure(Failure.SESSION_LOST, reason, sent=True)
        self._on_other_era()
        self.lose(failure)
        return failure
