"""From one configuration to the next without losing a call (DESIGN section 8).

Members whose source is unchanged keep process, sessions, counters and rotation, also under a new
name. Replacements run beside what they replace ("staged") until `minHealthy` of them are ready or
`startupTimeoutSeconds` passed; then everything is swapped in one step. When none became ready, the
old set serves on, and the replacements are tried until one of them is, or the file changes again.

New values of Secrets are no change of the configuration: each member that runs on old ones is
replaced by itself, once its replacement is ready.
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
    from collections.abc import Callable, Iterable, Mapping

    from mcpgroup_api import McpServerGroup, McpServerGroupSpec, Member
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.serving.roster import Roster

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
#: Who is so reads Secrets when it starts again.
_READ_LATER = frozenset({State.COLD, State.FAILED, State.STOPPED})


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


@dataclass(slots=True)
class Rotated:
    """Members whose Secrets have new values: those that run on the old ones, and those that will
    read them when they start."""

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
        self._identities: dict[str, str] = {}
        #: Fingerprints of the values with which endpoints were made.
        self._values: dict[str, str | None] = {}

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
            await self._discard(endpoint for endpoint, _ in plan.staged)
            raise
        self._commit(plan)

    def take_secrets(self, fingerprints: Mapping[str, str | None]) -> Rotated:
        """Compare what serves with the values of Secrets that there are now, by member.

        A value that is missing says nothing. A member that is drained stays as it is until it is
        resumed.
        """
        rotated = Rotated()
        for endpoint in self._serving():
            old, value = self._values[endpoint.id], fingerprints.get(endpoint.member)
            if value in (None, old) or endpoint.state is State.DRAINING:
                continue
            if old is not None and endpoint.state not in _READ_LATER:
                rotated.running.append(endpoint.member)
                continue
            self._values[endpoint.id] = value
            rotated.waiting.add(endpoint.member)
        return rotated

    async def renew(self, names: Iterable[str], stuck: Callable[[str], None]) -> None:
        """Replace these members, each once its replacement is ready; returns when all are.

        Cancel it to give up those that are left.
        """
        spec = self.group.spec
        members = {member.name: member for member in spec.members}
        serving = {endpoint.member: endpoint for endpoint in self._serving()}
        waiting: list[tuple[Endpoint, Endpoint]] = []
        clock = asyncio.get_running_loop().time
        end: float | None = clock() + spec.health.startup_timeout_seconds
        try:
            waiting.extend((self._stage(members[name], spec), serving[name]) for name in names)
            while True:
                for pair in [pair for pair in waiting if self._is_ready(pair[0])]:
                    new, old = pair
                    waiting.remove(pair)
                    if old.state in (State.STOPPED, State.DRAINING):  # on purpose, meanwhile
                        await self._discard([new])
                    else:
                        self._replace(old, new, members)
                if not waiting:
                    return
                if end is not None and clock() >= end:
                    end = None
                    stuck(_reasons(new for new, _ in waiting))
                await asyncio.sleep(_POLL_SECONDS)
        except BaseException:
            await self._discard(new for new, _ in waiting)
            raise

    def _replace(self, old: Endpoint, new: Endpoint, members: Mapping[str, Member]) -> None:
        kept = [(each, members[each.member]) for each in self._serving() if each is not old]
        self._commit(Plan(self.group, kept, staged=[(new, members[new.member])], gone=[old]))

    def _serving(self) -> list[Endpoint]:
        return [
            endpoint
            for endpoint in self._context.group.endpoints.values()
            if not endpoint.staged and not endpoint.leaving
        ]

    def _stage(self, member: Member, spec: McpServerGroupSpec) -> Endpoint:
        return self._made(self._roster.add(member, spec, staged=True), member, spec)

    def _made(self, endpoint: Endpoint, member: Member, spec: McpServerGroupSpec) -> Endpoint:
        self._identities[endpoint.id] = source_identity(member, spec.limits)
        self._values[endpoint.id] = self._fingerprint(member)
        return endpoint

    def _forget(self, endpoint: Endpoint) -> None:
        self._identities.pop(endpoint.id, None)
        self._values.pop(endpoint.id, None)

    async def _discard(self, staged: Iterable[Endpoint]) -> None:
        staged = list(staged)
        for endpoint in staged:
            self._forget(endpoint)
        await asyncio.gather(*(self._roster.discard(endpoint) for endpoint in staged))

    def _plan(self, group: McpServerGroup) -> Plan:
        plan = Plan(group)
        serving = self._serving()
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
            plan.staged.append((self._stage(member, spec), member))
            plan.new.remove(member)
        if not plan.staged:
            return
        needed = min(spec.min_healthy, len(plan.staged))
        clock = asyncio.get_running_loop().time
        end = clock() + spec.health.startup_timeout_seconds
        told = False
        while True:
            ready = sum(self._is_ready(endpoint) for endpoint, _ in plan.staged)
            if ready >= needed or (ready and clock() >= end):
                return
            if clock() >= end and not told:
                told = True
                stuck(_reasons(endpoint for endpoint, _ in plan.staged))
            await asyncio.sleep(_POLL_SECONDS)

    def _is_ready(self, endpoint: Endpoint) -> bool:
        catalogue = self._context.supervisors[endpoint.id].catalogue
        return endpoint.state is State.READY and catalogue is not None

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
            self._made(endpoint, member, spec)
        filters = Filters(policy.filters, policy.member_filters)
        context.catalogues.reconfigure(policy, filters, context.provides, renamed)
        for member in plan.new:
            context.catalogues.forget(member.name)
        for endpoint, member in plan.staged:
            catalogue = context.supervisors[endpoint.id].catalogue
            if catalogue is None:
                context.catalogues.forget(member.name)
            else:
                context.catalogues.update(member.name, catalogue)
        for endpoint in plan.gone:
            self._forget(endpoint)
            roster.leave(endpoint, spec.drain.timeout_seconds)
        self.group = group
        self._applied(group)


def _reasons(endpoints: Iterable[Endpoint]) -> str:
    """Why they are not ready."""
    found = {endpoint.last_error for endpoint in endpoints if endpoint.last_error}
    return "; ".join(sorted(found)) or "none of the new members became ready"
