"""One client request and its attempts: select, try, decide what follows, answer."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.outcomes import LOSSES, Failure
from mcpgroup_gateway.core.retries import CallHistory, FailedAttempt, GiveUp
from mcpgroup_gateway.core.selection import Refusal
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.serving.answers import between_eras, own_result
from mcpgroup_gateway.serving.attempts import Attempt, with_inputs
from mcpgroup_gateway.serving.catalogues import FIRST_CATALOGUE_SECONDS
from mcpgroup_gateway.serving.interruption import CallCancelled, Interruption
from mcpgroup_gateway.serving.relay import Relay
from mcpgroup_gateway.serving.slots import SelectAgain, wait_for_slot
from mcpgroup_gateway.wire.envelope import (
    MalformedMessage,
    Message,
    encode_error,
    encode_result,
    error_object,
)
from mcpgroup_gateway.wire.eras import to_modern_error
from mcpgroup_gateway.wire.refusals import (
    Denied,
    GatewayError,
    MemberLost,
    NoMember,
    Overloaded,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.core.group import Attempt as AttemptRecord
    from mcpgroup_gateway.core.retries import Move
    from mcpgroup_gateway.core.selection import Selection
    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.serving.interface import Caller
    from mcpgroup_gateway.serving.questions import Question
    from mcpgroup_gateway.serving.targets import Target

_log = logging.getLogger(__name__)


class ServedCall:
    """A request that members answer. Create it, `run` it once; `cancel` at any time."""

    __slots__ = (
        "_history",
        "_interruption",
        "_last_member",
        "_member_seconds",
        "_message",
        "_raw_id",
        "_revision",
        "_tool_failed",
        "_tries",
        "began",
        "caller",
        "context",
        "input_params",
        "method",
        "params",
        "paused_seconds",
        "relay",
        "target",
    )

    def __init__(self, context: Context, message: Message, caller: Caller) -> None:
        self.context = context
        self.caller = caller
        self.method = message.method or ""
        self.began = asyncio.get_running_loop().time()
        self.params = b""
        #: With what a modern member asked for, for the request that brings it; else empty.
        self.input_params = b""
        self.paused_seconds = 0.0  # that the client was waited for
        self.target: Target | None = None
        self.relay = Relay(caller, None)
        self._message = message
        self._raw_id = message.raw_id
        self._interruption = Interruption()
        self._revision = -1
        self._history = CallHistory()
        self._last_member: str | None = None
        self._tool_failed = False
        self._tries = 0
        self._member_seconds = 0.0

    # -- the interface of the front ------------------------------------------------------

    async def run(self) -> bytes | None:
        outcome, member, error = "internal", None, None
        context, caller = self.context, self.caller
        context.calls.add(self)
        try:
            response = await self._serve()
            if response.is_error:
                outcome = "rpc_error"
                return encode_error(self._raw_id, response.error)
            outcome = "tool_error" if self._tool_failed else "ok"
            return encode_result(self._raw_id, response.result)
        except CallCancelled:
            outcome = "cancelled"
            return None
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except GatewayError as fault:
            outcome, member, error = fault.outcome, fault.member, fault.text
            context.records.refused(fault)
            body = fault.error_object(context.name)
            return encode_error(self._raw_id, to_modern_error(body) if caller.modern else body)
        except MalformedMessage as fault:
            outcome, error = "invalid", fault.text
            return encode_error(self._raw_id, error_object(fault.code, fault.text))
        except Exception as fault:  # noqa: BLE001 - the caller gets an answer whatever is wrong
            _log.error("a call failed inside the gateway", exc_info=fault)
            error = "internal error"
            return encode_error(self._raw_id, error_object(-32603, "internal error"))
        finally:
            context.calls.discard(self)
            member = member or self._last_member
            seconds = asyncio.get_running_loop().time() - self.began
            context.records.request_finished(
                self,
                outcome=outcome,
                seconds=seconds,
                overhead=max(0.0, seconds - self._member_seconds - self.paused_seconds),
                attempts=self._tries,
                member=member,
                error=error,
            )

    def cancel(self, reason: str | None) -> None:
        self._interruption.cancel(reason or "cancelled by the client")

    def drain(self) -> None:
        """The replica ends now: the caller gets -31003 if a member may have run the call."""
        self._interruption.drain()

    # -- what an attempt asks ------------------------------------------------------------

    def is_safe_on(self, endpoint: Endpoint) -> bool:
        assert self.target is not None  # noqa: S101 - set before the first attempt
        return self.target.is_safe_on(endpoint.member)

    @property
    def may_run_again(self) -> bool:
        """Whether a further attempt is allowed after one that was sent."""
        target = self.target
        attempt = self._interruption.attempt
        if attempt is not None and attempt.asked:
            return False  # the client's answer belongs to this member's run of the call
        return target is not None and self._history.retries < self.context.retries.allowed(
            target.facts.route
        )

    def check_not_refused(self, endpoint: Endpoint) -> None:
        """Right before something is sent: was the call found to be poisonous meanwhile?

        Raises `Denied`.
        """
        target = self.target
        assert target is not None  # noqa: S101 - set before the first attempt
        if target.tool is None:
            return
        remaining = self.context.quarantine.remaining(
            target.tool, target.arguments, now=self.context.clock()
        )
        if remaining > 0:
            raise Denied(
                "suspectedPoison",
                f"{target.tool} with these arguments ended two members within a minute; "
                f"it is refused for {remaining:.0f} s",
                member=endpoint.member,
                retry_after=remaining,
            )

    async def send_question(self, question: Question) -> None:
        """To the stream of this call; where the client takes none, to any other of its session."""
        sink = self.caller.sink
        if sink is not None:
            await sink.send(question.request)
        elif not question.session.push_request(question.request):
            self.context.questions.end(question)

    # -- the attempts --------------------------------------------------------------------

    async def _serve(self) -> Message:
        context = self.context
        self._interruption.check()
        target = self.target = await self._find_target()
        if target.result is not None:
            return own_result(self, target.result)
        if target.progress_token is not None:
            self.relay = Relay(self.caller, target.progress_token)
        if target.returned is not None and target.returned.pending is not None:
            return await self._resume(target, target.returned.pending)
        error: GatewayError | None = None
        answer: Message | None = None
        while True:
            self._interruption.check()
            if self._revision != context.revision:
                target = await self._aim_again(target, error)
                if target.result is not None:
                    return own_result(self, target.result)
            try:
                record, endpoint = await self._select(target, error, answer)
            except SelectAgain:
                continue
            if record is None or endpoint is None:
                assert answer is not None  # noqa: S101 - otherwise _select raised
                return answer
            response, move = await self._try(target, record, endpoint)
            if response is not None:
                if not target.moves_on(response):
                    return response
                # Not found here: ask the next one; the first such answer is the caller's.
                answer = answer or response
                target.facts.tried.add(endpoint.id)
                continue
            assert move is not None  # noqa: S101 - _try gives one of the two or raises
            error = move.error
            self._history = move.history
            self._interruption.may_have_run = move.history.may_have_run
            target.facts.needs_safe = move.needs_safe
            target.facts.tried.add(endpoint.id)
            if move.delay > 0:
                await self._interruption.during(asyncio.sleep(move.delay))
            context.records.failover(self, endpoint, move, context.candidates_left(target))

    async def _aim_again(self, target: Target, error: GatewayError | None) -> Target:
        """The same request under a new configuration; what was tried stays tried.

        Raises `error`, what became of the attempt before, when nobody offers the name any more.
        """
        try:
            fresh = await self._find_target()
        except (GatewayError, MalformedMessage) as fault:
            raise error or fault from None
        fresh.facts.tried, fresh.facts.needs_safe = target.facts.tried, target.facts.needs_safe
        self.target = fresh
        return fresh

    async def _find_target(self) -> Target:
        """May wait for catalogues."""
        self._revision = self.context.revision
        finding = self.context.aiming.target(self._message, self.caller)
        target = await self._interruption.during(finding)
        self.params = target.params
        if target.inputs is not None:
            returned = target.returned = self.context.states.open(target, self.caller)
            if returned.pending is None:
                target.facts.pinned = returned.member
                self.input_params = with_inputs(
                    target.params, target.inputs.responses, returned.state
                )
        return target

    async def _resume(self, target: Target, pending: str) -> Message:
        """Go on with the call that waits for what the client brings. Raises `GatewayError`."""
        attempt = self.context.pending.take(pending)
        if attempt is None or target.inputs is None:
            raise MemberLost("lost", "the call that asked for this has ended", may_have_run=True)
        self._tries = 1
        response, _ = await self._until_answered(
            target, attempt, attempt.resume(self, target.inputs.responses)
        )
        assert response is not None  # noqa: S101 - what was asked moves nowhere: it raised
        return response

    async def _lists_came(self) -> bool:
        """Wait for a member that is up and whose lists are being read for the first time: it may
        offer the name, and nobody is answered from ignorance. False when there is none to wait for.
        """
        context = self.context
        left = self.began + FIRST_CATALOGUE_SECONDS - asyncio.get_running_loop().time()
        if left <= 0 or not context.is_reading_lists():
            return False
        return await self._interruption.during(context.catalogues.wait(left))

    async def _select(
        self, target: Target, error: GatewayError | None, answer: Message | None
    ) -> tuple[AttemptRecord | None, Endpoint | None]:
        context = self.context
        selection = context.selector.select(target.facts)
        if isinstance(selection, Refusal):
            if selection.waitable and answer is None:
                return await self._queue(target, selection, error)
            if answer is not None:
                return None, None
            if await self._lists_came():
                self._revision = -1  # aim again, with what is known now
                raise SelectAgain
            raise error or _error_of(selection)
        endpoint = selection.endpoint
        record = context.group.attempt_started(endpoint.id, safe=self.is_safe_on(endpoint))
        self._selected(selection)
        return record, endpoint

    async def _queue(
        self, target: Target, refusal: Refusal, error: GatewayError | None
    ) -> tuple[AttemptRecord, Endpoint]:
        """Wait for a slot; what became of an attempt before is the better error."""
        context = self.context
        try:
            record = await wait_for_slot(context, self, refusal, self._interruption)
        except Overloaded as full:
            raise error or full from None
        self._selected(context.selector.took_slot(target.facts, record.endpoint))
        return record, record.endpoint

    def _selected(self, selection: Selection) -> None:
        self._tries += 1
        if self._tries == 1:
            self.context.retries.first_attempt()
        self.context.records.selected(self, selection, self._tries)

    async def _try(
        self, target: Target, record: AttemptRecord, endpoint: Endpoint
    ) -> tuple[Message | None, Move | None]:
        """Run one attempt; one of the two values is None. Raises `GatewayError` at the end."""
        attempt = Attempt(self, endpoint, record)
        self.context.in_flight.enter(endpoint.id, attempt)
        return await self._until_answered(target, attempt, self._run_through_session_loss(attempt))

    async def _until_answered(
        self, target: Target, attempt: Attempt, running: Awaitable[Message]
    ) -> tuple[Message | None, Move | None]:
        context, endpoint, record = self.context, attempt.endpoint, attempt.record
        self._interruption.attempt = attempt
        self._last_member = endpoint.member
        seconds_before = attempt.upstream_seconds
        outcome = "cancelled"
        try:
            response = await running
            if attempt.parked:
                return response, None
            answer = self._between_eras(attempt, response)
            context.group.attempt_answered(record)
            outcome = "rpc_error" if response.is_error else "ok"
            self._tool_failed = target.answered(endpoint, response)
            if self._tool_failed:
                outcome = "tool_error"
            return answer, None
        except MemberFailure as failure:
            if failure.failure is Failure.CANCELLED:
                context.group.attempt_released(record)
                self._interruption.check(sent=attempt.sent, member=endpoint.member)
            outcome = _ATTEMPT_OUTCOMES.get(failure.failure, "member_failed")
            return None, self._after(target, attempt, failure)
        except BaseException:
            context.group.attempt_released(record)
            raise
        finally:
            self._interruption.attempt = None
            self._member_seconds += attempt.upstream_seconds - seconds_before
            if not attempt.parked:
                attempt.left(outcome)

    def _between_eras(self, attempt: Attempt, response: Message) -> Message:
        try:
            return between_eras(self, attempt, response)
        except MalformedMessage as fault:
            reason = f"the member's result cannot be used: {fault.text}"
            raise MemberFailure(Failure.MALFORMED, reason, sent=True) from fault

    async def _run_through_session_loss(self, attempt: Attempt) -> Message:
        """A lost session proves that the call was not run: open another, replay any method once."""
        try:
            return await attempt.run()
        except MemberFailure as failure:
            if failure.failure is not Failure.SESSION_LOST or attempt.upstream is None:
                raise
        self.context.forget_session(attempt.endpoint, attempt.upstream)
        return await attempt.run()

    def _after(self, target: Target, attempt: Attempt, failure: MemberFailure) -> Move:
        context, record, endpoint = self.context, attempt.record, attempt.endpoint
        shared = attempt.settings.shared
        context.group.attempt_failed(
            record,
            failure.failure,
            reason=failure.reason,
            retry_after=failure.retry_after,
            late=failure.late,
            own_process=failure.failure is Failure.EXIT and not shared,
        )
        if failure.failure in LOSSES and failure.sent and target.tool is not None:
            context.quarantine.record_loss(
                target.tool,
                target.arguments,
                endpoint=endpoint.id,
                began_at=record.began_at,
                now=context.clock(),
            )
        decision = context.retries.after(
            FailedAttempt(
                member=endpoint.member,
                failure=failure.failure,
                reason=failure.reason,
                sent=failure.sent or attempt.asked,
                safe=not attempt.asked and self.is_safe_on(endpoint),
                status=failure.status,
                retry_after=failure.retry_after,
            ),
            self._history,
            target.facts.route,
        )
        if isinstance(decision, GiveUp):
            if decision.exhausted:
                context.records.retries_exhausted()
            raise decision.error
        return decision


_ATTEMPT_OUTCOMES = {
    Failure.DEADLINE: "timeout",
    Failure.STALLED: "timeout",
    Failure.BUSY: "overloaded",
    Failure.EVICTED: "cancelled",
    Failure.CANCELLED: "cancelled",
}


def _error_of(refusal: Refusal) -> GatewayError:
    """What a call is told that no member was selected for."""
    if refusal.reason in ("busy", "concurrency"):
        return Overloaded(
            refusal.reason,
            "every member that offers this is busy",
            retryable=True,
            retry_after=refusal.retry_after,
        )
    return NoMember(
        refusal.reason,
        "no member can take this call now",
        retryable=True,
        retry_after=refusal.retry_after,
    )
