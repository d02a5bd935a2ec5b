"""What the calls of one replica share.

The composition makes one `Context`; a reload changes its parts in place, within one step of the
event loop, so that a call sees one configuration or the other and never a mixture.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from mcpgroup_gateway.core.canary import sees_canary
from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.core.quarantine import Quarantine
from mcpgroup_gateway.core.selection import Selection
from mcpgroup_gateway.members.lines import LineLog
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.serving.aiming import Aiming
from mcpgroup_gateway.serving.client_lists import ClientLists
from mcpgroup_gateway.serving.forwarding import TRACE_HEADERS, forwarded
from mcpgroup_gateway.serving.inflight import AttemptsInFlight
from mcpgroup_gateway.serving.listeners import Listeners
from mcpgroup_gateway.serving.log_levels import LogLevels
from mcpgroup_gateway.serving.pending import PendingCalls
from mcpgroup_gateway.serving.questions import Questions
from mcpgroup_gateway.serving.slots import SlotQueue
from mcpgroup_gateway.serving.states import RequestStates
from mcpgroup_gateway.serving.subscriptions import Subscriptions
from mcpgroup_gateway.wire.capabilities import canonical_capabilities, may_be_asked

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping

    from mcpgroup_gateway.core.catalogue import View
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.core.group import Group
    from mcpgroup_gateway.core.policy import GroupPolicy
    from mcpgroup_gateway.core.retries import Retries
    from mcpgroup_gateway.core.routes import Routes
    from mcpgroup_gateway.core.selection import Selector
    from mcpgroup_gateway.members.upstream import Forwarded, Upstream
    from mcpgroup_gateway.serving.attempts import Attempt
    from mcpgroup_gateway.serving.calls import ServedCall
    from mcpgroup_gateway.serving.catalogues import Catalogues
    from mcpgroup_gateway.serving.interface import Caller
    from mcpgroup_gateway.serving.local_calls import LocalCall
    from mcpgroup_gateway.serving.records import Records
    from mcpgroup_gateway.serving.sessions import Session
    from mcpgroup_gateway.serving.supervisor import Supervisor
    from mcpgroup_gateway.serving.targets import Target
    from mcpgroup_gateway.serving.upstreams import Reservation, UpstreamSessions
    from mcpgroup_gateway.wire.envelope import Message
    from mcpgroup_gateway.wire.protocol import Kind

_log = logging.getLogger(__name__)

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
    forward_headers: tuple[str, ...] = ()


class Claim(NamedTuple):
    """An upstream session for one attempt; one that is its alone is `reserved`, and released."""

    upstream: Upstream | asyncio.Future[Upstream]
    reserved: Reservation | None = None


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
        log_levels: Callable[[], Iterable[str]],
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
        self.calls: set[ServedCall | LocalCall] = set()
        self.in_flight = AttemptsInFlight(self._may_move, clock)
        self.supervisors: dict[str, Supervisor] = {}
        self.settings: dict[str, MemberSettings] = {}
        self.provides: Mapping[str, Mapping[Kind, frozenset[str]]] = {}
        self.aiming = Aiming(self)
        self.questions = Questions(self._input_seconds)
        self.pending = PendingCalls(self._input_seconds)
        self.states = RequestStates(policy.name, self._input_seconds)
        self.log_levels = LogLevels(log_levels)
        self._said: dict[str, LineLog] = {}  # by members outside of any call
        self.client_lists = ClientLists(self)
        self.subscriptions = Subscriptions(self)
        self.listeners = Listeners(
            self.subscriptions.followed_on, self.member_message, self._missed
        )

    @property
    def name(self) -> str:
        return self.policy.name

    def _input_seconds(self) -> float:
        return self.policy.input_seconds

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

    def claim(self, endpoint: Endpoint, caller: Caller) -> Claim:
        """The upstream session that serves this caller on this endpoint, or a future of it.

        Raises `MemberFailure` when the endpoint was removed, or the client's session has ended:
        nobody would close what is opened for it.
        """
        if caller.session is not None and caller.session.closed:
            raise MemberFailure(Failure.CANCELLED, "the session has ended", sent=False)
        supervisor, settings = self.supervisors.get(endpoint.id), self.settings.get(endpoint.id)
        if supervisor is None or settings is None:
            raise MemberFailure(Failure.REFUSED, "the member was removed", sent=False)
        control = supervisor.control
        modern = control is not None and control.handshake.modern
        asked = may_be_asked(caller.client.capabilities)
        live = bool(asked) and caller.session is not None
        if settings.shared or (modern and endpoint.source == "http" and not live):
            # A modern member over HTTP knows no sessions: each request says whose it is.
            return Claim(supervisor.ready())
        if control is None:
            supervisor.want()
        owner, tenant = owner_of(caller), None if caller.session is not None else tenant_of(caller)
        alone = bool(asked) and caller.session is None and not modern
        reserved = None
        if alone:
            # So that what the member asks belongs to a known call (DESIGN-MCP section 3).
            reserved = self.upstreams.reserve(owner, endpoint.id, tenant_of(caller))
            owner = reserved.owner
        upstream = self.upstreams.get(
            owner,
            endpoint.id,
            supervisor.connector,
            min(settings.startup_timeout, settings.max_call),
            client=caller.client,
            asked=bool(asked),
            with_session=live,
            shared_by=tenant,
        )
        return Claim(upstream, reserved)

    def forget_session(self, endpoint: Endpoint, upstream: Upstream) -> None:
        """The member does not know this upstream session any more."""
        if not self.upstreams.forget(endpoint.id, upstream):
            supervisor = self.supervisors.get(endpoint.id)
            if supervisor is not None:
                supervisor.forget_session(upstream)

    def forwarded(
        self, endpoint: Endpoint, call: ServedCall, upstream: Upstream, settings: MemberSettings
    ) -> Forwarded:
        return forwarded(
            call.caller,
            call.target,
            upstream,
            (*TRACE_HEADERS, *settings.forward_headers),
            over_http=endpoint.source == "http",
            shared=settings.shared,
        )

    def is_about_lists(
        self,
        endpoint: Endpoint,
        message: Message,
        upstream: Upstream | None = None,
        session: Session | None = None,
    ) -> bool:
        """Take a `list_changed` of a member; the gateway announces changes itself.

        `upstream` is the session of a client's own that it came in, if it did.
        """
        if message.method not in _LIST_CHANGES:
            return False
        supervisor = self.supervisors.get(endpoint.id)
        if supervisor is None:
            return True  # removed meanwhile
        if upstream is None or session is None or upstream is supervisor.control:
            supervisor.refresh()
        else:
            self.client_lists.changed_in(session, endpoint, upstream)
        return True

    def member_message(self, endpoint: Endpoint, message: Message) -> None:
        """What a member says of itself, in its control session."""
        if self.is_about_lists(endpoint, message):
            return
        if message.method == "notifications/resources/updated":
            self.subscriptions.updated(endpoint, None, message)
        elif message.method == "notifications/message":
            # No call of its own to go to: never to several clients (DESIGN-MCP section 4).
            said = self._said.get(endpoint.member)
            if said is None:
                prefix = f"member {endpoint.member}"
                said = self._said[endpoint.member] = LineLog(_log, logging.INFO, prefix, self.clock)
            said.write(bytes(message.params))

    def _missed(self, endpoint: Endpoint, control: Upstream) -> None:
        supervisor = self.supervisors.get(endpoint.id)
        if supervisor is not None:
            supervisor.refresh()
        self.subscriptions.missed_on(control)

    def release(self, claim: Claim) -> None:
        if claim.reserved is not None:
            self.upstreams.release(claim.reserved)

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
        if target is None or attempt.parked:
            return False
        if attempt.sent and not attempt.call.may_run_again:
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

    # -- catalogue -----------------------------------------------------------------------

    def sees_canary(self, caller: Caller) -> bool:
        return sees_canary(self.policy.canary, self.policy.name, caller.tenant)

    def view(self, caller: Caller) -> View:
        return self.catalogues.view(
            canary=self.sees_canary(caller),
            capabilities=canonical_capabilities(caller.client.capabilities),
            session_id=caller.session.id if caller.session is not None else None,
        )

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


def tenant_of(caller: Caller) -> str:
    """Whose sessions those are that callers without one share."""
    return f"tenant:{caller.tenant}" if caller.tenant is not None else "anonymous"


def owner_of(caller: Caller) -> str:
    """Whose upstream sessions a caller uses.

    Its session's, else those of its tenant, which callers share that declare the same.
    """
    if caller.session is not None:
        return caller.session.id
    tenant = tenant_of(caller)
    capabilities = canonical_capabilities(caller.client.capabilities)
    if capabilities == b"{}":
        return tenant
    return f"{tenant}:{hashlib.sha256(capabilities).hexdigest()}"
