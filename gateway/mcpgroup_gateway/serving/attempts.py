"""One attempt: one request on one endpoint, from acquiring a session to its response.

A member may ask the client on the way. A client with a session is asked at once (`questions`); one
without is answered `input_required`, and the attempt is *parked* until it comes back.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.serving.answers import input_required_of
from mcpgroup_gateway.serving.deadlines import Deadline
from mcpgroup_gateway.serving.inputs import Inputs, declined
from mcpgroup_gateway.serving.questions import response_of
from mcpgroup_gateway.wire.capabilities import may_be_asked
from mcpgroup_gateway.wire.envelope import (
    METHOD_NOT_FOUND,
    MalformedMessage,
    Message,
    Raw,
    encode_error,
    encode_json,
    encode_object,
    encode_result,
    error_object,
    parse_object,
)
from mcpgroup_gateway.wire.eras import InputRequired, read_input_required
from mcpgroup_gateway.wire.protocol import INPUT_REQUIRED_METHODS

if TYPE_CHECKING:
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.core.group import Attempt as AttemptRecord
    from mcpgroup_gateway.members.upstream import Exchange, Upstream
    from mcpgroup_gateway.serving.calls import ServedCall
    from mcpgroup_gateway.serving.context import Claim
    from mcpgroup_gateway.serving.questions import Question

#: Progress tokens towards members are ours and unique in the process, so that a late or invented
#: one can never meet another call (DESIGN-MCP section 4).
_tokens = count(1)
#: How often a modern member may ask before it answers a legacy client (DESIGN-MCP section 6).
MAX_ROUNDS: Final = 10


class Attempt:
    """Runs once; `resume` goes on with a parked one. `abort` may be called at any time.

    `sent` tells whether the member may have seen the request; `upstream_seconds` how long the
    member was waited for. `left` is called once, by whoever ends it.
    """

    __slots__ = (
        "_aborted",
        "_claim",
        "_deadline",
        "_exchange",
        "_inputs",
        "_questions",
        "_waiter",
        "asked",
        "asks",
        "call",
        "endpoint",
        "parked",
        "record",
        "settings",
        "upstream",
        "upstream_seconds",
    )

    def __init__(self, call: ServedCall, endpoint: Endpoint, record: AttemptRecord) -> None:
        self.call = call
        self.endpoint = endpoint
        self.record = record
        #: As they were when it began: the member may be removed before it ends.
        self.settings = call.context.member(endpoint)
        self.upstream: Upstream | None = None
        self.upstream_seconds = 0.0
        #: The member asked the client: from then on nobody else can go on with the call.
        self.asked = False
        #: What its last response wants to know first.
        self.asks: InputRequired | None = None
        #: Requests of the member that a client without a session was told of, by key.
        self.parked: dict[str, Message] = {}
        self._claim: Claim | None = None
        self._deadline: Deadline | None = None
        self._exchange: Exchange | None = None
        self._inputs: Inputs | None = None
        self._questions: list[Question] = []
        self._waiter: asyncio.Future[Upstream] | asyncio.Future[None] | None = None
        self._aborted: MemberFailure | None = None

    @property
    def sent(self) -> bool:
        return self._exchange is not None and self._exchange.sent

    def abort(self, failure: MemberFailure) -> None:
        """End the attempt with `failure`; the member is told when it has the request."""
        if self.parked:  # nobody waits for it who could notice
            self.call.context.pending.drop(self, failure.reason)
            return
        self._aborted = failure
        failure.sent = self._inputs is not None or self.sent
        if self._inputs is not None:
            self._inputs.fail(failure)
        elif self._exchange is not None:
            self._exchange.abort(failure)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(failure)

    async def run(self) -> Message:
        """The response; `parked` is not empty when it asks for input. Raises `MemberFailure`."""
        call = self.call
        self._exchange = None  # of a run that ended with its session
        upstream = await self._open()
        if call.caller.modern:
            await self._raise_level(upstream)
        params = call.params
        if call.input_params and upstream.handshake.modern:
            params = call.input_params
        for _ in range(MAX_ROUNDS):
            self._begin(upstream, params)
            response = await self._pull()
            asks = self._asks(upstream, response)
            if asks is None or call.caller.modern:
                return response
            self._check_aborted()  # it came too late for the exchange
            answer = await self._ask_for(asks)
            if isinstance(answer, Message):
                return answer
            params = with_inputs(call.params, answer, asks.state)
        reason = f"the member asked the client more than {MAX_ROUNDS} times"
        raise MemberFailure(Failure.MALFORMED, reason, sent=True)

    async def resume(self, call: ServedCall, responses: dict[str, Raw]) -> Message:
        """Go on for the request with which the client came back; as `run`."""
        upstream, deadline = self.upstream, self._deadline
        assert upstream is not None  # noqa: S101 - a parked attempt has a session
        assert deadline is not None  # noqa: S101 - and a deadline, which stands still
        self.call = call
        parked, self.parked = self.parked, {}
        for key, request in parked.items():
            if key in responses:
                upstream.respond(encode_result(request.raw_id, responses[key]))
            else:
                self.parked[key] = request
        if self.parked:
            return input_required_of(self)
        paused = deadline.paused_seconds
        deadline.resume()
        self.record.waited += deadline.paused_seconds - paused
        return await self._pull()

    @property
    def parked_bytes(self) -> int:
        return sum(len(request.params) for request in self.parked.values())

    def abandon(self, reason: str) -> None:
        """End a parked attempt that nobody comes back for."""
        upstream, exchange = self.upstream, self._exchange
        if upstream is not None:
            for request in self.parked.values():
                upstream.respond(response_of(request.method or "", request.raw_id, None))
        self.parked = {}
        if exchange is not None:
            exchange.abort(MemberFailure(Failure.CANCELLED, reason, sent=exchange.sent))
            self._close(exchange)
        self.call.context.group.attempt_released(self.record)
        self.left("cancelled")

    def left(self, outcome: str) -> None:
        """The attempt is over: its slot is free."""
        context, endpoint = self.call.context, self.endpoint
        self._release()
        context.in_flight.leave(endpoint.id, self)
        context.records.attempt_finished(endpoint, outcome, self.upstream_seconds)
        context.slot_freed(endpoint)

    def pause_clock(self) -> Deadline | None:
        """The member waits for the client: the deadlines of now stand still until `resume`."""
        if self._deadline is not None:
            self._deadline.pause()
        return self._deadline

    # -- the session ---------------------------------------------------------------------

    async def _open(self) -> Upstream:
        call = self.call
        self._release()
        claim = self._claim = call.context.claim(self.endpoint, call.caller)
        upstream = claim.upstream
        if isinstance(upstream, asyncio.Future):
            upstream = await self._acquire(upstream, self.settings.startup_timeout)
        self.upstream = upstream
        self._check_aborted()
        call.check_not_refused(self.endpoint)
        return upstream

    def _check_aborted(self) -> None:
        if self._aborted is not None:
            raise self._aborted

    async def _raise_level(self, upstream: Upstream) -> None:
        call = self.call
        raised = self._waiter = call.context.log_levels.raise_for(upstream, call.caller.log_level)
        if raised is None:
            return
        try:
            await raised
        finally:
            raised.cancel()
            self._waiter = None

    def _release(self) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            self.call.context.release(claim)

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

    # -- the exchange --------------------------------------------------------------------

    def _begin(self, upstream: Upstream, params: bytes) -> None:
        call = self.call
        member = self.settings
        token = None if call.relay.token is None else next(_tokens)
        exchange = self._exchange = upstream.request(
            call.method,
            params if token is None else with_progress_token(params, token),
            progress_token=token,
            safe=call.is_safe_on(self.endpoint),
            forwarded=call.context.forwarded(self.endpoint, call, upstream, member),
        )
        now = asyncio.get_running_loop().time()
        self._deadline = Deadline(
            member.call_timeout,
            exchange.abort,
            Failure.DEADLINE,
            f"no answer within {member.call_timeout:g} s",
            limit=max(0.0, call.began + call.paused_seconds + member.max_call - now),
        )

    async def _pull(self) -> Message:
        """Relay what the member sends until its response, or until the client must be asked."""
        exchange, deadline = self._exchange, self._deadline
        assert exchange is not None  # noqa: S101 - `_begin` was called
        assert deadline is not None  # noqa: S101
        call = self.call
        context = call.context
        loop = asyncio.get_running_loop()
        began, paused = loop.time(), deadline.paused_seconds
        try:
            while True:
                message = await exchange.next()
                if message.is_response:
                    return message
                deadline.touch()
                context.group.attempt_heard(self.record)
                if message.is_request:
                    if await self._requested(message, deadline):
                        return input_required_of(self)
                elif not context.is_about_lists(
                    self.endpoint, message, self.upstream, call.caller.session
                ):
                    await call.relay.notification(message)
        except asyncio.CancelledError:
            exchange.abort(MemberFailure(Failure.CANCELLED, "the caller left", sent=exchange.sent))
            raise
        finally:
            if not self.parked:
                self._close(exchange)
            waited = deadline.paused_seconds - paused
            self.upstream_seconds += max(0.0, loop.time() - began - waited)
            self.record.waited += waited
            call.paused_seconds += waited

    def _close(self, exchange: Exchange) -> None:
        if self._deadline is not None:
            self._deadline.close()
        for question in tuple(self._questions):
            self.call.context.questions.end(question)
        exchange.close()

    # -- what the member asks of the client ----------------------------------------------

    async def _requested(self, message: Message, deadline: Deadline) -> bool:
        """Pass a legacy member's request on; True when the client's request ends with it."""
        upstream, caller = self.upstream, self.call.caller
        assert upstream is not None  # noqa: S101 - it sent the request
        method = message.method or ""
        if method not in may_be_asked(caller.client.capabilities):
            fault = error_object(METHOD_NOT_FOUND, "the client has no such capability")
            upstream.respond(encode_error(message.raw_id, fault))
            return False
        self.asked = True
        if caller.modern:
            self.parked[f"input-{len(self.parked) + 1}"] = message
            deadline.pause()
            return True
        raw_id = message.raw_id
        question: Question | None = None

        def done(answer: Message | None) -> None:
            deadline.resume()
            if question is not None:
                self._questions.remove(question)
            upstream.respond(response_of(method, raw_id, answer))

        if caller.session is not None:
            question = self.call.context.questions.ask(
                caller.session,
                method,
                bytes(message.params),
                done,
                upstream=upstream,
                raw_id=raw_id,
            )
        if question is None:
            upstream.respond(response_of(method, raw_id, None))
            return False
        deadline.pause()
        self._questions.append(question)
        await self.call.send_question(question)
        return False

    def _asks(self, upstream: Upstream, response: Message) -> InputRequired | None:
        """What a modern member wants to know before it answers."""
        if (
            response.is_error
            or not upstream.handshake.modern
            or self.call.method not in INPUT_REQUIRED_METHODS
        ):
            return None
        try:
            asks = read_input_required(response.result)
        except MalformedMessage as fault:
            reason = f"the member's input_required result is malformed: {fault.text}"
            raise MemberFailure(Failure.MALFORMED, reason, sent=True) from fault
        if asks is not None:
            self.asked = True
        self.asks = asks
        return asks

    async def _ask_for(self, asks: InputRequired) -> dict[str, Raw] | Message:
        """The responses of a client with a session, or the end of the call that one of them is."""
        call = self.call
        session = call.caller.session
        if session is None:
            return declined()
        began = asyncio.get_running_loop().time()
        inputs = self._inputs = Inputs(call.context.questions, session, call.caller.client)
        try:
            return await inputs.collect(asks.requests, call.send_question)
        finally:
            self._inputs = None
            inputs.close()
            waited = asyncio.get_running_loop().time() - began
            call.paused_seconds += waited
            self.record.waited += waited


def with_progress_token(params: bytes, token: int) -> bytes:
    """The same params with our own progress token in `_meta`."""
    members = parse_object(params)
    meta = parse_object(members.get("_meta", Raw(b"")))
    meta["progressToken"] = Raw(b"%d" % token)
    members["_meta"] = Raw(encode_object(meta))
    return encode_object(members)


def with_inputs(params: bytes, responses: dict[str, Raw], state: str | None) -> bytes:
    """The params of the request that brings a modern member what it asked for."""
    members = parse_object(params)
    members["inputResponses"] = Raw(encode_object(responses))
    if state is not None:
        members["requestState"] = Raw(encode_json(state))
    return encode_object(members)
