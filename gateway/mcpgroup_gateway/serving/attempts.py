"""One attempt: one request on one endpoint, from acquiring a session to its response."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.serving.deadlines import Deadline
from mcpgroup_gateway.wire.envelope import Raw, encode_object, parse_object

if TYPE_CHECKING:
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.core.group import Attempt as AttemptRecord
    from mcpgroup_gateway.members.upstream import Exchange, Upstream
    from mcpgroup_gateway.serving.calls import ServedCall
    from mcpgroup_gateway.wire.envelope import Message

#: Progress tokens towards members are ours and unique in the process, so that a late or invented
#: one can never meet another call (DESIGN-MCP section 4).
_tokens = count(1)


class Attempt:
    """Runs once. `abort` may be called at any time, from any callback of the loop.

    `sent` tells whether the member may have seen the request; `upstream_seconds` how long the
    member was waited for.
    """

    __slots__ = (
        "_aborted",
        "_exchange",
        "_waiter",
        "call",
        "endpoint",
        "record",
        "upstream",
        "upstream_seconds",
    )

    def __init__(self, call: ServedCall, endpoint: Endpoint, record: AttemptRecord) -> None:
        self.call = call
        self.endpoint = endpoint
        self.record = record
        self.upstream: Upstream | None = None
        self.upstream_seconds = 0.0
        self._exchange: Exchange | None = None
        self._waiter: asyncio.Future[Upstream] | None = None
        self._aborted: MemberFailure | None = None

    @property
    def sent(self) -> bool:
        return self._exchange is not None and self._exchange.sent

    def abort(self, failure: MemberFailure) -> None:
        """End the attempt with `failure`; the member is told when it has the request."""
        if self._exchange is not None:
            failure.sent = self._exchange.sent
            self._exchange.abort(failure)
            return
        failure.sent = False
        self._aborted = failure
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(failure)

    async def run(self) -> Message:
        """The response. Raises `MemberFailure`."""
        call = self.call
        member = call.context.member(self.endpoint)
        upstream = call.context.upstream(self.endpoint, call.caller)
        if isinstance(upstream, asyncio.Future):
            upstream = await self._acquire(upstream, member.startup_timeout)
        self.upstream = upstream
        if self._aborted is not None:
            raise self._aborted
        call.check_not_refused(self.endpoint)
        loop = asyncio.get_running_loop()
        began = loop.time()
        token = None if call.relay.token is None else next(_tokens)
        exchange = upstream.request(
            call.method,
            call.params if token is None else with_progress_token(call.params, token),
            progress_token=token,
            safe=call.is_safe_on(self.endpoint),
        )
        self._exchange = exchange
        deadline = Deadline(
            member.call_timeout,
            exchange.abort,
            Failure.DEADLINE,
            f"no answer within {member.call_timeout:g} s",
            limit=max(0.0, call.began + member.max_call - began),
        )
        context = call.context
        try:
            while True:
                message = await exchange.next()
                if message.is_response:
                    return message
                deadline.touch()
                context.group.attempt_heard(self.record)
                if not context.is_about_lists(self.endpoint, message):
                    await call.relay.notification(message)
        except asyncio.CancelledError:
            exchange.abort(MemberFailure(Failure.CANCELLED, "the caller left", sent=exchange.sent))
            raise
        finally:
            deadline.close()
            self.upstream_seconds += loop.time() - began
            exchange.close()

    async def _acquire(self, waiter: asyncio.Future[Upstream], seconds: float) -> Upstream:
        """Wait for a session that is being opened; the opening has its own deadline too."""
        self._waiter = waiter
        began = asyncio.get_running_loop().time()
        deadline = Deadline(
            seconds, self.abort, Failure.CONNECT_TIMEOUT, "no session in time", sent=False
        )
        try:
            return await waiter
        finally:
            deadline.close()
            waiter.cancel()
            self._waiter = None
            self.upstream_seconds += asyncio.get_running_loop().time() - began


def with_progress_token(params: bytes, token: int) -> bytes:
    """The same params with our own progress token in `_meta`."""
    members = parse_object(params)
    meta = parse_object(members.get("_meta", Raw(b"")))
    meta["progressToken"] = Raw(b"%d" % token)
    members["_meta"] = Raw(encode_object(meta))
    return encode_object(members)
