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
from mcpgroup_gateway.serving.identity import Identity
from mcpgroup_gateway.serving.policies import group_policy, provides

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcpgroup_api import McpServerGroup, Member
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.serving.roster import Roster

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
#: Who is so reads Secrets when it starts again.
_READ_LATER = frozenset({State.COLD, State.FAILED, State.STOPPED})


@dataclass(slots=True)
class Plan:
    """`wanted` is by member, `kept` pairs endpoints with what their member is now, `staged` are the
    replacements."""

    group: McpServerGroup
    wanted: Mapping[str, Identity]
    kept: list[tuple[Endpoint, Member]] = field(default_factory=list)
    new: list[Member] = field(default_factory=list)
    staged: list[tuple[Endpoint, Member]] = field(default_factory=list)
    gone: list[Endpoint] = field(default_factory=list)

    @property
    def replaces(self) -> bool:
        """Something that serves goes, and something new comes: make before break."""
        return bool(self.gone) and bool(self.new)


@dataclass(slots=True)
class Rotated:
    """Members whose Secrets have new values: those that run on the old ones, and the others."""

    running: list[str] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)


class Rollout:
    """Owns the configuration that serves.

    `applied` is called after each swap, `stuck` once when no replacement became ready in time.
    `fingerprint` is that of the values of a member's Secrets, None while one is missing.
    """

    def __init__(
        self,
        context: Context,
        roster: Roster,
        group: McpServerGroup,
        *,
        fingerprint: Callable[[Member], str | None],
        applied: Callable[[McpServerGroup], None],
    ) -> None:
        self.group = group
        self._context = context
        self._roster = roster
        self._fingerprint = fingerprint
        self._applied = applied
        self._identities: dict[str, Identity] = {}

    def start(self) -> None:
        """The first configuration: nothing to compare with."""
        new = list(self.group.spec.members)
        self._commit(Plan(self.group, self._wanted(self.group), new=new))

    async def apply(self, group: McpServerGroup, stuck: Callable[[str], None]) -> None:
        """Serve `group`; returns when it does. Cancel it to give the change up."""
        plan = self._plan(group, await asyncio.to_thread(self._wanted, group))
        try:
            if plan.replaces:
                await self._prepare(plan, stuck)
        except BaseException:
            for endpoint, _ in plan.staged:
                self._identities.pop(endpoint.id, None)
            await asyncio.gather(*(self._roster.discard(endpoint) for endpoint, _ in plan.staged))
            raise
        self._commit(plan)

    def take_secrets(self, fingerprints: Mapping[str, str | None]) -> Rotated:
        """Compare what serves with the values of Secrets that there are now, by member.

        Those that are started later read them then; those that run are told until `apply` has
        replaced them.
        """
        rotated = Rotated()
        for endpoint in self._serving():
            identity, value = self._identities[endpoint.id], fingerprints.get(endpoint.member)
            if value is None or value == identity.secrets:
                continue
            if endpoint.state not in _READ_LATER and identity.secrets is not None:
                rotated.running.append(endpoint.member)
                continue
            self._identities[endpoint.id] = Identity(identity.source, value)
            rotated.waiting.add(endpoint.member)
        return rotated

    def _wanted(self, group: McpServerGroup) -> dict[str, Identity]:
        return {
            member.name: Identity(
                source_identity(member, group.spec.limits), self._fingerprint(member)
            )
            for member in group.spec.members
        }

    def _serving(self) -> list[Endpoint]:
        return [
            endpoint
            for endpoint in self._context.group.endpoints.values()
            if not endpoint.staged and not endpoint.leaving
        ]

    def _plan(self, group: McpServerGroup, wanted: Mapping[str, Identity]) -> Plan:
        plan = Plan(group, wanted)
        serving = self._serving()
        by_name = {endpoint.member: endpoint for endpoint in serving}
        taken: set[str] = set()
        unmatched: list[Member] = []
        for member in group.spec.members:
            endpoint = by_name.get(member.name)
            if endpoint is not None and self._is(endpoint, wanted[member.name]):
                plan.kept.append((endpoint, member))
                taken.add(endpoint.id)
            else:
                unmatched.append(member)
        for member in unmatched:  # the same source under a new name is the same member
            for endpoint in serving:
                if endpoint.id not in taken and self._is(endpoint, wanted[member.name]):
                    plan.kept.append((endpoint, member))
                    taken.add(endpoint.id)
                    break
            else:
                plan.new.append(member)
        plan.gone = [endpoint for endpoint in serving if endpoint.id not in taken]
        return plan

    def _is(self, endpoint: Endpoint, wanted: Identity) -> bool:
        return self._identities[endpoint.id].matches(wanted)

    async def _prepare(self, plan: Plan, stuck: Callable[[str], None]) -> None:
        """Start the replacements and wait until enough of them are ready."""
        spec = plan.group.spec
        colds = {e.member for e in plan.gone if e.state is State.COLD}
        cold_all = all(endpoint.state is State.COLD for endpoint in plan.gone)
        for member in list(plan.new):
            if cold_all or member.name in colds:
                continue  # what it replaces was not running either
            endpoint = self._roster.add(member, spec, staged=True)
            self._identities[endpoint.id] = plan.wanted[member.name]
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
            identity = self._identities[endpoint.id].updated(plan.wanted[member.name])
            self._identities[endpoint.id] = identity
        for endpoint, _ in plan.staged:
            context.group.promote(endpoint.id)
        colds = {endpoint.member for endpoint in plan.gone if endpoint.state is State.COLD}
        cold_all = all(endpoint.state is State.COLD for endpoint in plan.gone)
        for member in plan.new:
            cold = plan.replaces and (cold_all or member.name in colds)
            endpoint = roster.add(member, spec, start=spec.start_members and not cold)
            self._identities[endpoint.id] = plan.wanted[member.name]
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
