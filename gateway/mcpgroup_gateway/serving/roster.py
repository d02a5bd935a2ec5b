"""The endpoints that run: their supervisors and owner tasks, and what supervisors report."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.endpoint import State
from mcpgroup_gateway.core.events import (
    EvidenceHardened,
    ProbeDue,
    RotationChanged,
    StateChanged,
)
from mcpgroup_gateway.core.outcomes import Evidence
from mcpgroup_gateway.serving.context import MemberSettings
from mcpgroup_gateway.serving.policies import endpoint_policy
from mcpgroup_gateway.serving.supervisor import Supervisor, Timing

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_api import Isolation, Limits, McpServerGroupSpec, Member
    from mcpgroup_gateway.core.catalogue import MemberCatalogue
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.core.events import Event
    from mcpgroup_gateway.members.upstream import Connector, Upstream
    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.wire.envelope import Message

_log = logging.getLogger(__name__)

#: How long calls may take to end that a removed member is not waited for any more.
_ABANDONED_SECONDS = 1.0


class Roster:
    """Adds, settles and removes endpoints; owns one task for each."""

    def __init__(self, context: Context, connect: Callable[[Member, Limits], Connector]) -> None:
        self.context = context
        self._connect = connect
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._last_call: dict[str, float] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._discarding: dict[str, asyncio.Task[None]] = {}

    # -- endpoints -----------------------------------------------------------------------

    def add(
        self, member: Member, spec: McpServerGroupSpec, *, staged: bool = False, start: bool = True
    ) -> Endpoint:
        """A new endpoint with its supervisor running."""
        context = self.context
        group = context.group
        endpoint = group.add(group.new_id(member.name), endpoint_policy(member), staged=staged)
        supervisor = Supervisor(
            endpoint,
            self._connect(member, spec.limits),
            group,
            _timing(member, spec),
            self,
            start=start,
        )
        context.supervisors[endpoint.id] = supervisor
        context.settings[endpoint.id] = member_settings(member, spec)
        self._last_call[endpoint.id] = context.clock()
        task = asyncio.create_task(supervisor.run(), name=f"supervise {endpoint.id}")
        self._tasks[endpoint.id] = task
        return endpoint

    def update(self, endpoint: Endpoint, member: Member, spec: McpServerGroupSpec) -> None:
        """New settings for an endpoint whose source stays."""
        self.context.group.update(endpoint.id, endpoint_policy(member))
        self.context.settings[endpoint.id] = member_settings(member, spec)
        supervisor = self.context.supervisors[endpoint.id]
        supervisor.timing = _timing(member, spec)
        supervisor.wake()
        self.context.slot_freed(endpoint)

    def leave(self, endpoint: Endpoint, seconds: float) -> None:
        """No new calls; gone once its calls have ended, at the latest after `seconds`."""
        self.context.group.drain(endpoint.id, leaving=True)
        self.context.queue.look_again(endpoint.id)
        task = asyncio.create_task(self._leave(endpoint, seconds), name=f"drain {endpoint.id}")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def discard(self, endpoint: Endpoint) -> None:
        """Remove at once. Cancelling the caller cuts nothing short: processes take time to end."""
        await asyncio.shield(self._begin_discard(endpoint.id))

    def _begin_discard(self, endpoint_id: str) -> asyncio.Task[None]:
        task = self._discarding.get(endpoint_id)
        if task is None:
            task = asyncio.create_task(self._discard(endpoint_id), name=f"discard {endpoint_id}")
            self._discarding[endpoint_id] = task
            task.add_done_callback(lambda _: self._discarding.pop(endpoint_id, None))
        return task

    async def _discard(self, endpoint_id: str) -> None:
        context = self.context
        task = self._tasks.pop(endpoint_id)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        context.upstreams.close_endpoint(endpoint_id)
        context.listeners.close_endpoint(endpoint_id)
        supervisor = context.supervisors.pop(endpoint_id)
        context.settings.pop(endpoint_id, None)
        self._last_call.pop(endpoint_id, None)
        try:
            await supervisor.connector.close()
        except Exception:  # noqa: BLE001 - logged; it is gone for the group in any case
            _log.exception("member %s: closing failed", supervisor.endpoint.member)
        context.group.remove(endpoint_id)

    async def _leave(self, endpoint: Endpoint, seconds: float) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        while endpoint.in_flight and clock() < end:
            await self.context.in_flight.wait_until_idle(endpoint.id, end - clock())
        self.context.in_flight.abandon(endpoint.id, "its member was removed")
        await self.context.in_flight.wait_until_idle(endpoint.id, _ABANDONED_SECONDS)
        await self.discard(endpoint)

    async def close(self) -> None:
        """Stop everything: all members at once."""
        for task in self._leaving:
            task.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)
        every = {*self._tasks, *self._discarding}
        await asyncio.gather(*(self._begin_discard(endpoint_id) for endpoint_id in every))

    # -- what the core tells -------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Called after every change of the group, synchronously."""
        context = self.context
        if isinstance(event, RotationChanged):
            if event.to == "out":
                evidence = event.evidence or Evidence.HARD
                context.in_flight.evicted(
                    event.endpoint,
                    evidence,
                    event.reason,
                    process_ended=self._process_ended(event.endpoint),
                )
            else:
                context.slot_freed(context.group.endpoints[event.endpoint])
            self._look_again(event.endpoint)
            context.catalogues.wake()
            context.subscriptions.look_again()
        elif isinstance(event, EvidenceHardened):
            context.in_flight.evicted(
                event.endpoint,
                Evidence.HARD,
                event.reason,
                process_ended=self._process_ended(event.endpoint),
            )
        elif isinstance(event, StateChanged):
            endpoint = context.group.endpoints.get(event.endpoint)
            if endpoint is not None:
                context.slot_freed(endpoint)  # it may be back with all its slots free
            self._look_again(event.endpoint)
            context.catalogues.wake()
            context.subscriptions.look_again()
        elif isinstance(event, ProbeDue):
            self._look_again(event.endpoint)

    def _process_ended(self, endpoint_id: str) -> bool:
        """Whether the process or session that the endpoint's calls ran on is gone."""
        endpoint = self.context.group.endpoints.get(endpoint_id)
        settings = self.context.settings.get(endpoint_id)
        return (
            endpoint is not None
            and settings is not None
            and settings.shared
            and endpoint.state is State.FAILED
        )

    def _look_again(self, endpoint_id: str) -> None:
        supervisor = self.context.supervisors.get(endpoint_id)
        if supervisor is not None:
            supervisor.wake()

    # -- what supervisors tell (SupervisorHooks) -----------------------------------------

    def catalogue_read(self, endpoint: Endpoint, catalogue: MemberCatalogue) -> None:
        if not endpoint.staged and not endpoint.leaving:
            self.context.catalogues.update(endpoint.member, catalogue)

    def member_message(self, endpoint: Endpoint, message: Message) -> None:
        self.context.member_message(endpoint, message)

    def control_opened(self, endpoint: Endpoint, control: Upstream) -> None:
        self.context.listeners.open(endpoint, control)
        self.context.subscriptions.look_again()
        if self.context.settings[endpoint.id].shared:
            self.context.log_levels.set_shared(control)

    def idle_since(self, endpoint: Endpoint) -> float | None:
        if endpoint.in_flight or self.context.subscriptions.is_followed(endpoint.id):
            self._last_call[endpoint.id] = self.context.clock()
            return None
        used = self.context.upstreams.last_used(endpoint.id)
        ended = self.context.in_flight.last_ended(endpoint.id)
        return max(self._last_call[endpoint.id], used or 0.0, ended or 0.0)

    def probe_finished(self, endpoint: Endpoint, result: str) -> None:
        self.context.records.metrics.probed(endpoint.member, result)

    def start_finished(self, endpoint: Endpoint, result: str) -> None:
        self._last_call[endpoint.id] = self.context.clock()
        self.context.records.metrics.started(endpoint.member, result)

    def ended(self, endpoint: Endpoint, reason: str) -> None:
        self.context.records.metrics.exited(endpoint.member, reason)


def member_settings(member: Member, spec: McpServerGroupSpec) -> MemberSettings:
    isolation: Isolation = member.effective_isolation
    return MemberSettings(
        shared=isolation.value == "Shared",
        startup_timeout=spec.health.startup_timeout_seconds,
        call_timeout=member.call_timeout_seconds,
        max_call=member.max_call_seconds,
        forward_headers=member.http.forward_headers if member.http is not None else (),
    )


def _timing(member: Member, spec: McpServerGroupSpec) -> Timing:
    return Timing(
        probe_timeout=spec.health.timeout_seconds,
        startup_timeout=spec.health.startup_timeout_seconds,
        idle=member.stdio.idle_seconds if member.stdio is not None else 0,
    )


def is_awaited(context: Context, member: str) -> bool:
    """Whether a member without a catalogue may still get one: it is neither stopped nor evicted."""
    return any(
        endpoint.member == member
        and not endpoint.staged
        and not endpoint.leaving
        and endpoint.rotation.in_rotation
        and endpoint.state is not State.STOPPED
        and endpoint.state is not State.DRAINING
        for endpoint in context.group.endpoints.values()
    )
