"""The laws of the seven strategies."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.endpoints import make_endpoint, make_endpoints

from mcpgroup_gateway.core.strategies import Strategy, strategy_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mcpgroup_gateway.core.endpoint import Endpoint

ALL = (
    "RoundRobin",
    "WeightedRoundRobin",
    "LeastConnections",
    "Random",
    "Priority",
    "LeastLatency",
    "ConsistentHash",
)


def choices(strategy: Strategy, endpoints: Sequence[Endpoint], key: bytes = b"") -> Iterator[str]:
    """Ids as they are chosen, one call after the other and each over before the next."""
    order = 0
    while True:
        chosen, _ = strategy.choose(endpoints, now=0.0, key=key)
        strategy.picked(chosen, endpoints)
        order += 1
        chosen.last_selected = order
        yield chosen.id


def make(name: str, seed: int = 1) -> Strategy:
    return strategy_named(name, random.Random(seed))  # noqa: S311 - chance, not a secret


def test_round_robin_goes_through_the_members_in_manifest_order() -> None:
    endpoints = make_endpoints("abc")
    assert "".join(islice(choices(make("RoundRobin"), endpoints), 7)) == "abcabca"


@given(st.lists(st.sets(st.sampled_from("bde")), min_size=1, max_size=200))
def test_round_robin_is_exact_for_the_others_when_members_flap(absent: list[set[str]]) -> None:
    endpoints = make_endpoints("abcdef")
    strategy = make("RoundRobin")
    counts: Counter[str] = Counter()
    for gone in absent:
        present = [endpoint for endpoint in endpoints if endpoint.id not in gone]
        counts[next(choices(strategy, present))] += 1
        steady = [counts[name] for name in "acf"]
        assert max(steady) - min(steady) <= 1


def test_round_robin_goes_on_behind_a_member_that_was_removed() -> None:
    a, b, c = make_endpoints("abc")
    strategy = make("RoundRobin")
    assert "".join(islice(choices(strategy, [a, b, c]), 2)) == "ab"
    c.position = 1
    assert next(choices(strategy, [a, c])) == "c"


def test_weights_of_five_one_one_give_a_smooth_order() -> None:
    endpoints = make_endpoints("abc", [5, 1, 1])
    assert "".join(islice(choices(make("WeightedRoundRobin"), endpoints), 14)) == "aabacaa" * 2


@given(
    st.lists(st.integers(1, 100), min_size=2, max_size=6),
    st.integers(0, 300),
)
def test_weighted_round_robin_is_exact_over_any_window_of_a_full_round(
    weights: list[int], start: int
) -> None:
    endpoints = make_endpoints("abcdef"[: len(weights)], weights)
    window = islice(choices(make("WeightedRoundRobin"), endpoints), start, start + sum(weights))
    assert Counter(window) == {e.id: e.weight for e in endpoints}


def test_eighty_to_twenty_is_kept_within_one_percent_over_a_thousand_calls() -> None:
    endpoints = make_endpoints("ab", [80, 20])
    counts = Counter(islice(choices(make("WeightedRoundRobin"), endpoints), 1000))
    assert abs(counts["a"] - 800) <= 10


def test_weighted_round_robin_forgets_what_an_absent_member_had_gained() -> None:
    a, b, c = make_endpoints("abc")
    strategy = make("WeightedRoundRobin")
    assert "".join(islice(choices(strategy, [a, b, c]), 2)) == "ab"
    assert next(choices(strategy, [a, b])) == "a"
    # c was next when it left; with what it had gained it would be chosen now.
    assert next(choices(strategy, [a, b, c])) == "b"


def test_least_connections_takes_the_fewest_calls_in_flight() -> None:
    a, b, c = make_endpoints("abc")
    a.in_flight, b.in_flight, c.in_flight = 3, 1, 2
    chosen, score = make("LeastConnections").choose([a, b, c], now=0.0, key=b"")
    assert (chosen.id, score) == ("b", 1.0)


def test_least_connections_on_an_idle_group_takes_the_least_recently_used() -> None:
    endpoints = make_endpoints("abc")
    assert "".join(islice(choices(make("LeastConnections"), endpoints), 6)) == "abcabc"


@given(st.integers(0, 2**32))
def test_random_follows_the_weights(seed: int) -> None:
    endpoints = make_endpoints("ab", [3, 1])
    counts = Counter(islice(choices(make("Random", seed), endpoints), 2000))
    assert 0.68 < counts["a"] / 2000 < 0.82


def test_priority_takes_the_lowest_number_and_fails_back() -> None:
    first = make_endpoint("a", 0, priority=1)
    second = make_endpoint("b", 1, priority=2)
    strategy = make("Priority")
    assert next(choices(strategy, [first, second])) == "a"
    assert next(choices(strategy, [second])) == "b"
    assert next(choices(strategy, [first, second])) == "a"


def test_equal_priorities_share_by_round_robin() -> None:
    endpoints = [
        make_endpoint("a", 0, priority=2),
        make_endpoint("b", 1, priority=1),
        make_endpoint("c", 2, priority=1),
    ]
    assert "".join(islice(choices(make("Priority"), endpoints), 4)) == "bcbc"


def test_least_latency_weighs_a_second_as_half_a_call_in_flight() -> None:
    slow, fast = make_endpoints("ab")
    slow.latencies.add(0.0, 4.0)
    fast.latencies.add(0.0, 0.1)
    strategy = make("LeastLatency")
    assert strategy.choose([slow, fast], now=0.0, key=b"")[0] is fast
    fast.in_flight = 2
    chosen, score = strategy.choose([slow, fast], now=0.0, key=b"")
    assert (chosen, score) == (slow, 2.0)
    fast.in_flight = 1
    assert strategy.choose([slow, fast], now=0.0, key=b"")[0] is fast


def test_a_member_without_recent_answers_scores_the_median_of_the_others() -> None:
    a, b, c, unknown = make_endpoints("abcd")
    for endpoint, seconds in ((a, 1.0), (b, 2.0), (c, 9.0)):
        endpoint.latencies.add(0.0, seconds)
    a.in_flight = 1  # 1.5 against b's 1.0 and the unknown one's 1.0
    b.in_flight = 1
    chosen, score = make("LeastLatency").choose([a, b, c, unknown], now=0.0, key=b"")
    assert (chosen.id, score) == ("d", 1.0)


@given(st.binary(min_size=1, max_size=40), st.sampled_from("abcde"))
def test_a_member_that_goes_moves_only_its_own_keys(key: bytes, gone: str) -> None:
    endpoints = make_endpoints("abcde")
    strategy = make("ConsistentHash")
    before = next(choices(strategy, endpoints, key))
    left = [endpoint for endpoint in endpoints if endpoint.id != gone]
    after = next(choices(strategy, left, key))
    assert after == before or before == gone


def test_consistent_hashing_spreads_keys_evenly() -> None:
    endpoints = make_endpoints("abcd")
    strategy = make("ConsistentHash")
    counts = Counter(next(choices(strategy, endpoints, b"%d" % n)) for n in range(4000))
    assert all(800 < counts[name] < 1200 for name in "abcd")


def test_callers_without_a_hash_key_are_shared_out() -> None:
    endpoints = make_endpoints("abc")
    assert "".join(islice(choices(make("ConsistentHash"), endpoints), 4)) == "abca"


@pytest.mark.parametrize("name", ALL)
def test_a_look_changes_nothing(name: str) -> None:
    looked, plain = make(name, 7), make(name, 7)
    first, second = make_endpoints("abc", [3, 2, 1]), make_endpoints("abc", [3, 2, 1])
    sequence = choices(looked, first, b"k"), choices(plain, second, b"k")
    for _ in range(30):
        for _ in range(3):
            looked.choose(first, now=0.0, key=b"k")
        assert next(sequence[0]) == next(sequence[1])


@pytest.mark.parametrize("name", sorted(set(ALL) - {"Random", "ConsistentHash"}))
def test_ties_go_to_manifest_order(name: str) -> None:
    endpoints = make_endpoints("abc")
    assert make(name).choose(endpoints, now=0.0, key=b"")[0].id == "a"
