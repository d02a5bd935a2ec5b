"""The soft steps of the selection: which of several candidates come first.

They prefer and do not exclude: when all the preferred endpoints are at their limit of concurrent
calls, the next best take the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.endpoint import State
from mcpgroup_gateway.core.funnel import CallFacts, StepReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.core.policy import LocalityPolicy

# A rank is one number: half-open breakers last, then readiness, then place. A group has at most 64
# members, so that a place in a route never reaches the next state.
_A_STATE: Final = 64
_HALF_OPEN: Final = 3 * _A_STATE


def narrow(
    candidates: Sequence[Endpoint], facts: CallFacts, locality: LocalityPolicy, now: float
) -> list[Endpoint]:
    """The best of the candidates below their limit; empty when all are at it."""
    best = 0
    among: list[Endpoint] = []
    has_places = facts.route is not None or locality.region is not None
    for endpoint in candidates:
        if 0 < endpoint.max_concurrent <= endpoint.in_flight:
            continue
        if not has_places and endpoint.state is State.READY and endpoint.breaker.open_until is None:
            rank = 0  # the common case needs no look at the rest
        else:
            rank = _rank(endpoint, facts, locality, now)
        if not among or rank < best:
            best = rank
            among = [endpoint]
        elif rank == best:
            among.append(endpoint)
    return among


def _rank(endpoint: Endpoint, facts: CallFacts, locality: LocalityPolicy, now: float) -> int:
    rank = 0
    breaker = endpoint.breaker
    # An unsafe call leaves the half-open slot to a safe one, but for one more cooldown only: where
    # all calls are unsafe nobody else would ever try the member again.
    if breaker.open_until is not None and not (
        endpoint.member in facts.safe_on
        or now >= breaker.open_until + breaker.policy.cooldown_seconds
    ):
        rank = _HALF_OPEN
    if endpoint.state is not State.READY:
        rank += _A_STATE if endpoint.state is State.COLD else 2 * _A_STATE
    route = facts.route
    if route is not None and route.members:
        return rank + route.members.index(endpoint.member)
    if (
        locality.region is not None
        and endpoint.region != locality.region
        and locality.mode == "Prefer"
    ):
        return rank + 1
    return rank


def soft_steps(
    candidates: Sequence[Endpoint],
    pool: Sequence[Endpoint],
    among: Sequence[Endpoint],
    facts: CallFacts,
    locality: LocalityPolicy,
    now: float,
) -> list[StepReport]:
    """In words: how `pool` was taken out of `candidates`, and `among` out of it by `narrow`."""
    best = _rank(among[0], facts, locality, now)
    others = {e.id: "is not in the caller's pool" for e in candidates if e not in pool}
    full: dict[str, str] = {}
    later: dict[str, str] = {}
    for endpoint in pool:
        if endpoint in among:
            continue
        rank = _rank(endpoint, facts, locality, now)
        if 0 < endpoint.max_concurrent <= endpoint.in_flight:
            full[endpoint.id] = f"has {endpoint.in_flight} calls in flight, its limit"
        elif rank // _HALF_OPEN > best // _HALF_OPEN:
            later[endpoint.id] = "has a half-open breaker that waits for a safe call"
        elif rank // _A_STATE > best // _A_STATE:
            later[endpoint.id] = f"is {endpoint.state.value}"
        elif facts.route is not None and facts.route.members:
            later[endpoint.id] = "comes later in the route"
        else:
            later[endpoint.id] = f"is in region {endpoint.region or 'unknown'}"
    left = tuple(endpoint.id for endpoint in pool)
    return [
        StepReport("canary", left, others),
        StepReport("concurrency", tuple(id_ for id_ in left if id_ not in full), full),
        StepReport("preference", tuple(endpoint.id for endpoint in among), later),
    ]
