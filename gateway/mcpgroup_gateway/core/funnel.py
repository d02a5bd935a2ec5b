"""The hard steps of the selection: what takes an endpoint out for a call, whoever else is there.

The steps that prefer one candidate to another are in `preferences`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.endpoint import State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.core.policy import RoutePolicy
    from mcpgroup_gateway.wire.protocol import Kind


@dataclass(slots=True)
class CallFacts:
    """What the selection must know of a call.

    `kind` and `name` (bare) say what is called, None and "" for methods without a name. `members`
    are those that offer it in its definition (`Resolution.members`), None when any will do, and
    `safe_on` those on which the call may run twice (all for a read method). `pinned` is the member
    that a prefix names, `affinity` the one that the session is bound to. `tried` collects the ids
    of endpoints that this call was sent to; with `needs_safe` one of them may have run it.
    """

    kind: Kind | None = None
    name: str = ""
    members: Collection[str] | None = None
    safe_on: Collection[str] = frozenset()
    pinned: str | None = None
    affinity: str | None = None
    tenant: str | None = None
    hash_key: bytes = b""
    route: RoutePolicy | None = None
    needs_safe: bool = False
    tried: set[str] = field(default_factory=set)


class Drop(StrEnum):
    """Why an endpoint is no candidate, in the order of the steps; spelled for people."""

    STAGED = "is a replacement that does not serve yet"
    EVICTED = "is out of rotation"
    TRIED = "was tried by this call"
    FAILED = "has failed and waits for its next start"
    STOPPED = "is stopped"
    DRAINING = "is draining"
    BUSY = "said that it is busy"
    NOT_OFFERED = "does not offer this definition, or a filter hides it there"
    NOT_SAFE = "is not safe for a call that may have run"
    NOT_ROUTED = "is not in the route's members"
    NOT_TAGGED = "lacks resource tags that the route requires"
    NOT_PINNED = "is not the member that the prefix names"
    NOT_BOUND = "is not the member of the session"
    BREAKER = "has an open breaker"


#: The steps as `explain` shows them, with what drops an endpoint there.
STEPS: Mapping[str, tuple[Drop, ...]] = {
    "rotation": (Drop.STAGED, Drop.EVICTED),
    "tried": (Drop.TRIED,),
    "state": (Drop.FAILED, Drop.STOPPED, Drop.DRAINING),
    "busy": (Drop.BUSY,),
    "capability": (Drop.NOT_OFFERED, Drop.NOT_SAFE),
    "route": (Drop.NOT_ROUTED,),
    "requires": (Drop.NOT_TAGGED,),
    "pin": (Drop.NOT_PINNED, Drop.NOT_BOUND),
    "breaker": (Drop.BREAKER,),
}


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of the funnel: ids of the endpoints left behind it, and why others were dropped."""

    step: str
    left: tuple[str, ...]
    dropped: Mapping[str, str]


_DOWN = {State.FAILED: Drop.FAILED, State.STOPPED: Drop.STOPPED, State.DRAINING: Drop.DRAINING}


def state_drop(endpoint: Endpoint, facts: CallFacts, now: float) -> Drop | None:
    """What of the endpoint's own condition keeps the call away, the breaker left aside."""
    if endpoint.staged:
        return Drop.STAGED
    if not endpoint.rotation.in_rotation:
        return Drop.EVICTED
    if endpoint.id in facts.tried:
        return Drop.TRIED
    state = endpoint.state
    if state is not State.READY and state is not State.COLD and state is not State.STARTING:
        return _DOWN[state]
    if endpoint.busy_until > now:
        return Drop.BUSY
    return None


def match_drop(endpoint: Endpoint, facts: CallFacts) -> Drop | None:
    """What of the call keeps it away from the endpoint, in whatever condition that is."""
    member = endpoint.member
    if facts.members is not None and member not in facts.members:
        return Drop.NOT_OFFERED
    if facts.needs_safe and member not in facts.safe_on:
        return Drop.NOT_SAFE
    route = facts.route
    if route is not None:
        if route.members and member not in route.members:
            return Drop.NOT_ROUTED
        if route.requires and not route.requires <= endpoint.resource_tags:
            return Drop.NOT_TAGGED
    if facts.pinned is not None and member != facts.pinned:
        return Drop.NOT_PINNED
    if facts.affinity is not None and member != facts.affinity:
        return Drop.NOT_BOUND
    return None


def sift(
    endpoints: Iterable[Endpoint], facts: CallFacts, now: float
) -> tuple[list[Endpoint], list[Endpoint]]:
    """The candidates, and those that would be candidates but for their breaker.

    Runs for each attempt of each call: the common cases are spelled out before the functions that
    know all of them are asked.
    """
    candidates: list[Endpoint] = []
    blocked: list[Endpoint] = []
    members = facts.members
    tried = facts.tried
    is_special = (
        facts.needs_safe
        or facts.route is not None
        or facts.pinned is not None
        or facts.affinity is not None
    )
    for endpoint in endpoints:
        if members is not None and endpoint.member not in members:
            continue
        if is_special and match_drop(endpoint, facts) is not None:
            continue
        is_fine = (
            endpoint.state is State.READY
            and endpoint.rotation.in_rotation
            and endpoint.busy_until <= now
            and not endpoint.staged
            and endpoint.id not in tried
        )
        if not is_fine and state_drop(endpoint, facts, now) is not None:
            continue
        if endpoint.breaker.open_until is None or endpoint.breaker.allows(now):
            candidates.append(endpoint)
        else:
            blocked.append(endpoint)
    return candidates, blocked


def hard_steps(endpoints: Iterable[Endpoint], facts: CallFacts, now: float) -> list[StepReport]:
    """The hard steps one after the other; an endpoint is reported where it is dropped first."""
    left: list[tuple[Endpoint, set[Drop]]] = []
    for endpoint in endpoints:
        drops = {state_drop(endpoint, facts, now), match_drop(endpoint, facts)}
        if not endpoint.breaker.allows(now):
            drops.add(Drop.BREAKER)
        left.append((endpoint, {drop for drop in drops if drop is not None}))
    reports = []
    for step, reasons in STEPS.items():
        dropped = {
            endpoint.id: reason.value
            for endpoint, drops in left
            for reason in reasons
            if reason in drops
        }
        left = [(endpoint, drops) for endpoint, drops in left if endpoint.id not in dropped]
        ids = tuple(endpoint.id for endpoint, _ in left)
        reports.append(StepReport(step, ids, dropped))
    return reports
