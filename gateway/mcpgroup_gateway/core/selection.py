"""Choose the endpoint for one attempt of a call (DESIGN section 5, selection pipeline).

First the hard steps of `funnel` and the breaker; then, of the candidates that are left,

1. the pool: the tenant's target (canary or pin), else the stable members, else the canary;
2. endpoints below their concurrency limit;
3. Ready before Cold before Starting;
4. the order of a route's members, or without one the gateway's own region before others;
5. the strategy.

The pool comes before readiness, so that a canary that is ready does not get the calls of stable
members that are not. Steps 3 and 4 prefer and do not exclude: when all preferred endpoints are at
their limit, the call goes to the next best and not into a queue. A stable pool at its limits queues
all the same; load is no reason to show the canary to others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mcpgroup_gateway.core.canary import Target, target_of
from mcpgroup_gateway.core.counts import breakers_ignored
from mcpgroup_gateway.core.funnel import (
    CallFacts,
    Drop,
    StepReport,
    hard_steps,
    match_drop,
    sift,
    state_drop,
)
from mcpgroup_gateway.core.preferences import narrow, soft_steps
from mcpgroup_gateway.core.strategies import strategy_named

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.core.policy import GroupPolicy

__all__ = ["CallFacts", "Explanation", "Refusal", "Selection", "Selector", "StepReport"]

#: What callers are told to wait while one call decides about a half-open breaker.
_TRIAL_SECONDS = 1.0


@dataclass(slots=True)
class Selection:
    """`reason` is that of `selections_total`: strategy, canary, pinned, canary_fallback, failover,
    prefix, affinity. `candidates` is how many the last step chose from."""

    endpoint: Endpoint
    reason: str
    candidates: int
    score: float | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nobody can take the call now.

    `reason`: `unknown` (no endpoint offers it), `exhausted` (this call was sent to all who could
    take it), `busy`, `breaker`, `concurrency`, or `no_member`. `retry_after` is in seconds. After
    `concurrency` the call may queue for `endpoints`, which have `slots` in all (`WaitingRoom`).
    """

    reason: str
    retry_after: float | None = None
    endpoints: tuple[str, ...] = ()
    slots: int = 0

    @property
    def waitable(self) -> bool:
        return bool(self.endpoints)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The funnel step by step and what comes out of it."""

    steps: tuple[StepReport, ...]
    outcome: Selection | Refusal


class Endpoints(Protocol):
    """What of `Group` the selection looks at."""

    @property
    def endpoints(self) -> Mapping[str, Endpoint]:
        """By id, in manifest order."""
        ...


class _Pool(NamedTuple):
    """Candidates that come before those of the next pool.

    `blocked` would be candidates but for their breaker. A pool that does not `queue` leaves a call
    that its limits refuse to the next one.
    """

    candidates: Sequence[Endpoint]
    blocked: Sequence[Endpoint]
    queues: bool


class _Outcome(NamedTuple):
    """`among` is what the strategy chose from; `forced` ends the cooldown of its breaker."""

    given: Selection | Refusal
    among: Sequence[Endpoint] = ()
    forced: bool = False


class Selector:
    """Chooses among the endpoints of a group; it keeps nothing but the strategy's own state."""

    def __init__(
        self,
        group: Endpoints,
        policy: GroupPolicy,
        *,
        clock: Callable[[], float],
        random: random.Random,
    ) -> None:
        self._group = group
        self._clock = clock
        self._random = random
        self._policy = policy
        self._strategy = strategy_named(policy.strategy, random)

    def reconfigure(self, policy: GroupPolicy) -> None:
        """Take a new policy; the strategy keeps its state unless it is another one now."""
        if policy.strategy != self._policy.strategy:
            self._strategy = strategy_named(policy.strategy, self._random)
        self._policy = policy

    def select(self, facts: CallFacts) -> Selection | Refusal:
        """Choose for the next attempt. `Group.attempt_started` of the chosen must follow at once,
        before anything else can choose."""
        now = self._clock()
        given, among, forced = self._decide(facts, now, None)
        if isinstance(given, Selection):
            if forced:
                given.endpoint.breaker.force_half_open(now)
            if len(among) > 1:
                self._strategy.picked(given.endpoint, among)
        return given

    def took_slot(self, facts: CallFacts, endpoint: Endpoint) -> Selection:
        """What to call it when a call that queued was given this endpoint."""
        canary = self._policy.canary
        target = target_of(canary, self._policy.name, facts.tenant) if canary is not None else None
        return Selection(endpoint, _reason(endpoint, facts, target), 1, None)

    def explain(self, facts: CallFacts) -> Explanation:
        """What `select` would do now, and why. Nothing changes."""
        now = self._clock()
        steps = hard_steps(self._group.endpoints.values(), facts, now)
        given, among, _ = self._decide(facts, now, steps)
        if isinstance(given, Selection):
            chosen = given.endpoint
            others = {e.id: "was not chosen" for e in among if e is not chosen}
            steps.append(StepReport("strategy", (chosen.id,), others))
        return Explanation(tuple(steps), given)

    def _decide(self, facts: CallFacts, now: float, steps: list[StepReport] | None) -> _Outcome:
        candidates, blocked = sift(self._group.endpoints.values(), facts, now)
        locality = self._policy.locality
        if self._policy.canary is None or facts.pinned is not None or facts.affinity is not None:
            target = None
            pools = [_Pool(candidates, blocked, True)]
        else:
            target = target_of(self._policy.canary, self._policy.name, facts.tenant)
            pools = _pools(candidates, blocked, target)
        full: list[Endpoint] = []
        for pool in pools:
            if not pool.candidates:
                continue
            among = narrow(pool.candidates, facts, locality, now)
            if among:
                if steps is not None:
                    steps += soft_steps(candidates, pool.candidates, among, facts, locality, now)
                return self._choose(among, facts, target, now)
            full += pool.candidates
            if pool.queues:
                break
        if full:
            ids = tuple(endpoint.id for endpoint in full)
            slots = sum(endpoint.max_concurrent for endpoint in full)
            return _Outcome(Refusal("concurrency", endpoints=ids, slots=slots))
        return self._past_breakers(pools, facts, target, now)

    def _choose(
        self, among: Sequence[Endpoint], facts: CallFacts, target: Target | None, now: float
    ) -> _Outcome:
        endpoint, score = among[0], None
        if len(among) > 1:
            endpoint, score = self._strategy.choose(among, now=now, key=facts.hash_key)
        reason = _reason(endpoint, facts, target)
        return _Outcome(Selection(endpoint, reason, len(among), score), among)

    def _past_breakers(
        self, pools: Sequence[_Pool], facts: CallFacts, target: Target | None, now: float
    ) -> _Outcome:
        """No candidate is left; perhaps some would be but for their breaker."""
        blocked: list[Endpoint] = []
        for pool in pools:
            if pool.queues and blocked:
                break
            blocked += [endpoint for endpoint in pool.blocked if endpoint not in blocked]
        if not blocked:
            return _Outcome(self._why_none(facts, now))
        if breakers_ignored(blocked, now):
            among = narrow(blocked, facts, self._policy.locality, now)
            if among:
                return self._choose(among, facts, target, now)
        cooling = [e for e in blocked if e.breaker.open_until is not None]
        soonest = min(cooling, key=lambda e: e.breaker.open_until or 0.0)
        wait = (soonest.breaker.open_until or 0.0) - now
        if wait > 0 and not any(endpoint.breaker.trial for endpoint in blocked):
            # Refusing all calls until a cooldown ends would help nobody: one may try now.
            reason = _reason(soonest, facts, target)
            return _Outcome(Selection(soonest, reason, 1, None), forced=True)
        return _Outcome(Refusal("breaker", retry_after=wait if wait > 0 else _TRIAL_SECONDS))

    def _why_none(self, facts: CallFacts, now: float) -> Refusal:
        endpoints = tuple(self._group.endpoints.values())
        if facts.tried:
            return Refusal("exhausted")
        matching = [endpoint for endpoint in endpoints if match_drop(endpoint, facts) is None]
        waits = [e.busy_until - now for e in matching if state_drop(e, facts, now) is Drop.BUSY]
        if waits:
            return Refusal("busy", retry_after=min(waits))
        if endpoints and all(match_drop(e, facts) is Drop.NOT_OFFERED for e in endpoints):
            return Refusal("unknown")
        return Refusal("no_member")


def _pools(
    candidates: Sequence[Endpoint], blocked: Sequence[Endpoint], target: Target | None
) -> list[_Pool]:
    """The tenant's target, the stable members, the canary."""

    def pool(wanted: Callable[[Endpoint], bool], *, queues: bool) -> _Pool:
        return _Pool(
            [e for e in candidates if wanted(e)], [e for e in blocked if wanted(e)], queues
        )

    pools = [pool(lambda e: not e.canary, queues=True), pool(lambda e: e.canary, queues=True)]
    if target is not None:
        pools.insert(0, pool(lambda e: e.member == target.member, queues=False))
    return pools


def _reason(endpoint: Endpoint, facts: CallFacts, target: Target | None) -> str:
    if facts.pinned is not None:
        return "prefix"
    if facts.affinity is not None:
        return "affinity"
    if target is not None:
        return target.reason if endpoint.member == target.member else "canary_fallback"
    return "failover" if facts.tried else "strategy"
