"""One supervisor an endpoint: it starts, probes, reads the catalogue and recovers.

The supervisor owns the endpoint's control session and is the only one that starts it; whoever
needs the endpoint waits on `ready()`. When to act comes from `Group.next_wait`, the one clock of
this loop; what an outcome means is decided in `core`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mcpgroup_gateway.core.endpoint import State
from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import MemberFailure, Opening
from mcpgroup_gateway.serving.catalogue_reader import CatalogueReader
from mcpgroup_gateway.serving.closing import Closing
from mcpgroup_gateway.serving.deadlines import LATE_SECONDS, Deadline
from mcpgroup_gateway.serving.session_waiters import SessionWaiters
from mcpgroup_gateway.wire.protocol import DISCOVER

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from mcpgroup_gateway.core.catalogue import MemberCatalogue
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.core.group import Group
    from mcpgroup_gateway.members.upstream import Connector, Upstream
    from mcpgroup_gateway.wire.envelope import Message

_log = logging.getLogger(__name__)

#: After a fault of ours: it must not spin, and it must not end the supervision.
_FAULT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds, from `health`, `stdio.idleSeconds`; 0 idle seconds means never."""

    probe_timeout: float
    startup_timeout: float
    idle: float


class SupervisorHooks(Protocol):
    """What a supervisor tells its surroundings."""

    def catalogue_read(self, endpoint: Endpoint, catalogue: MemberCatalogue) -> None: ...

    def member_message(self, endpoint: Endpoint, message: Message) -> None:
        """A notification of the control session that belongs to no exchange."""
        ...

    def control_opened(self, endpoint: Endpoint, control: Upstream) -> None: ...

    def idle_since(self, endpoint: Endpoint) -> float | None:
        """When the last upstream session or call of this endpoint ended; None while in use."""
        ...

    def probe_finished(self, endpoint: Endpoint, result: str) -> None: ...

    def start_finished(self, endpoint: Endpoint, result: str) -> None: ...

    def ended(self, endpoint: Endpoint, reason: str) -> None:
        """Its process or session ended; the word is one of `telemetry.words.EXIT_REASONS`."""
        ...


class Supervisor:
    """Life of one endpoint; `run` is its owner task."""

    def __init__(
        self,
        endpoint: Endpoint,
        connector: Connector,
        group: Group,
        timing: Timing,
        hooks: SupervisorHooks,
        *,
        start: bool,
    ) -> None:
        self.endpoint = endpoint
        self.connector = connector
        self.timing = timing
        self.control: Upstream | None = None
        self._reader = CatalogueReader(
            endpoint,
            control=lambda: None if self._session_lost else self.control,
            seconds=lambda: self.timing.startup_timeout,
            read=hooks.catalogue_read,
        )
        #: Set once the endpoint was tried for the first time, whatever came of it.
        self.tried = asyncio.Event()
        self._group = group
        self._hooks = hooks
        self._wanted = start
        self._stopping = False
        self._wake = asyncio.Event()
        self._probe_at_once = False
        self._waiters = SessionWaiters()
        self._operation: asyncio.Task[None] | None = None
        self._replaced = Closing()
        self._session_lost = False
        self._start_at_once = False
        self._last_failure: MemberFailure | None = None

    # -- what others ask -------------------------------------------------------------------

    def ready(self) -> Upstream | asyncio.Future[Upstream]:
        """The control session, or a future of it; asking starts a cold endpoint.

        The future fails with `MemberFailure` when the start fails. Cancel it to stop waiting.
        """
        control = self.control
        if control is not None and not self._session_lost:
            return control
        waiter = self._waiters.new()
        if self._stopping or self.endpoint.state in (State.STOPPED, State.FAILED):
            failure = self._last_failure
            waiter.set_exception(
                MemberFailure(
                    failure.failure if failure else Failure.REFUSED,
                    failure.reason if failure else "the member is stopped",
                    sent=False,
                )
            )
            return waiter
        self.want()
        return waiter

    def want(self) -> None:
        """Start the endpoint if it is cold."""
        self._wanted = True
        self._wake.set()

    def probe_now(self) -> None:
        self._probe_at_once = True
        self._wake.set()

    @property
    def catalogue(self) -> MemberCatalogue | None:
        """What the member's lists held when they were read last."""
        return self._reader.catalogue

    def refresh(self) -> None:
        """Read the catalogue again soon."""
        self._reader.refresh()

    async def stop(self) -> None:
        """Stop on purpose; it stays stopped until `start`."""
        self._wanted = False
        self._group.stop(self.endpoint.id)
        await self._abandon(MemberFailure(Failure.REFUSED, "the member was stopped", sent=False))

    def start(self) -> None:
        """Start now, whatever stopped it; also a failed one, before its next try is due."""
        self._group.resume(self.endpoint.id)
        self._last_failure = None
        self._start_at_once = self.endpoint.state is State.FAILED
        self.want()

    def resume(self) -> None:
        """End a drain or a stop."""
        self._group.resume(self.endpoint.id)
        self._last_failure = None
        self._wanted = True
        self._wake.set()

    def wake(self) -> None:
        """Look at the clock again: the policy or the state changed from outside."""
        self._wake.set()

    # -- the owner task --------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled. Closes the control session on the way out."""
        refresher = asyncio.create_task(self._reader.run(), name="catalogue")
        try:
            while True:
                try:
                    operation = self._due()
                    if operation is None:
                        await self._sleep()
                    else:
                        await self._perform(operation)
                except Exception:  # noqa: BLE001 - logged; the member stays supervised
                    _log.exception("member %s: the supervision failed", self.endpoint.member)
                    await asyncio.sleep(_FAULT_SECONDS)
        finally:
            self._stopping = True
            refresher.cancel()
            self._waiters.fail(MemberFailure(Failure.REFUSED, "the member was removed", sent=False))
            await asyncio.gather(refresher, return_exceptions=True)
            await self._close_control()
            await self._replaced.close()

    def _due(self) -> Coroutine[None, None, None] | None:
        state = self.endpoint.state
        if state is State.COLD and self._wanted:
            return self._start()
        if state is State.FAILED and self._start_at_once:
            return self._start()
        # A cold member is due when it went idle while it was out of rotation.
        if state in (State.FAILED, State.COLD) and self._group.next_wait(self.endpoint.id) <= 0:
            return self._start()
        if state in (State.READY, State.DRAINING):
            asked = self._probe_at_once or (self._session_lost and bool(self._waiters))
            if asked or self._group.next_wait(self.endpoint.id) <= 0:
                self._probe_at_once = False
                return self._probe()
            if state is State.READY and self._is_idle():
                return self._cool_down()
        return None

    async def _sleep(self) -> None:
        self._wake.clear()
        wait = self._group.next_wait(self.endpoint.id)
        if self.timing.idle and self.endpoint.state is State.READY:
            wait = min(wait, self.timing.idle)
        try:
            async with asyncio.timeout(min(wait, 3600.0)):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _perform(self, operation: Coroutine[None, None, None]) -> None:
        """Run one start or probe as a task of its own, so that `stop` can end it early."""
        task = asyncio.create_task(operation, name=f"member {self.endpoint.id}")
        self._operation = task
        try:
            await asyncio.wait({task})
        finally:
            self._operation = None
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.error("member %s: unexpected error", self.endpoint.member, exc_info=fault)
            if self.endpoint.state is State.STARTING:
                failure = MemberFailure(
                    Failure.START_FAILED, "an internal error of the gateway", sent=False
                )
                self._last_failure = failure
                self._group.start_failed(self.endpoint.id, failure.failure, reason=failure.reason)
                self._waiters.fail(failure)
            await asyncio.sleep(_FAULT_SECONDS)

    # -- operations ------------------------------------------------------------------------

    async def _start(self) -> None:
        endpoint, group = self.endpoint, self._group
        await self._close_control()
        self._start_at_once = False
        group.start_began(endpoint.id)
        try:
            control = await self._open_control(self.timing.startup_timeout)
        except MemberFailure as failure:
            self._last_failure = failure
            if endpoint.state is State.STARTING:  # else stopped or drained meanwhile
                group.start_failed(endpoint.id, failure.failure, reason=failure.reason)
                self._hooks.start_finished(endpoint, "failed")
            self._waiters.fail(failure)
            return
        finally:
            self.tried.set()
        if endpoint.state is not State.STARTING:
            await control.close()
            return
        self._adopt(control)
        group.start_succeeded(endpoint.id)
        self._hooks.start_finished(endpoint, "ok")
        self._waiters.serve(control)

    async def _open_control(self, deadline: float) -> Upstream:
        """Raises `MemberFailure`; `STALLED` when it was we who were late."""
        opened: list[Upstream] = []
        loop = asyncio.get_running_loop()
        due = loop.time() + deadline

        def on_lost(failure: MemberFailure) -> None:
            if opened and self.control is opened[0]:
                self._control_lost(failure)

        opening = Opening(
            on_notification=lambda message: self._hooks.member_message(self.endpoint, message),
            on_lost=on_lost,
            control=True,
        )
        try:
            control = await self.connector.open(opening, deadline)
        except MemberFailure as failure:
            if failure.late or loop.time() - due > LATE_SECONDS:
                text = "the gateway was stalled while the member started"
                raise MemberFailure(Failure.STALLED, text, sent=False) from failure
            raise
        opened.append(control)
        return control

    def _adopt(self, control: Upstream) -> None:
        self.control = control
        self._session_lost = False
        self._last_failure = None
        self._hooks.control_opened(self.endpoint, control)
        self._reader.refresh()

    def _control_lost(self, failure: MemberFailure) -> None:
        """The control session ended by itself; its exchanges fail right after this."""
        if failure.failure is Failure.SESSION_LOST:
            self._session_lost = True
        else:
            self.control = None
            self._last_failure = failure
            self._hooks.ended(self.endpoint, _exit_word(failure.reason))
            self._group.exited(self.endpoint.id, reason=failure.reason)
        self._wake.set()

    def forget_session(self, control: Upstream) -> None:
        """The member said that it does not know this control session; open another soon."""
        if self.control is control:
            self._session_lost = True
            self._wake.set()

    async def _probe(self) -> None:
        endpoint, group, control = self.endpoint, self._group, self.control
        if control is None or self._session_lost:
            await self._reopen()
            return
        probe = group.probe_started(endpoint.id)
        method = DISCOVER if control.handshake.modern else "ping"
        exchange = control.request(method, b"", safe=True)
        deadline = Deadline(
            self.timing.probe_timeout,
            exchange.abort,
            Failure.PROBE_TIMEOUT,
            f"no answer to {method} within {self.timing.probe_timeout:g} s",
        )
        try:
            while not (await exchange.next()).is_response:
                pass
        except MemberFailure as failure:
            if failure.failure is Failure.SESSION_LOST or control is not self.control:
                # Not the probe's verdict: the member restarted, or its exit was counted already.
                group.probe_failed(probe, Failure.CANCELLED, reason="the session ended")
                self.forget_session(control)
                # It is there again: open a session now, not after another wait of a recovery.
                self._probe_at_once = control is self.control
                return
            group.probe_failed(
                probe,
                failure.failure,
                reason=failure.reason,
                retry_after=failure.retry_after,
                late=failure.late,
            )
            timed_out = failure.failure is Failure.PROBE_TIMEOUT
            result = "ignored" if failure.late else "timeout" if timed_out else "failed"
            self._hooks.probe_finished(endpoint, result)
        except asyncio.CancelledError:
            group.probe_failed(probe, Failure.CANCELLED, reason="the probe was abandoned")
            raise
        else:
            group.probe_passed(probe)
            self._hooks.probe_finished(endpoint, "ok")
        finally:
            deadline.close()
            exchange.close()

    async def _reopen(self) -> None:
        """The member forgot our control session: opening another is a probe in itself.

        In rotation it may take no longer than any probe, so that a member that hangs here leaves
        in time; outside it has the time of a start.
        """
        endpoint, group, lost = self.endpoint, self._group, self.control
        is_in = endpoint.rotation.in_rotation
        deadline = self.timing.probe_timeout if is_in else self.timing.startup_timeout
        due = asyncio.get_running_loop().time() + deadline
        probe = group.probe_started(endpoint.id)
        try:
            control = await self._open_control(deadline)
        except MemberFailure as failure:
            self._last_failure = failure
            timed_out = asyncio.get_running_loop().time() >= due
            if timed_out and failure.failure is Failure.START_FAILED:
                failure.failure = Failure.PROBE_TIMEOUT  # soft while it works on calls
            group.probe_failed(probe, failure.failure, reason=failure.reason, late=failure.late)
            self._hooks.probe_finished(endpoint, "timeout" if timed_out else "failed")
            self._waiters.fail(failure)
            return
        except asyncio.CancelledError:
            group.probe_failed(probe, Failure.CANCELLED, reason="the probe was abandoned")
            raise
        self._adopt(control)
        group.probe_passed(probe)
        self._hooks.probe_finished(endpoint, "ok")
        self._waiters.serve(control)
        if lost is not None:
            self._replaced.when_idle(lost)

    async def _cool_down(self) -> None:
        """Stop an endpoint that nobody used for `idle` seconds; the next call starts it."""
        self._wanted = False
        self._group.cold(self.endpoint.id)
        await self._close_control()

    def _is_idle(self) -> bool:
        if not self.timing.idle:
            return False
        since = self._hooks.idle_since(self.endpoint)
        now = asyncio.get_running_loop().time()
        return since is not None and now - since >= self.timing.idle

    async def _abandon(self, failure: MemberFailure) -> None:
        if self._operation is not None:
            self._operation.cancel()
            await asyncio.gather(self._operation, return_exceptions=True)
        self._waiters.fail(failure)
        await self._close_control()
        self._wake.set()

    async def _close_control(self) -> None:
        control, self.control = self.control, None
        if control is not None:
            idle = self.endpoint.state is State.COLD
            self._hooks.ended(self.endpoint, "idle" if idle else "stopped")
            await control.close()


def _exit_word(reason: str) -> str:
    """`completed` for status 0, `signal`, or `error`; read from the member layer's sentence."""
    if "was ended by" in reason:
        return "signal"
    return "completed" if "status 0" in reason or "code 0" in reason else "error"
