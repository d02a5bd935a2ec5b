"""The selection pipeline: who gets a call, who does not, and what is said when nobody does."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.endpoints import COOLDOWN, Clock, Members, make_endpoint

from mcpgroup_gateway.core.canary import bucket
from mcpgroup_gateway.core.endpoint import Endpoint, State
from mcpgroup_gateway.core.policy import CanaryPolicy, GroupPolicy, LocalityPolicy, RoutePolicy
from mcpgroup_gateway.core.selection import CallFacts, Refusal, Selection, Selector

NAMES = ("a", "b", "c")
#: A tenant inside and one outside a split of 10 % of the group "g".
INSIDE = next(t for t in map(str, range(1000)) if bucket("g", t) < 10)
OUTSIDE = next(t for t in map(str, range(1000)) if bucket("g", t) >= 10)


class Group:
    """A selector over a few members; `call` makes an attempt that is still running after it."""

    def __init__(self, *endpoints: Endpoint, **policy: object) -> None:
        self.members = Members(endpoints or [make_endpoint(n, i) for i, n in enumerate(NAMES)])
        self.clock = Clock()
        self.policy = GroupPolicy("g", **policy)  # type: ignore[arg-type]
        chance = random.Random(1)  # noqa: S311 - chance, not a secret
        self.selector = Selector(self.members, self.policy, clock=self.clock, random=chance)

    def __getitem__(self, name: str) -> Endpoint:
        return self.members[name]

    def call(self, facts: CallFacts | None = None) -> str:
        """The id of the endpoint that got the call, or `!` and why nobody did."""
        outcome = self.selector.select(facts or CallFacts())
        if isinstance(outcome, Refusal):
            return f"!{outcome.reason}"
        self.members.start(outcome.endpoint, self.clock.now)
        return outcome.endpoint.id

    def calls(self, count: int, facts: CallFacts | None = None) -> str:
        return "".join(self.call(facts) for _ in range(count))

    def reason(self, facts: CallFacts) -> str:
        outcome = self.selector.select(facts)
        assert isinstance(outcome, Selection)
        return outcome.reason

    def refusal(self, facts: CallFacts | None = None) -> Refusal:
        outcome = self.selector.select(facts or CallFacts())
        assert isinstance(outcome, Refusal)
        return outcome

    def trip(self, *names: str, timeout: bool = False) -> None:
        for name in names:
            self.members.trip(name, self.clock.now, timeout=timeout)


def canary_group(**pinned: str) -> Group:
    return Group(
        make_endpoint("a", 0),
        make_endpoint("b", 1),
        make_endpoint("new", 2, canary=True),
        canary=CanaryPolicy("new", split_percent=10, pinned_tenants=pinned),
    )


# -- the hard steps ------------------------------------------------------------------------


def test_calls_go_round_the_members() -> None:
    assert Group().calls(6) == "abcabc"


def test_an_evicted_member_gets_no_calls() -> None:
    group = Group()
    group["b"].rotation.in_rotation = False
    assert group.calls(4) == "acac"


@pytest.mark.parametrize("state", [State.FAILED, State.STOPPED, State.DRAINING])
def test_a_member_that_is_down_or_leaving_gets_no_calls(state: State) -> None:
    group = Group()
    group["a"].state = state
    assert group.calls(4) == "bcbc"


def test_a_replacement_serves_only_when_it_is_no_longer_staged() -> None:
    group = Group()
    group["a"].staged = True
    assert group.calls(2) == "bc"
    group["a"].staged = False
    assert group.calls(2) == "ab"


def test_a_further_attempt_goes_to_a_member_that_was_not_tried() -> None:
    group = Group()
    facts = CallFacts(tried={"a", "b"})
    assert group.call(facts) == "c"
    assert group.reason(facts) == "failover"
    facts.tried.add("c")
    assert group.refusal(facts).reason == "exhausted"


def test_a_busy_member_is_passed_over_for_its_wait() -> None:
    group = Group()
    group["a"].busy_until = group.clock.now + 5
    assert group.calls(2) == "bc"
    group.clock.now += 5
    assert group.call() == "a"


def test_a_group_of_busy_members_says_when_the_first_is_back() -> None:
    group = Group()
    for name, seconds in zip(NAMES, (9, 4, 7), strict=True):
        group[name].busy_until = group.clock.now + seconds
    assert group.refusal() == Refusal("busy", retry_after=4)


def test_a_tool_that_one_member_has_is_always_sent_there() -> None:
    group = Group()
    assert group.calls(3, CallFacts(members=("b",))) == "bbb"


def test_calls_without_a_choice_do_not_move_the_turn_of_the_others() -> None:
    group = Group()
    assert group.call() == "a"
    assert group.calls(5, CallFacts(members=("c",))) == "ccccc"
    assert group.call() == "b"


def test_a_call_that_nobody_offers_is_unknown() -> None:
    assert Group().refusal(CallFacts(members=("gone",))).reason == "unknown"


def test_a_tool_whose_only_member_is_down_is_not_unknown() -> None:
    group = Group()
    group["b"].state = State.FAILED
    assert group.refusal(CallFacts(members=("b",))).reason == "no_member"


def test_after_it_may_have_run_a_call_goes_only_where_it_is_safe() -> None:
    group = Group()
    facts = CallFacts(safe_on={"a", "c"}, needs_safe=True, tried={"a"})
    assert group.calls(2, facts) == "cc"
    assert group.call(CallFacts(safe_on={"a"}, needs_safe=True, tried={"a"})) == "!exhausted"


def test_a_prefix_pins_the_member() -> None:
    group = Group()
    facts = CallFacts(members=("b",), pinned="b")
    assert group.calls(2, facts) == "bb"
    assert group.reason(facts) == "prefix"


def test_a_session_bound_to_a_member_stays_there() -> None:
    group = Group()
    facts = CallFacts(affinity="c")
    assert group.calls(2, facts) == "cc"
    assert group.reason(facts) == "affinity"


# -- routes ---------------------------------------------------------------------------------


def test_a_route_is_an_ordered_chain_in_place_of_the_strategy() -> None:
    group = Group()
    facts = CallFacts(route=RoutePolicy(members=("c", "a")))
    assert group.calls(3, facts) == "ccc"
    group["c"].rotation.in_rotation = False
    assert group.calls(2, facts) == "aa"
    group["a"].rotation.in_rotation = False
    assert group.call(facts) == "!no_member"


def test_a_route_may_require_resource_tags() -> None:
    group = Group(make_endpoint("a", 0, tags=["gpu"]), make_endpoint("b", 1, tags=["gpu", "big"]))
    assert group.calls(2, CallFacts(route=RoutePolicy(requires=frozenset({"big"})))) == "bb"
    assert group.calls(2, CallFacts(route=RoutePolicy(requires=frozenset({"gpu"})))) == "ab"


# -- preferences ----------------------------------------------------------------------------


def test_ready_members_come_before_cold_ones_and_those_before_starting_ones() -> None:
    group = Group()
    group["a"].state, group["b"].state = State.STARTING, State.COLD
    assert group.calls(2) == "cc"
    group["c"].state = State.FAILED
    assert group.calls(2) == "bb"
    group["b"].state = State.STOPPED
    assert group.call() == "a"


def test_a_cold_member_that_alone_has_the_tool_is_chosen_past_ready_ones() -> None:
    group = Group()
    group["b"].state = State.COLD
    assert group.call(CallFacts(members=("b",))) == "b"


def test_members_of_the_own_region_come_first() -> None:
    endpoints = [
        make_endpoint(n, i, region="eu" if n != "a" else "us") for i, n in enumerate("abc")
    ]
    group = Group(*endpoints, locality=LocalityPolicy("eu"))
    assert group.calls(4) == "bcbc"
    group["b"].rotation.in_rotation = group["c"].rotation.in_rotation = False
    assert group.call() == "a"


def test_regions_can_be_ignored() -> None:
    endpoints = [make_endpoint(n, i, region=n) for i, n in enumerate("ab")]
    assert Group(*endpoints, locality=LocalityPolicy("a", "Ignore")).calls(2) == "ab"


# -- concurrency ----------------------------------------------------------------------------


def test_a_member_at_its_limit_gets_no_further_call() -> None:
    group = Group(make_endpoint("a", 0, limit=1), make_endpoint("b", 1))
    assert group.calls(4) == "abbb"


def test_when_all_are_at_their_limit_the_call_may_wait_for_any_of_them() -> None:
    group = Group(make_endpoint("a", 0, limit=1), make_endpoint("b", 1, limit=2))
    group.calls(3)
    refusal = group.refusal()
    assert refusal == Refusal("concurrency", endpoints=("a", "b"), slots=3)
    assert refusal.waitable


def test_past_the_limit_of_the_ready_member_a_cold_one_is_started() -> None:
    group = Group(make_endpoint("a", 0, limit=1), make_endpoint("b", 1, state=State.COLD))
    assert group.calls(3) == "abb"


# -- breakers -------------------------------------------------------------------------------


def test_an_open_breaker_keeps_calls_away_until_its_cooldown_is_over() -> None:
    group = Group()
    group.trip("a")
    assert group.calls(4) == "bcbc"
    group.clock.now += COOLDOWN
    facts = CallFacts(safe_on=NAMES)
    assert "".join(sorted(group.calls(3, facts))) == "abc"
    # a has its one trial in flight.
    assert group.calls(4, facts).count("a") == 0


def test_an_unsafe_call_leaves_the_half_open_slot_to_safe_ones_for_one_more_cooldown() -> None:
    group = Group()
    group.trip("a")
    group.clock.now += COOLDOWN
    assert "a" not in group.calls(6)
    group.clock.now += COOLDOWN
    assert group.calls(6).count("a") == 1


def test_an_unsafe_call_takes_the_half_open_slot_when_nothing_else_is_left() -> None:
    group = Group()
    group.trip("a")
    group["b"].rotation.in_rotation = group["c"].rotation.in_rotation = False
    group.clock.now += COOLDOWN
    assert group.call() == "a"


def test_with_all_breakers_open_the_first_to_cool_takes_one_call_and_the_rest_are_told() -> None:
    group = Group()
    group.trip("b")
    group.clock.now += 3
    group.trip("a", "c")
    assert group.call() == "b"
    refusal = group.refusal()
    assert refusal.reason == "breaker"
    assert refusal.retry_after is not None
    assert 0 < refusal.retry_after <= COOLDOWN
    assert not refusal.waitable


def test_explaining_does_not_end_a_cooldown() -> None:
    group = Group()
    group.trip("a", "b", "c")
    before = [group[name].breaker.open_until for name in NAMES]
    outcome = group.selector.explain(CallFacts()).outcome
    assert isinstance(outcome, Selection)
    assert [group[name].breaker.open_until for name in NAMES] == before


def test_breakers_open_on_timeouts_only_are_ignored_while_probes_pass() -> None:
    group = Group()
    group.trip("a", "b", "c", timeout=True)
    assert group.calls(6) == "abcabc"
    group["b"].probe_passed = False
    assert group.call() in NAMES  # the one that is forced
    assert group.call() == "!breaker"


# -- canary ---------------------------------------------------------------------------------


def test_the_split_reaches_the_canary_and_nobody_else_does() -> None:
    group = canary_group()
    assert group.reason(CallFacts(tenant=INSIDE)) == "canary"
    assert group.calls(3, CallFacts(tenant=INSIDE)) == "newnewnew"
    assert "new" not in group.calls(10, CallFacts(tenant=OUTSIDE))
    assert "new" not in group.calls(10)


def test_a_pinned_tenant_goes_to_its_member_whatever_its_bucket() -> None:
    group = canary_group(**{OUTSIDE: "new", INSIDE: "b"})
    assert group.calls(2, CallFacts(tenant=OUTSIDE)) == "newnew"
    assert group.calls(2, CallFacts(tenant=INSIDE)) == "bb"
    assert group.reason(CallFacts(tenant=INSIDE)) == "pinned"


@pytest.mark.parametrize("trouble", ["evicted", "breaker", "busy", "tried", "full", "no tool"])
def test_a_canary_that_is_no_candidate_for_any_reason_falls_back(trouble: str) -> None:
    group = canary_group()
    facts = CallFacts(tenant=INSIDE)
    match trouble:
        case "evicted":
            group["new"].rotation.in_rotation = False
        case "breaker":
            group.trip("new")
        case "busy":
            group["new"].busy_until = group.clock.now + 1
        case "tried":
            facts.tried.add("new")
        case "full":
            group["new"].max_concurrent = group["new"].in_flight = 1
        case "no tool":
            facts.members = ("a", "b")
    assert group.reason(facts) == "canary_fallback"
    assert group.call(facts) in "ab"


def test_the_canary_serves_others_only_when_no_stable_member_is_left() -> None:
    group = canary_group()
    group["a"].state = State.FAILED
    assert group.calls(2, CallFacts(tenant=OUTSIDE)) == "bb"
    group["b"].rotation.in_rotation = False
    assert group.call(CallFacts(tenant=OUTSIDE)) == "new"


def test_a_ready_canary_gets_no_calls_of_stable_members_that_are_cold() -> None:
    group = canary_group()
    group["a"].state = group["b"].state = State.COLD
    assert "new" not in group.calls(4, CallFacts(tenant=OUTSIDE))


def test_load_on_the_stable_members_is_no_reason_to_show_the_canary() -> None:
    group = canary_group()
    for name in "ab":
        group[name].max_concurrent = group[name].in_flight = 1
    refusal = group.refusal(CallFacts(tenant=OUTSIDE))
    assert refusal == Refusal("concurrency", endpoints=("a", "b"), slots=2)


# -- explain --------------------------------------------------------------------------------


def test_explain_says_where_each_member_was_dropped() -> None:
    group = Group(*[make_endpoint(n, i, region="eu") for i, n in enumerate("abcdef")])
    group["a"].rotation.in_rotation = False
    group["b"].state = State.FAILED
    group.trip("c")
    group["d"].max_concurrent = group["d"].in_flight = 1
    facts = CallFacts(name="t", members=("a", "b", "c", "d", "f"))
    explanation = group.selector.explain(facts)
    dropped = {e: step.step for step in explanation.steps for e in step.dropped}
    assert dropped == {
        "a": "rotation",
        "b": "state",
        "e": "capability",
        "c": "breaker",
        "d": "concurrency",
    }
    assert explanation.steps[-1].left == ("f",)


def test_explain_keeps_quiet_about_a_choice_that_nobody_gets() -> None:
    group = Group()
    for name in NAMES:
        group[name].state = State.FAILED
    explanation = group.selector.explain(CallFacts())
    assert explanation.outcome == Refusal("no_member")
    assert explanation.steps[-1].left == ()


conditions = st.fixed_dictionaries(
    {
        "state": st.sampled_from(
            [State.READY, State.READY, State.COLD, State.STARTING, State.FAILED]
        ),
        "in_rotation": st.sampled_from([True, True, True, False]),
        "tripped": st.sampled_from([None, None, None, 1.0, COOLDOWN]),
        "busy": st.sampled_from([0.0, 0.0, 5.0]),
        "limit": st.sampled_from([0, 0, 1, 2]),
        "in_flight": st.integers(0, 2),
        "region": st.sampled_from(["eu", "us"]),
        "weight": st.integers(1, 5),
        "priority": st.integers(1, 2),
    }
)
facts_of_calls = st.builds(
    CallFacts,
    members=st.none() | st.sets(st.sampled_from("abcd")),
    safe_on=st.sets(st.sampled_from("abcd")),
    tenant=st.sampled_from([None, INSIDE, OUTSIDE]),
    hash_key=st.sampled_from([b"", b"x", b"y"]),
    route=st.none() | st.just(RoutePolicy(members=("c", "d", "a"))),
    needs_safe=st.booleans(),
    tried=st.sets(st.sampled_from("abcd"), max_size=2),
)


@given(
    st.lists(conditions, min_size=4, max_size=4),
    st.lists(facts_of_calls, min_size=1, max_size=8),
    st.sampled_from(
        [
            "RoundRobin",
            "WeightedRoundRobin",
            "LeastConnections",
            "Random",
            "Priority",
            "LeastLatency",
            "ConsistentHash",
        ]
    ),
)
def test_explain_tells_exactly_what_select_then_does(
    members: list[dict[str, object]], facts: list[CallFacts], strategy: str
) -> None:
    endpoints = [make_endpoint(name, i, canary=name == "d") for i, name in enumerate("abcd")]
    group = Group(
        *endpoints,
        strategy=strategy,
        canary=CanaryPolicy("d", 10),
        locality=LocalityPolicy("eu"),
    )
    for endpoint, condition in zip(endpoints, members, strict=True):
        endpoint.rotation.in_rotation = bool(condition["in_rotation"])
        if condition["tripped"]:
            group.members.trip(endpoint.id, group.clock.now - float(str(condition["tripped"])))
        endpoint.busy_until = group.clock.now + float(str(condition["busy"]))
        endpoint.max_concurrent = int(str(condition["limit"]))
        for name in ("state", "in_flight", "region", "weight", "priority"):
            setattr(endpoint, name, condition[name])
    for each in facts:
        told = group.selector.explain(each)
        again = group.selector.explain(each)
        assert told == again
        done = group.selector.select(each)
        assert done == told.outcome
        if isinstance(done, Selection):
            endpoint = done.endpoint
            assert told.steps[-1].left == (endpoint.id,)
            assert endpoint.rotation.in_rotation
            assert endpoint.state in (State.READY, State.COLD, State.STARTING)
            assert endpoint.id not in each.tried
            assert each.members is None or endpoint.member in each.members
            assert not each.needs_safe or endpoint.member in each.safe_on
            group.members.start(endpoint, group.clock.now)


def test_a_member_that_flaps_at_every_other_call_leaves_the_others_equal() -> None:
    group = Group()
    counts: Counter[str] = Counter()
    for turn in range(1000):
        group["b"].rotation.in_rotation = turn % 2 == 0
        counts[group.call()] += 1
    assert abs(counts["a"] - counts["c"]) <= 1


def test_a_reload_keeps_the_turn_unless_the_strategy_is_another() -> None:
    group = Group()
    assert group.call() == "a"
    group.selector.reconfigure(GroupPolicy("g", min_healthy=2))
    assert group.call() == "b"
    group.selector.reconfigure(GroupPolicy("g", strategy="Priority"))
    assert group.call() == "a"
