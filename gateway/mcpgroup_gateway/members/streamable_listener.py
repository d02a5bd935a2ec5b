"""The GET stream of a control session: what a member says when nobody asked.

Source: MCP 2025-11-25, transports, "listening for messages from the server".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http1 import HttpCall, Signal
from mcpgroup_gateway.members.http_answers import EVENT_STREAM, media_type
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.wire.envelope import MalformedMessage, parse_message
from mcpgroup_gateway.wire.sse import EventParser, EventTooLarge

if TYPE_CHECKING:
    import asyncio

    from mcpgroup_gateway.members.streamable_session import StreamableUpstream

#: Pauses between streams (seconds): doubled while none of them holds or brings anything.
SHORTEST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
#: The member offers no such stream.
_NOT_OFFERED: Final = frozenset({405, 501})
#: The session may be gone, or the member has no route for GET: only a ping tells.
_DOUBTFUL: Final = frozenset({400, 404})


class Listener:
    """Holds the stream for as long as the session lives; `run` belongs to a task of the session."""

    def __init__(
        self, session: StreamableUpstream, loop: asyncio.AbstractEventLoop, *, limit: int
    ) -> None:
        self._session = session
        self._loop = loop
        self._limit = limit
        self._last_id = ""
        self._asked_pause: float | None = None

    async def run(self) -> None:
        """Returns when the member has no GET stream or the session is lost."""
        pause = SHORTEST_PAUSE
        signal = Signal(self._loop)
        while True:
            began = self._loop.time()
            call = self._session.listen(signal, last_event_id=self._last_id)
            try:
                while call.head is None and call.failure is None:
                    await signal.wait()
                heard = False
                if call.head is not None:
                    status = call.head.status
                    if status in _NOT_OFFERED:
                        return
                    if status in _DOUBTFUL:
                        await self._check_the_session()
                        return
                    if status < 300 and media_type(call.head) == EVENT_STREAM:
                        heard = await self._read(call, signal)
            finally:
                call.close()
            if heard or self._loop.time() - began > LONGEST_PAUSE:
                pause = SHORTEST_PAUSE  # a stream that held is no reason to hold back
            await signal.wait_for(max(pause, min(self._asked_pause or 0.0, LONGEST_PAUSE)))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _read(self, call: HttpCall, signal: Signal) -> bool:
        """Read one stream to its end; True when it brought an event."""
        parser = EventParser(self._limit)
        parser.last_id = self._last_id
        heard = False
        while True:
            data = call.take()
            if data:
                try:
                    events = parser.feed(data)
                except EventTooLarge:
                    return heard  # start over behind it
                for event in events:
                    heard = True
                    self._last_id = event.id
                    if event.event in ("", "message") and event.data:
                        self._dispatch(event.data)
                self._asked_pause = parser.retry_seconds
            elif call.failure is not None or call.ended:
                return heard
            else:
                await signal.wait()

    def _dispatch(self, data: bytes) -> None:
        try:
            message = parse_message(data)
        except MalformedMessage:
            return  # it proves nothing about calls; probes and calls judge the member
        if message.is_request:
            self._session.requested(message, None)
        elif message.is_notification:
            self._session.deliver(message, None)

    async def _check_the_session(self) -> None:
        """Ask within the session: its loss is reported on the way, any other end is not ours."""
        exchange = self._session.request("ping", b"", safe=True)
        try:
            await exchange.next()
        except MemberFailure as failure:
            if failure.failure is Failure.SESSION_LOST:
                return
        finally:
            exchange.close()
