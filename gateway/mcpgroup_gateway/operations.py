"""What people may see and do through the admin port; implements `admin.view.ReplicaView`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpgroup_gateway.admin.view import ActionRefused, MemberNotFound
from mcpgroup_gateway.core.endpoint import State
from mcpgroup_gateway.serving.explanation import explain

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.serving.status import StatusReport
    from mcpgroup_gateway.serving.supervisor import Supervisor
    from mcpgroup_gateway.wire.protocol import Kind


class Operations:
    """Actions are those of this replica alone, like everything that it decides."""

    def __init__(
        self,
        context: Context,
        report: StatusReport,
        *,
        is_started: Callable[[], bool],
        is_ready: Callable[[], bool],
    ) -> None:
        self._context = context
        self._report = report
        self._is_started = is_started
        self._is_ready = is_ready

    def status(self) -> dict[str, object]:
        return self._report.status()

    def explain(self, kind: Kind, name: str, tenant: str | None) -> dict[str, object]:
        return explain(self._context, kind, name, tenant)

    def is_started(self) -> bool:
        return self._is_started()

    def is_ready(self) -> bool:
        return self._is_ready()

    def rebalance(self) -> None:
        self._context.group.rebalance()

    async def drain(self, member: str) -> None:
        for endpoint, _ in self._endpoints(member):
            if endpoint.dead:
                raise ActionRefused(f"member {member} is {endpoint.state.value}")
            self._context.group.drain(endpoint.id)

    async def resume(self, member: str) -> None:
        for endpoint, supervisor in self._endpoints(member):
            if endpoint.state not in (State.DRAINING, State.STOPPED):
                raise ActionRefused(f"member {member} is {endpoint.state.value}, not Draining")
            supervisor.resume()

    async def start(self, member: str) -> None:
        for endpoint, supervisor in self._endpoints(member):
            if endpoint.state in (State.READY, State.STARTING, State.DRAINING):
                raise ActionRefused(f"member {member} is {endpoint.state.value}")
            supervisor.start()

    async def stop(self, member: str) -> None:
        for endpoint, supervisor in self._endpoints(member):
            await supervisor.stop()
            self._context.upstreams.close_endpoint(endpoint.id)

    def _endpoints(self, member: str) -> list[tuple[Endpoint, Supervisor]]:
        found = [
            (supervisor.endpoint, supervisor)
            for supervisor in self._context.supervisors.values()
            if supervisor.endpoint.member == member
            and not supervisor.endpoint.staged
            and not supervisor.endpoint.leaving
        ]
        if not found:
            raise MemberNotFound(member)
        return found
