"""The GET stream of a session over the old HTTP+SSE transport.

Source: MCP 2024-11-05, transports, "HTTP with SSE".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http1 import HttpCall, Signal
from mcpgroup_gateway.members.http_answers import EVENT_STREAM, failure_of, media_type
from mcpgroup_gateway.members.http_target import STREAM_FIELDS
from mcpgroup_gateway.members.sse_endpoint import endpoint_address
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.wire.sse import Event, EventParser

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from mcpgroup_gateway.members.http_address import Address
    from mcpgroup_gateway.members.http_connection import Head
    from mcpgroup_gateway.members.http_target import HttpTarget


class SseStream:
    """Reads the stream for as long as it lasts; `run` belongs to a task of the session.

    `on_event` gets each event behind the one that names the endpoint. An event over `limit` bytes
    is read over and comes as one that is not whole.
    """

    def __init__(
        self,
        target: HttpTarget,
        loop: asyncio.AbstractEventLoop,
        *,
        limit: int,
        on_event: Callable[[Event], None],
        on_end: Callable[[MemberFailure], None],
    ) -> None:
        self._target = target
        self._loop = loop
        self._limit = limit
        self._on_event = on_event
        self._on_end = on_end
        self._found = Signal(loop)
        self._endpoint: Address | None = None
        #: What ended the stream, None as long as it lasts.
        self.failure: MemberFailure | None = None

    async def endpoint(self) -> Address:
        """Where to post, once the member has said so. Raises `MemberFailure`."""
        while self._endpoint is None:
            if self.failure is not None:
                raise self.failure
            await self._found.wait()
        return self._endpoint

    async def run(self) -> None:
        """Returns when the stream has ended, after telling `on_end`."""
        signal = Signal(self._loop)
        # On a new connection: that proves that the member takes some.
        call = self._target.call("GET", STREAM_FIELDS, signal, fresh=True)
        try:
            self.failure = await self._read(call, signal)
        finally:
            call.close()
        self._found.wake()
        self._on_end(self.failure)

    async def _read(self, call: HttpCall, signal: Signal) -> MemberFailure:
        """Read to the end, and say what the end was."""
        while call.head is None:
            if call.failure is not None:
                return call.failure
            await signal.wait()
        refusal = _refusal(call.head)
        if refusal is not None:
            return refusal
        parser = EventParser(self._limit, skips=True)
        while True:
            data = call.take()
            if data:
                for event in parser.feed(data):
                    if self._endpoint is not None:
                        self._on_event(event)
                    elif event.event == "endpoint":
                        source = self._target.moved_to or self._target.address
                        try:
                            self._endpoint = endpoint_address(source, event.data)
                        except ValueError as fault:
                            return MemberFailure(Failure.START_FAILED, str(fault), sent=False)
                        self._found.wake()
            elif call.failure is not None:
                return call.failure
            elif call.ended:
                what = "the member ended it"
                if self._endpoint is None:
                    what = "the member's event stream ended without saying where to post"
                return MemberFailure(Failure.RESET, what, sent=True)
            else:
                await signal.wait()


def _refusal(head: Head) -> MemberFailure | None:
    """Why this is no event stream, None when it is one."""
    if head.status >= 300:
        return failure_of(head, in_session=False)
    if media_type(head) == EVENT_STREAM:
        return None
    reason = "the member's answer to GET is no event stream"
    return MemberFailure(Failure.MALFORMED, reason, sent=True, status=head.status)
