"""Which clients follow which resources, on which member, and what it takes to keep it so.

Followers are client sessions (`resources/subscribe`) and listening modern clients. A session that
has an upstream session of its own with a legacy member is subscribed there; all others share the
member's control session, on which each URI is subscribed once. What is lost with a session, a
process or a member is taken up again, and the followers are told once that something may have
changed (DESIGN-MCP section 4).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.core.policy import RoutePolicy
from mcpgroup_gateway.core.selection import CallFacts, Refusal
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.serving.following import Refused, SessionFollower, ask
from mcpgroup_gateway.serving.places import Places, Subscription
from mcpgroup_gateway.wire.envelope import (
    MalformedMessage,
    Raw,
    encode_json,
    encode_object,
    error_object,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.protocol import RESOURCE_NOT_FOUND, SUBSCRIPTION_KEY, Kind
from mcpgroup_gateway.wire.refusals import GatewayError, NoMember, Unknown

if TYPE_CHECKING:
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.members.upstream import Upstream
    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.serving.following import Follower
    from mcpgroup_gateway.serving.interface import Caller
    from mcpgroup_gateway.wire.envelope import Message

_log = logging.getLogger(__name__)

#: What a member may take to answer a subscription, and the pause before it is tried again.
_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
#: URIs that one client session may follow.
_MAX_OF_ONE: Final = 1_000
#: What is passed on of an update besides its URI; it is kept for each client that reads slowly.
_MAX_UPDATE_BYTES: Final = 16 * 1024
#: What may wait to be given up, and so many at once; of what is beyond members tell us in vain.
_MAX_LEFT: Final = 10_000
_AT_ONCE: Final = 64


class Subscriptions:
    """`run` is the owner task that takes up again what was lost."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._of: dict[Follower, dict[str, Subscription]] = {}
        self._sessions: dict[str, SessionFollower] = {}
        self._places = Places()
        #: What followers left behind, which may have to be given up.
        self._left: dict[tuple[Upstream, str], None] = {}
        self._broken = asyncio.Event()

    def __len__(self) -> int:
        return sum(len(followed) for followed in self._of.values())

    # -- what clients ask ----------------------------------------------------------------

    async def subscribe(self, caller: Caller, uri: str) -> bytes | None:
        """Follow a URI for a client session; the member's error object when it refuses.

        Raises `GatewayError`.
        """
        assert caller.session is not None  # noqa: S101 - the front demands one
        follower = self._sessions.get(caller.session.id) or SessionFollower(caller)
        followed = self._of.get(follower, {})
        if uri in followed:
            return None
        if len(followed) >= _MAX_OF_ONE:
            raise Unknown(f"a session may subscribe to {_MAX_OF_ONE} resources")
        subscription = Subscription(follower, uri)
        try:
            await self._take_up(subscription, set())
        except Refused as refused:
            return refused.error
        self._hold(subscription, ended=caller.session.closed)
        return None

    def _hold(self, subscription: Subscription, *, ended: bool) -> None:
        """Remember what was subscribed to; `ended` when its follower has gone meanwhile."""
        follower = subscription.follower
        if not ended and isinstance(follower, SessionFollower):
            session = follower.caller.session
            if session is not None:
                follower = subscription.follower = self._sessions.setdefault(session.id, follower)
        followed = self._of.setdefault(follower, {})
        twin = followed.pop(subscription.uri, None)  # asked for twice at once
        if twin is not None:
            self._let_go(twin)
        followed[subscription.uri] = subscription
        if ended:
            self.leave(follower)

    async def unsubscribe(self, caller: Caller, uri: str) -> None:
        assert caller.session is not None  # noqa: S101 - the front demands one
        follower = self._sessions.get(caller.session.id)
        subscription = self._of.get(follower, {}).pop(uri, None) if follower else None
        upstream = None if subscription is None else subscription.upstream
        if subscription is not None and upstream is not None:
            self._places.take(subscription)
            await self._give_up(upstream, uri)

    async def follow(self, follower: Follower, uris: list[str]) -> list[str]:
        """Follow URIs for a listening client; those of them that some member can be asked for."""
        followed = []
        silent: set[str] = set()
        for uri in uris:
            subscription = Subscription(follower, uri)
            try:
                await self._take_up(subscription, silent)
            except (Refused, GatewayError):
                continue
            self._hold(subscription, ended=False)
            followed.append(uri)
        return followed

    def leave(self, follower: Follower) -> None:
        """A follower has gone. What only it followed is given up by the owner task."""
        for subscription in self._of.pop(follower, {}).values():
            self._let_go(subscription)

    def _let_go(self, subscription: Subscription) -> None:
        upstream = subscription.upstream
        self._places.take(subscription)
        if upstream is not None and len(self._left) < _MAX_LEFT:
            self._left[(upstream, subscription.uri)] = None
        self._broken.set()

    def session_ended(self, session_id: str) -> None:
        follower = self._sessions.pop(session_id, None)
        if follower is not None:
            self.leave(follower)

    # -- what members say ----------------------------------------------------------------

    def updated(self, endpoint: Endpoint, upstream: Upstream | None, message: Message) -> None:
        """A member said that a resource changed; `upstream` is None for its control session."""
        try:
            params = parse_object(message.params)
        except MalformedMessage:
            return
        uri = parse_string(params.get("uri"))
        if uri is None or len(uri) > _MAX_UPDATE_BYTES:
            return
        if len(message.params) > _MAX_UPDATE_BYTES:
            params = _named(uri)
        if "_meta" in params:
            try:
                meta = parse_object(params["_meta"])
            except MalformedMessage:
                meta = {}
            meta.pop(SUBSCRIPTION_KEY.decode(), None)  # of our own listen
            if meta:
                params["_meta"] = Raw(encode_object(meta))
            else:
                del params["_meta"]
        where = upstream
        if where is None:
            supervisor = self._context.supervisors.get(endpoint.id)
            where = None if supervisor is None else supervisor.control
        if where is None:
            return
        for follower in self._places.followers(where, uri):
            follower.notify_updated(uri, params)

    def missed_on(self, control: Upstream) -> None:
        """Changes on this control session may have gone unheard: tell its followers once."""
        for subscription in self._places.on(control):
            subscription.follower.notify_updated(subscription.uri, _named(subscription.uri))

    def followed_on(self, control: Upstream) -> list[str]:
        """The URIs that a control session must follow, sorted."""
        return self._places.uris(control)

    def held(self) -> set[Upstream]:
        """The sessions in which something is followed."""
        return self._places.sessions()

    def is_followed(self, endpoint_id: str) -> bool:
        return any(
            subscription.endpoint_id == endpoint_id
            for followed in self._of.values()
            for subscription in followed.values()
        )

    def look_again(self) -> None:
        """A session was lost or opened, or a member moved."""
        if self._of:
            self._broken.set()

    # -- the owner task ------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        pause: float | None = None
        while True:
            try:
                async with asyncio.timeout(pause):
                    await self._broken.wait()
            except TimeoutError:
                pass  # try again what did not go
            self._broken.clear()
            try:
                await self._give_up_what_was_left()
                whole = await self._repair()
            except Exception:  # noqa: BLE001 - logged; the others are still to be kept
                _log.exception("taking up subscriptions failed")
                whole = False
            self._context.listeners.look_again()
            pause = None if whole else min(2 * (pause or _PAUSE_SECONDS / 2), _LONGEST_PAUSE)

    async def _repair(self) -> bool:
        """Take up what does not hold; False when something of it could not be."""
        whole = True
        silent: set[str] = set()
        for follower, followed in tuple(self._of.items()):
            for uri, subscription in tuple(followed.items()):
                if self._holds(subscription) or self._of.get(follower, {}).get(uri) is not (
                    subscription
                ):
                    continue
                try:
                    await self._take_up(subscription, silent)
                except (Refused, GatewayError):
                    whole = False
                    continue
                if self._of.get(follower, {}).get(uri) is not subscription:
                    self._let_go(subscription)  # the follower left meanwhile
                    continue
                # Something may have been missed meanwhile.
                follower.notify_updated(uri, _named(uri))
        return whole

    def _holds(self, subscription: Subscription) -> bool:
        upstream = subscription.upstream
        if upstream is None or upstream.lost:
            return False
        endpoint = self._context.group.endpoints.get(subscription.endpoint_id)
        if endpoint is None or not endpoint.may_serve:
            return False
        supervisor = self._context.supervisors.get(endpoint.id)
        control = None if supervisor is None else supervisor.control
        own = subscription.follower.caller.session
        return upstream is control or (
            own is not None and upstream in self._context.upstreams.peek(own.id)
        )

    async def _take_up(self, subscription: Subscription, silent: set[str]) -> None:
        """Subscribe at a member that has the resource. Raises `GatewayError` or `Refused`.

        Endpoints in `silent` are passed by; those that give no answer are added to them.
        """
        context, caller = self._context, subscription.follower.caller
        members, known = context.aiming.followed_at(subscription.uri, caller)
        facts = CallFacts(
            kind=Kind.RESOURCE,
            name=subscription.uri,
            members=frozenset(members),
            safe_on=context.policy.members,
            pinned=None,
            tenant=caller.tenant,
            hash_key=b"",
            route=None if known else RoutePolicy(members=members),
        )
        facts.tried |= silent
        first: Refused | None = None
        failed: NoMember | None = None
        while True:
            selection = context.selector.select(facts)
            if isinstance(selection, Refusal):
                text = "no member can follow this resource now"
                raise first or failed or NoMember(selection.reason, text, retryable=True)
            try:
                await self._take_up_at(selection.endpoint, subscription)
            except Refused as refused:
                if known:
                    raise
                # Nobody lists it: ask the next one, the first refusal is the caller's.
                first = first or refused
                facts.tried.add(selection.endpoint.id)
            except NoMember as fault:
                failed = fault
                silent.add(selection.endpoint.id)
                facts.tried.add(selection.endpoint.id)
            else:
                return

    async def _take_up_at(self, endpoint: Endpoint, subscription: Subscription) -> None:
        caller = subscription.follower.caller
        try:
            async with asyncio.timeout(_SECONDS):
                upstream = await self._upstream(endpoint, caller)
                async with self._places.turn(upstream, subscription.uri):
                    await self._settle(endpoint, upstream, subscription)
        except (MemberFailure, TimeoutError) as fault:
            reason = fault.reason if isinstance(fault, MemberFailure) else "no answer in time"
            raise NoMember("subscribe", f"{endpoint.member}: {reason}", retryable=True) from fault

    async def _settle(
        self, endpoint: Endpoint, upstream: Upstream, subscription: Subscription
    ) -> None:
        """Follow the URI in this session, where it may be followed already.

        It is put down first, so that nothing that the member says meanwhile is missed.
        """
        uri = subscription.uri
        known = self._places.holds(upstream, uri)
        self._places.put(subscription, endpoint.id, upstream)
        if known:
            return
        try:
            if upstream.handshake.modern:
                if not await self._context.listeners.covers(endpoint, upstream, uri):
                    text = f"Resource not found: {uri[:200]}"
                    raise Refused(error_object(RESOURCE_NOT_FOUND, text))
            else:
                upstream.hold_stream()
                await ask(upstream, "resources/subscribe", uri)
        except BaseException:
            self._let_go(subscription)  # the member may have taken it
            raise

    async def _upstream(self, endpoint: Endpoint, caller: Caller) -> Upstream:
        context = self._context
        supervisor = context.supervisors.get(endpoint.id)
        if supervisor is None:
            raise MemberFailure(Failure.REFUSED, "the member was removed", sent=False)
        ready = supervisor.ready()
        control = await ready if isinstance(ready, asyncio.Future) else ready
        settings = context.settings.get(endpoint.id)
        if caller.session is None or settings is None or settings.shared:
            return control
        if control.handshake.modern:
            return control  # what we listen in; all clients see the same of it
        own = context.claim(endpoint, caller).upstream
        return await own if isinstance(own, asyncio.Future) else own

    async def _give_up_what_was_left(self) -> None:
        while self._left:
            some = list(self._left)[:_AT_ONCE]
            for each in some:
                del self._left[each]
            await asyncio.gather(*(self._give_up(upstream, uri) for upstream, uri in some))

    async def _give_up(self, upstream: Upstream, uri: str) -> None:
        """Unsubscribe where nobody else follows the URI; what becomes of it does not matter."""
        if upstream.lost:
            return
        if upstream.handshake.modern:
            self._context.listeners.look_again()
            return
        try:
            async with asyncio.timeout(_SECONDS), self._places.turn(upstream, uri):
                if not self._places.holds(upstream, uri):
                    await ask(upstream, "resources/unsubscribe", uri)
        except (MemberFailure, TimeoutError, Refused):
            return


def _named(uri: str) -> dict[str, Raw]:
    return {"uri": Raw(encode_json(uri))}
