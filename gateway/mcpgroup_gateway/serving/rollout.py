"""From one configuration to the next without losing a call (DESIGN section 8).

Members whose source is unchanged keep process, sessions, counters and rotation, also under a new
name. Replacements run beside what they replace ("staged") until `minHealthy` of them are ready or
`startupTimeoutSeconds` passed; then everything is swapped in one step. When none became ready, the
old set serves on, and the replacements are tried until one of them is, or the file changes again.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.endpoint import State
from mcpgroup_gateway.core.filters import Filters
from mcpgroup_gateway.core.routes import Routes
from mcpgroup_gateway.serving.connectors import source_identity
from mcpgroup_gateway.serving.policies import group_policy, provides

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_api import McpServerGroup, Member
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.serving.roster import Roster

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.05


@dataclass(slots=True)
class Plan:
    """`kept` pairs endpoints with what their member is now; `staged` are the replacements."""

    group: McpServerGroup
    kept: list[tuple[Endpoint, Member]] = field(default_factory=list)
    new: list[Member] = field(default_factory=list)
    staged: list[tuple[Endpoint, Member]] = field(default_factory=list)
    gone: list[Endpoint] = field(default_factory=list)

    @property
    def replaces(self) -> bool:
        """Something that serves goes, and something new comes: make before break."""
        return bool(self.gone) and bool(self.new)


class Rollout:
    """Owns the configuration that serves.

    `applied` is called after each swap, `stuck` once when no replacement became ready in time.
    """

    def __init__(
        self,
        context: Context,
        roster: Roster,
        group: McpServerGroup,
        *,
        applied: Callable[[McpServerGroup], None],
    ) -> None:
        self.group = group
        self._context = context
        self._roster = roster
        self._applied = applied
        self._identities: dict[str, str] = {}

    def start(self) -> None:
        """The first configuration: nothing to compare with."""
        plan = Plan(self.group, new=list(self.group.spec.members))
        self._commit(plan)

    async def apply(self, group: McpServerGroup, stuck: Callable[[str], None]) -> None:
        """Serve `group`; returns when it does. Cancel it to give the change up."""
        plan = self._plan(group)
        try:
            if plan.replaces:
                await self._prepare(plan, stuck)
        except BaseException:
            for endpoint, _ in plan.staged:
                self._identities.pop(endpoint.id, None)
            await asyncio.gather(*(self._roster.discard(endpoint) for endpoint, _ in plan.staged))
            raise
        self._commit(plan)

    def _plan(self, group: McpServerGroup) -> Plan:
        plan = Plan(group)
        serving = [
            endpoint
            for endpoint in self._context.group.endpoints.values()
            if not endpoint.staged and not endpoint.leaving
        ]
        by_name = {endpoint.member: endpoint for endpoint in serving}
        wanted = {m.name: source_identity(m, group.spec.limits) for m in group.spec.members}
        taken: set[str] = set()
        unmatched: list[Member] = []
        for member in group.spec.members:
            endpoint = by_name.get(member.name)
            if endpoint is not None and self._identities[endpoint.id] == wanted[member.name]:
                plan.kept.append((endpoint, member))
                taken.add(endpoint.id)
            else:
                unmatched.append(member)
        for member in unmatched:  # the same source under a new name is the same member
            for endpoint in serving:
                if (
                    endpoint.id not in taken
                    and self._identities[endpoint.id] == wanted[member.name]
                ):
                    plan.kept.append((endpoint, member))
                    taken.add(endpoint.id)
                    break
            else:
                plan.new.append(member)
        plan.gone = [endpoint for endpoint in serving if endpoint.id not in taken]
        return plan

    async def _prepare(self, plan: Plan, stuck: Callable[[str], None]) -> None:
        """Start the replacements and wait until enough of them are ready."""
        spec = plan.group.spec
        colds = {e.member for e in plan.gone if e.state is State.COLD}
        cold_all = all(endpoint.state is State.COLD for endpoint in plan.gone)
        for member in list(plan.new):
            if cold_all or member.name in colds:
                continue  # what it replaces was not running either
            endpoint = self._roster.add(member, spec, staged=True)
            self._identities[endpoint.id] = source_identity(member, spec.limits)
            plan.staged.append((endpoint, member))
            plan.new.remove(member)
        if not plan.staged:
            return
        needed = min(spec.min_healthy, len(plan.staged))
        clock = asyncio.get_running_loop().time
        end = clock() + spec.health.startup_timeout_seconds
        told = False
        while True:
            ready = sum(
                endpoint.state is State.READY and self._has_catalogue(endpoint)
                for endpoint, _ in plan.staged
            )
            if ready >= needed or (ready and clock() >= end):
                return
            if clock() >= end and not told:
                told = True
                reasons = {e.last_error for e, _ in plan.staged if e.last_error}
                stuck("; ".join(sorted(reasons)) or "none of the new members became ready")
            await asyncio.sleep(_POLL_SECONDS)

    def _has_catalogue(self, endpoint: Endpoint) -> bool:
        return self._context.supervisors[endpoint.id].catalogue is not None

    def _commit(self, plan: Plan) -> None:
        """One step of the event loop: no call sees half of it."""
        context, roster, group = self._context, self._roster, plan.group
        spec = group.spec
        policy = group_policy(group)
        renamed = {
            endpoint.member: member.name
            for endpoint, member in plan.kept
            if endpoint.member != member.name
        }
        context.revision += 1
        context.policy = policy
        context.provides = provides(spec)
        context.group.reconfigure(policy)
        context.selector.reconfigure(policy)
        context.retries.reconfigure(policy.retry)
        context.routes = Routes(policy.routes)
        for endpoint, member in plan.kept:
            roster.update(endpoint, member, spec)
            self._identities[endpoint.id] = source_identity(member, spec.limits)
        for endpoint, _ in plan.staged:
            context.group.promote(endpoint.id)
        colds = {endpoint.member for endpoint in plan.gone if endpoint.state is State.COLD}
        cold_all = all(endpoint.state is State.COLD for endpoint in plan.gone)
        for member in plan.new:
            cold = plan.replaces and (cold_all or member.name in colds)
            endpoint = roster.add(member, spec, start=spec.start_members and not cold)
            self._identities[endpoint.id] = source_identity(member, spec.limits)
        filters = Filters(policy.filters, policy.member_filters)
        context.catalogues.reconfigure(policy, filters, context.provides, renamed)
        replaced = {member.name for _, member in plan.staged} | {m.name for m in plan.new}
        for name in replaced:
            context.catalogues.forget(name)
        for endpoint, member in plan.staged:
            catalogue = context.supervisors[endpoint.id].catalogue
            if catalogue is not None:
                context.catalogues.update(member.name, catalogue)
        for endpoint in plan.gone:
            self._identities.pop(endpoint.id, None)
            roster.leave(endpoint, spec.drain.timeout_seconds)
        self.group = group
        self._applied(group)
