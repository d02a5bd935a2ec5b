"""What the calls of one replica share, and how a request becomes a target.

The composition makes one `Context`; a reload changes its parts in place, within one step of the
event loop, so that a call sees one configuration or the other and never a mixture.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.canary import sees_canary
from mcpgroup_gateway.core.policy import RoutePolicy
from mcpgroup_gateway.core.quarantine import Quarantine
from mcpgroup_gateway.core.selection import CallFacts, Selection
from mcpgroup_gateway.core.waiting import WaitingRoom
from mcpgroup_gateway.serving.inflight import AttemptsInFlight
from mcpgroup_gateway.serving.targets import (
    NO_COMPLETION,
    NOT_HERE,
    NOT_KNOWN,
    RESOURCE_NOT_FOUND,
    Parameters,
    Target,
    target_of_method,
    target_of_name,
)
from mcpgroup_gateway.wire.envelope import (
    INVALID_PARAMS,
    MalformedMessage,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.protocol import CALL_METHODS, READ_METHODS, Kind
from mcpgroup_gateway.wire.refusals import NoMember, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mcpgroup_gateway.core.catalogue import Resolution, View
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.core.group import Attempt as AttemptRecord
    from mcpgroup_gateway.core.group import Group
    from mcpgroup_gateway.core.policy import GroupPolicy
    from mcpgroup_gateway.core.retries import Retries
    from mcpgroup_gateway.core.routes import Routes
    from mcpgroup_gateway.core.selection import Refusal, Selector
    from mcpgroup_gateway.members.upstream import Upstream
    from mcpgroup_gateway.serving.attempts import Attempt
    from mcpgroup_gateway.serving.calls import ServedCall
    from mcpgroup_gateway.serving.catalogues import Catalogues
    from mcpgroup_gateway.serving.interface import Caller
    from mcpgroup_gateway.serving.records import Records
    from mcpgroup_gateway.serving.supervisor import Supervisor
    from mcpgroup_gateway.serving.upstreams import UpstreamSessions
    from mcpgroup_gateway.wire.envelope import Message

#: Links to resources that a session is remembered to have been given.
_LINKS_A_SESSION: Final = 1_000
_LIST_CHANGES: Final = frozenset(
    f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")
)


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """What serving needs of a member's manifest; seconds."""

    shared: bool
    startup_timeout: float
    call_timeout: float
    max_call: float


class SelectAgain(Exception):
    """What a queued call waited for will not come."""


class SlotQueue:
    """Calls that wait for a member below its concurrency limit, with what wakes them."""

    def __init__(self) -> None:
        self._room: WaitingRoom[ServedCall] = WaitingRoom()
        self._wakers: dict[ServedCall, asyncio.Future[AttemptRecord]] = {}

    def enter(
        self, call: ServedCall, waiter: asyncio.Future[AttemptRecord], refusal: Refusal
    ) -> bool:
        if not self._room.enter(call, refusal.endpoints, slots=refusal.slots):
            return False
        self._wakers[call] = waiter
        return True

    def leave(self, call: ServedCall) -> None:
        self._room.leave(call)
        self._wakers.pop(call, None)

    def freed(self, endpoint_id: str) -> tuple[ServedCall, asyncio.Future[AttemptRecord]] | None:
        """The call that waited longest for this endpoint, taken out of the queue."""
        while (call := self._room.freed(endpoint_id)) is not None:
            waiter = self._wakers.pop(call)
            if not waiter.done():
                return call, waiter
        return None

    def look_again(self, endpoint_id: str) -> None:
        """The endpoint goes, or takes no call now: calls that wait for it alone select anew."""
        for call in self._room.stranded(endpoint_id):
            waiter = self._wakers.pop(call)
            if not waiter.done():
                waiter.set_exception(SelectAgain())

    def waiting_for(self, endpoint_id: str) -> int:
        return self._room.waiting_for(endpoint_id)


class Context:
    def __init__(
        self,
        *,
        policy: GroupPolicy,
        group: Group,
        selector: Selector,
        retries: Retries,
        routes: Routes,
        catalogues: Catalogues,
        upstreams: UpstreamSessions,
        records: Records,
        clock: Callable[[], float],
    ) -> None:
        self.policy = policy
        self.group = group
        self.selector = selector
        self.retries = retries
        self.routes = routes
        self.catalogues = catalogues
        self.upstreams = upstreams
        self.records = records
        self.clock = clock
        self.quarantine = Quarantine()
        #: Grows with each configuration; what a call found out before is looked up again.
        self.revision = 0
        self.queue = SlotQueue()
        #: Every call that runs, also one that waits for a slot or a catalogue.
        self.calls: set[ServedCall] = set()
        self.in_flight = AttemptsInFlight(self._may_move, clock)
        self.supervisors: dict[str, Supervisor] = {}
        self.settings: dict[str, MemberSettings] = {}
        self.provides: Mapping[str, Mapping[Kind, frozenset[str]]] = {}
        self._links: OrderedDict[tuple[str, str], str] = OrderedDict()

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def queue_seconds(self) -> float:
        return self.policy.queue.queue_milliseconds / 1000

    # -- members -------------------------------------------------------------------------

    def member(self, endpoint: Endpoint) -> MemberSettings:
        return self.settings[endpoint.id]

    def promises(self, member: str) -> bool:
        """Whether the manifest says what the member offers."""
        return any(self.provides.get(member, {}).values())

    def supervisor(self, endpoint: Endpoint) -> Supervisor:
        return self.supervisors[endpoint.id]

    def upstream(self, endpoint: Endpoint, caller: Caller) -> Upstream | asyncio.Future[Upstream]:
        """The upstream session that serves this caller on this endpoint, or a future of it."""
        supervisor = self.supervisors[endpoint.id]
        settings = self.settings[endpoint.id]
        if settings.shared:
            return supervisor.ready()
        if supervisor.control is None:
            supervisor.want()
        return self.upstreams.get(
            owner_of(caller),
            endpoint.id,
            supervisor.connector,
            min(settings.startup_timeout, settings.max_call),
        )

    def forget_session(self, endpoint: Endpoint, caller: Caller, upstream: Upstream) -> None:
        """The member does not know this upstream session any more."""
        if self.settings[endpoint.id].shared:
            self.supervisors[endpoint.id].forget_session(upstream)
        else:
            self.upstreams.forget(owner_of(caller), endpoint.id, upstream)

    def is_about_lists(self, endpoint: Endpoint, message: Message) -> bool:
        """Take a `list_changed` that came with a call; the gateway announces changes itself."""
        if message.method not in _LIST_CHANGES:
            return False
        self.supervisors[endpoint.id].refresh()
        return True

    def slot_freed(self, endpoint: Endpoint) -> None:
        """An attempt ended: hand its slot to the call that waited longest, before anybody else."""
        limit = endpoint.max_concurrent
        while endpoint.may_serve and (limit == 0 or endpoint.in_flight < limit):
            now = self.clock()
            if endpoint.busy_until > now or not endpoint.breaker.allows(now):
                # Who waits for it alone asks the selection: it lets one call try, or refuses.
                self.queue.look_again(endpoint.id)
                break
            waiting = self.queue.freed(endpoint.id)
            if waiting is None:
                break
            call, waiter = waiting
            waiter.set_result(
                self.group.attempt_started(endpoint.id, safe=call.is_safe_on(endpoint))
            )
        self.count_queued((endpoint.id,))

    def count_queued(self, endpoint_ids: Iterable[str]) -> None:
        """The queue of these endpoints changed."""
        for endpoint_id in endpoint_ids:
            endpoint = self.group.endpoints.get(endpoint_id)
            if endpoint is not None:
                endpoint.queued = self.queue.waiting_for(endpoint_id)

    def candidates_left(self, target: Target) -> int:
        outcome = self.selector.explain(target.facts).outcome
        return outcome.candidates if isinstance(outcome, Selection) else 0

    def _may_move(self, attempt: Attempt) -> bool:
        target = attempt.call.target
        if target is None or (attempt.sent and not attempt.call.may_run_again):
            return False
        facts = target.facts
        needed, facts.needs_safe = facts.needs_safe, facts.needs_safe or attempt.sent
        added = attempt.endpoint.id not in facts.tried
        facts.tried.add(attempt.endpoint.id)
        try:
            return self.candidates_left(target) > 0
        finally:
            facts.needs_safe = needed
            if added:
                facts.tried.discard(attempt.endpoint.id)

    # -- targets -------------------------------------------------------------------------

    def sees_canary(self, caller: Caller) -> bool:
        return sees_canary(self.policy.canary, self.policy.name, caller.tenant)

    def view(self, caller: Caller) -> View:
        return self.catalogues.view(canary=self.sees_canary(caller))

    async def target(self, message: Message, caller: Caller) -> Target:
        """What the request aims at. Raises `GatewayError` or `MalformedMessage`."""
        method = message.method or ""
        parameters = Parameters.read(message.params)
        if method == "tools/call":
            return await self._named(Kind.TOOL, method, parameters, caller)
        if method == "prompts/get":
            return await self._named(Kind.PROMPT, method, parameters, caller)
        if method == "resources/read":
            return await self._resource(parameters, caller)
        if method == "completion/complete":
            return self._completion(parameters, caller)
        facts = self._facts(method, None, "", None, caller)
        if facts.route is None:
            facts.route = RoutePolicy(members=self.policy.members)
        target = target_of_method(method, parameters, facts)
        target.moves_on_at = NOT_KNOWN
        return target

    async def _named(
        self, kind: Kind, method: str, parameters: Parameters, caller: Caller
    ) -> Target:
        name = parameters.string("name")
        resolution = self.view(caller).resolve(kind, name)
        if resolution is None:
            resolution = await self._resolve_when_known(kind, name, caller)
        facts = self._facts(method, kind, resolution.name, resolution, caller)
        target = target_of_name(kind, resolution, parameters, facts)
        if kind is Kind.TOOL:
            self._remember_links(target, caller)
        return target

    async def _resolve_when_known(self, kind: Kind, name: str, caller: Caller) -> Resolution:
        """Say "unknown" only when every member that may offer the name was asked."""
        clock = asyncio.get_running_loop().time
        end = clock() + self.policy.health.startup_timeout_seconds
        while missing := self.catalogues.missing():
            self.want(missing)
            if not await self.catalogues.wait(max(0.0, end - clock())):
                raise NoMember(
                    "starting",
                    f"{name} is not known yet: no catalogue of {', '.join(missing)}",
                    retryable=True,
                    retry_after=1.0,
                )
            resolution = self.view(caller).resolve(kind, name)
            if resolution is not None:
                return resolution
        word = "tool" if kind is Kind.TOOL else "prompt"
        raise Unknown(f"Unknown {word}: {name[:200]}")

    def is_reading_lists(self) -> bool:
        """Whether a member is up that may be selected once its lists were read."""
        missing = self.catalogues.missing()
        return bool(missing) and any(
            endpoint.member in missing and endpoint.ready and endpoint.may_serve
            for endpoint in self.group.endpoints.values()
        )

    def want(self, members: Iterable[str]) -> None:
        """Start the cold endpoints of these members."""
        wanted = set(members)
        for supervisor in self.supervisors.values():
            if supervisor.endpoint.member in wanted:
                supervisor.want()

    async def _resource(self, parameters: Parameters, caller: Caller) -> Target:
        uri = parameters.string("uri")
        view = self.view(caller)
        resolution = view.resolve(Kind.RESOURCE, uri)
        linked = self._linked(caller, uri)
        if linked not in view.resource_fallback(uri):  # what filters hide stays unknown
            linked = None
        members: tuple[str, ...]
        if resolution is None and linked is None:
            resolution = await self._uri_when_known(uri, caller)
        if resolution is not None:
            members = resolution.members
        elif linked is not None:
            members = (linked,)
        else:
            members = self.view(caller).resource_fallback(uri)
            if not members:
                raise Unknown(f"Resource not found: {uri[:200]}", code=RESOURCE_NOT_FOUND)
        facts = self._facts("resources/read", Kind.RESOURCE, uri, None, caller)
        facts.members = frozenset(members)
        target = target_of_method("resources/read", parameters, facts)
        if resolution is None and linked is None:
            target.moves_on_at = NOT_HERE
            if facts.route is None:
                facts.route = RoutePolicy(members=members)
        return target

    async def _uri_when_known(self, uri: str, caller: Caller) -> Resolution | None:
        """Look again as long as members without a catalogue may still list the URI."""
        clock = asyncio.get_running_loop().time
        end = clock() + self.policy.health.startup_timeout_seconds
        while missing := self.catalogues.missing():
            self.want(missing)
            if not await self.catalogues.wait(max(0.0, end - clock())):
                return None
            resolution = self.view(caller).resolve(Kind.RESOURCE, uri)
            if resolution is not None:
                return resolution
        return None

    def _completion(self, parameters: Parameters, caller: Caller) -> Target:
        reference = parse_object(parameters.members.get("ref", b""))
        kind_of_reference = parse_string(reference.get("type"))
        if kind_of_reference == "ref/prompt":
            kind, name = Kind.PROMPT, parse_string(reference.get("name"))
        elif kind_of_reference == "ref/resource":
            kind, name = Kind.TEMPLATE, parse_string(reference.get("uri"))
        else:
            raise MalformedMessage(INVALID_PARAMS, '"ref" must name a prompt or a resource')
        if name is None:
            raise MalformedMessage(INVALID_PARAMS, '"ref" has no name')
        view = self.view(caller)
        resolution = view.resolve(kind, name)
        if resolution is None and kind is Kind.TEMPLATE:
            resolution = view.resolve(Kind.RESOURCE, name)
        able = frozenset(view.with_capability("completions"))
        members = able.intersection(resolution.members) if resolution is not None else frozenset()
        facts = self._facts("completion/complete", kind, name, None, caller)
        facts.members = members
        if resolution is not None:
            facts.pinned = resolution.pinned
            if kind is Kind.PROMPT and resolution.name != name:
                parameters = parameters.with_reference(resolution.name)
        target = target_of_method("completion/complete", parameters, facts)
        if not members:
            target.result = NO_COMPLETION
        return target

    def _facts(
        self,
        method: str,
        kind: Kind | None,
        name: str,
        resolution: Resolution | None,
        caller: Caller,
    ) -> CallFacts:
        is_read = method in READ_METHODS or (method in CALL_METHODS and kind is not Kind.TOOL)
        return CallFacts(
            kind=kind,
            name=name,
            members=resolution.members if resolution is not None else None,
            safe_on=(
                self.policy.members
                if is_read
                else resolution.safe_on
                if resolution is not None
                else frozenset()
            ),
            pinned=resolution.pinned if resolution is not None else None,
            tenant=caller.tenant,
            hash_key=self._hash_key(caller),
            route=self.routes.find(method, kind, name),
        )

    def _hash_key(self, caller: Caller) -> bytes:
        if self.policy.strategy != "ConsistentHash":
            return b""
        key = self.policy.hashing.key
        if key == "Tenant":
            value = caller.tenant or ""
        elif key == "Header":
            value = caller.headers.get(self.policy.hashing.header or "", "")
        elif key == "Session" and caller.session is not None:
            value = caller.session.id
        else:
            value = caller.remote
        return value.encode("utf-8", "surrogateescape")

    # -- links to resources --------------------------------------------------------------

    def _remember_links(self, target: Target, caller: Caller) -> None:
        session = caller.session
        if session is None:
            return
        session_id = session.id

        def linked(endpoint: Endpoint, uris: list[str]) -> None:
            for uri in uris[:_LINKS_A_SESSION]:
                self._links[(session_id, uri)] = endpoint.member
                self._links.move_to_end((session_id, uri))
            while len(self._links) > 10 * _LINKS_A_SESSION:
                self._links.popitem(last=False)

        target.linked = linked

    def _linked(self, caller: Caller, uri: str) -> str | None:
        if caller.session is None:
            return None
        member = self._links.get((caller.session.id, uri))
        return member if member in self.policy.members else None


def owner_of(caller: Caller) -> str:
    """Whose upstream sessions a caller uses: its session's, else its tenant's."""
    if caller.session is not None:
        return caller.session.id
    return f"tenant:{caller.tenant}" if caller.tenant is not None else "anonymous"
