"""Pods are asked at their pace, whatever the others do, and only news is told."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.observations import answer, encoded, report
from tests.unit.operator.virtual_time import VirtualLoop, run

from mcpgroup_operator.lanes import Lane
from mcpgroup_operator.polling import (
    FAST_LIMIT,
    PATIENCE_SECONDS,
    SLOW_LIMIT,
    PodUnreachableError,
    Poller,
    Target,
)
from mcpgroup_operator.store import Key

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_operator.lanes import Slot

KEY = Key("tools", "search")


def target(number: int = 1, **facts: Any) -> Target:
    defaults: dict[str, Any] = {
        "namespace": "tools",
        "name": f"search-{number}",
        "uid": f"uid-{number}",
        "ip": f"10.0.0.{number}",
        "ready": True,
    }
    return Target(**{**defaults, **facts})


class Pods:
    """Answers for pods by name; `hang` and `refuse` name those that do not."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.asked: dict[str, list[float]] = {}
        self.hang: set[str] = set()
        self.refuse: set[str] = set()
        self.documents: dict[str, dict[str, Any]] = {}
        self.seconds = 0.01
        self.in_flight = 0
        self.most_in_flight = 0
        self.most_at_once = 0
        self._of_pod: Counter[str] = Counter()

    async def __call__(self, target: Target) -> bytes:
        self.asked.setdefault(target.uid, []).append(self.loop.time())
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self._of_pod[target.uid] += 1
        self.most_at_once = max(self.most_at_once, self._of_pod[target.uid])
        try:
            await asyncio.sleep(3600 if target.name in self.hang else self.seconds)
            if target.name in self.refuse:
                raise PodUnreachableError("connection refused")
            return encoded(answer(pod=target.name) | self.documents.get(target.name, {}))
        finally:
            self.in_flight -= 1
            self._of_pod[target.uid] -= 1

    def gaps(self, uid: str) -> list[float]:
        times = self.asked[uid]
        return [later - earlier for earlier, later in itertools.pairwise(times)]


class Bench:
    """A poller with its pods; `told` has time and group of every change."""

    def __init__(self, loop: VirtualLoop, **options: Any) -> None:
        self.loop = loop
        self.pods = Pods(loop)
        self.told: list[tuple[float, Key]] = []
        self.results: list[str] = []
        self.poller = Poller(
            self.pods,
            lambda key: self.told.append((loop.time(), key)),
            observe=self.results.append,
            random=Random(7),  # noqa: S311 - spreads load
            **options,
        )

    def poll(self, number: int = 1, key: Key = KEY) -> Any:
        poll = self.poller.poll_of(key, f"uid-{number}")
        assert poll is not None
        return poll


def play(scene: Callable[[Bench], Any], **options: Any) -> None:
    """Run a scene with a bench, and see that closing leaves nothing behind."""

    async def whole(loop: VirtualLoop) -> None:
        bench = Bench(loop, **options)
        try:
            await scene(bench)
        finally:
            await bench.poller.close()
        assert bench.pods.in_flight == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(whole)


def test_a_new_pod_is_asked_at_once_and_then_every_five_seconds_or_so() -> None:
    async def scene(bench: Bench) -> None:
        bench.poller.set_pods(KEY, [target()])
        await asyncio.sleep(0.02)
        assert bench.poll().report == report()
        assert bench.told == [(bench.loop.time() - 0.01, KEY)]
        await asyncio.sleep(1000)
        first, *gaps = bench.pods.gaps("uid-1")
        assert 1 <= first <= 5
        assert all(4 <= gap <= 6 for gap in gaps)
        assert 4.8 < sum(gaps) / len(gaps) < 5.2

    play(scene)


def test_the_same_answer_is_no_news_and_another_one_is() -> None:
    async def scene(bench: Bench) -> None:
        bench.poller.set_pods(KEY, [target()])
        await asyncio.sleep(60)
        assert len(bench.told) == 1
        bench.pods.documents["search-1"] = {"state": "Partial"}
        await asyncio.sleep(7)
        assert len(bench.told) == 2
        assert bench.poll().report == report(state="Partial")
        await asyncio.sleep(60)
        assert len(bench.told) == 2

    play(scene)


def test_the_third_miss_in_a_row_is_news_and_so_is_the_return() -> None:
    async def scene(bench: Bench) -> None:
        bench.poller.set_pods(KEY, [target()])
        await asyncio.sleep(20)
        bench.told.clear()
        bench.pods.refuse.add("search-1")
        await asyncio.sleep(7)
        assert bench.poll().misses < 3
        assert bench.told == []
        await asyncio.sleep(13)
        assert bench.poll().misses == 3
        assert bench.poll().error == "connection refused"
        assert bench.poll().report == report()
        assert len(bench.told) == 1
        await asyncio.sleep(100)
        assert (bench.poll().misses, len(bench.told)) == (3, 1)
        bench.pods.refuse.clear()
        await asyncio.sleep(7)
        assert (bench.poll().misses, len(bench.told)) == (0, 2)

    play(scene)


def test_a_lost_answer_or_two_are_no_news() -> None:
    async def scene(bench: Bench) -> None:
        bench.poller.set_pods(KEY, [target()])
        await asyncio.sleep(20)
        bench.told.clear()
        bench.pods.hang.add("search-1")
        await asyncio.sleep(9)
        assert bench.poll().misses in (1, 2)
        assert bench.poll().error == "no answer within 2 s"
        bench.pods.hang.clear()
        await asyncio.sleep(10)
        assert (bench.poll().misses, bench.told) == (0, [])

    play(scene)


def test_why_a_pod_is_not_reached_stays_what_it_was_while_it_is_not() -> None:
    async def scene(bench: Bench) -> None:
        bench.pods.refuse.add("search-1")
        bench.poller.set_pods(KEY, [target()])
        await asyncio.sleep(20)
        bench.pods.hang.add("search-1")
        await asyncio.sleep(60)
        assert bench.poll().error == "connection refused"

    play(scene)


def test_a_pod_that_never_answered_is_asked_every_second_until_three_misses() -> None:
    async def scene(bench: Bench) -> None:
        bench.pods.refuse.add("search-1")
        bench.poller.set_pods(KEY, [target()])
        await asyncio.sleep(100)
        gaps = bench.pods.gaps("uid-1")
        assert all(0.8 <= gap <= 1 for gap in gaps[:2])
        assert all(4 <= gap <= 6 for gap in gaps[2:])
        assert len(bench.told) == 1  # it is settled now that it does not answer

    play(scene)


def test_a_pod_that_becomes_ready_is_asked_at_once_and_its_misses_until_then_do_not_count() -> None:
    async def scene(bench: Bench) -> None:
        bench.pods.refuse.add("search-1")
        bench.poller.set_pods(KEY, [target(ready=False)])
        await asyncio.sleep(20)
        assert bench.poll().misses == 3
        asked = len(bench.pods.asked["uid-1"])
        bench.poller.set_pods(KEY, [target(ready=True)])
        assert not bench.poll().asked
        bench.pods.refuse.clear()
        await asyncio.sleep(0.02)
        assert len(bench.pods.asked["uid-1"]) == asked + 1
        assert bench.poll().report == report()

    play(scene)


def test_what_a_pod_said_before_its_restart_counts_no_more_when_it_is_ready_again() -> None:
    async def scene(bench: Bench) -> None:
        bench.poller.set_pods(KEY, [target()])
        await asyncio.sleep(10)
        bench.pods.refuse.add("search-1")
        bench.poller.set_pods(KEY, [target(ready=False)])
        await asyncio.sleep(30)
        assert bench.poll().misses == 3
        bench.told.clear()
        bench.pods.refuse.clear()
        bench.poller.set_pods(KEY, [target(ready=True)])
        assert not bench.poll().asked
        await asyncio.sleep(0.02)
        assert bench.poll().report == report()
        assert len(bench.told) == 1

    play(scene)


def test_an_answer_that_is_no_report_or_another_pods_is_a_miss_with_its_reason() -> None:
    async def scene(bench: Bench) -> None:
        bench.pods.documents["search-1"] = {"available": "perhaps"}
        bench.pods.documents["search-2"] = {"pod": "search-9"}
        bench.pods.documents["search-3"] = {"namespace": "other"}
        bench.poller.set_pods(KEY, [target(1), target(2), target(3)])
        await asyncio.sleep(0.5)
        assert bench.poll(1).error == "available is neither true nor false"
        assert bench.poll(2).error == "another pod answers at its address"
        assert bench.poll(3).error == "another pod answers at its address"
        assert bench.results == ["unreadable"] * 3

    play(scene)


def test_another_pod_at_the_same_address_starts_from_nothing() -> None:
    async def scene(bench: Bench) -> None:
        bench.poller.set_pods(KEY, [target(1)])
        await asyncio.sleep(1)
        bench.pods.hang.add("search-2")
        bench.poller.set_pods(KEY, [target(2, ip="10.0.0.1")])
        assert bench.poller.poll_of(KEY, "uid-1") is None
        assert not bench.poll(2).asked

    play(scene)


def test_pods_that_are_gone_are_not_asked_and_say_nothing_more() -> None:
    async def scene(bench: Bench) -> None:
        bench.pods.hang.add("search-1")
        bench.poller.set_pods(KEY, [target(1), target(2)])
        await asyncio.sleep(1)
        told = len(bench.told)
        bench.poller.set_pods(KEY, [])
        await asyncio.sleep(0)
        assert bench.pods.in_flight == 0
        asked = {uid: len(times) for uid, times in bench.pods.asked.items()}
        await asyncio.sleep(60)
        assert {uid: len(times) for uid, times in bench.pods.asked.items()} == asked
        assert len(bench.told) == told
        assert bench.poller.poll_of(KEY, "uid-2") is None

    play(scene)


def test_a_pod_that_has_another_address_is_asked_now() -> None:
    async def scene(bench: Bench) -> None:
        bench.poller.set_pods(KEY, [target(1), target(2)])
        await asyncio.sleep(0.5)
        bench.poller.set_pods(KEY, [target(1, ip="10.0.1.1"), target(2)])
        await asyncio.sleep(0.05)
        assert len(bench.pods.asked["uid-1"]) == 2
        assert len(bench.pods.asked["uid-2"]) == 1

    play(scene)


def test_pods_that_should_have_news_are_watched_closely_until_they_have_it() -> None:
    async def scene(bench: Bench) -> None:
        bench.poller.set_pods(KEY, [target(1), target(2)])
        await asyncio.sleep(20)
        began = bench.loop.time()
        bench.poller.watch_closely(KEY, 10)
        bench.poller.watch_closely(Key("tools", "unknown"), 10)
        await asyncio.sleep(3)
        bench.pods.documents["search-1"] = {"state": "Partial"}
        await asyncio.sleep(57)
        one, two = (
            [time - began for time in bench.pods.asked[uid] if time >= began]
            for uid in ("uid-1", "uid-2")
        )
        gaps = [later - earlier for earlier, later in itertools.pairwise(one)]
        assert one[0] <= 1
        assert all(0.8 <= gap <= 1 for time, gap in zip(one, gaps, strict=False) if time < 3)
        assert all(4 <= gap <= 6 for time, gap in zip(one, gaps, strict=False) if time > 4)
        assert 10 <= sum(time < 10 for time in two) <= 13
        assert sum(time > 11 for time in two) <= 13

    play(scene)


def test_a_pod_that_is_being_asked_is_asked_once_more() -> None:
    async def scene(bench: Bench) -> None:
        bench.pods.seconds = 0.2
        bench.poller.set_pods(KEY, [target()])
        await asyncio.sleep(0.1)
        bench.poller.set_pods(KEY, [target(ip="10.0.1.1")])
        bench.poller.set_pods(KEY, [target(ip="10.0.1.2")])
        await asyncio.sleep(0.5)
        assert len(bench.pods.asked["uid-1"]) == 2
        assert bench.pods.gaps("uid-1") == [pytest.approx(0.2)]

    play(scene)


def test_two_hundred_pods_that_hang_delay_nobody_from_the_first_moment_on() -> None:
    async def scene(bench: Bench) -> None:
        hanging = [target(number) for number in range(200)]
        bench.pods.hang.update(each.name for each in hanging)
        bench.poller.set_pods(Key("tools", "bad"), hanging)
        begun = bench.loop.time()
        for number in range(200, 600):
            bench.poller.set_pods(Key("tools", f"good-{number}"), [target(number)])
        await asyncio.sleep(60)
        for number in range(200, 600):
            times = bench.pods.asked[f"uid-{number}"]
            assert times[0] - begun < 3
            assert max(bench.pods.gaps(f"uid-{number}")) < 6.2
        assert bench.pods.most_in_flight <= SLOW_LIMIT + FAST_LIMIT * (2 / PATIENCE_SECONDS + 1)

    play(scene)


def test_pods_that_begin_to_hang_together_delay_nobody_either() -> None:
    async def scene(bench: Bench) -> None:
        keys = {number: Key("tools", f"group-{number}") for number in range(600)}
        for number, key in keys.items():
            bench.poller.set_pods(key, [target(number)])
        await asyncio.sleep(20)
        bench.pods.hang.update(f"search-{number}" for number in range(200))
        began = bench.loop.time()
        await asyncio.sleep(30)
        for number in range(200, 600):
            times = [time for time in bench.pods.asked[f"uid-{number}"] if time > began - 7]
            gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
            assert max(gaps) < 6.7
        assert all(bench.poll(number, keys[number]).misses == 3 for number in range(200))

    play(scene)


def test_questions_to_many_pods_spread_over_the_interval() -> None:
    async def scene(bench: Bench) -> None:
        for number in range(1000):
            bench.poller.set_pods(Key("tools", f"group-{number}"), [target(number)])
        await asyncio.sleep(30)
        now = bench.loop.time()
        times = [time for asked in bench.pods.asked.values() for time in asked if time > now - 10]
        seconds = [sum(now - 10 + n <= time < now - 9 + n for time in times) for n in range(10)]
        assert max(seconds) < 300  # 200 on average

    play(scene)


def test_a_fault_of_ours_is_logged_and_the_pod_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(bench: Bench) -> None:
        bench.pods.documents["search-1"] = {"pod": {1, 2}}  # cannot be encoded
        bench.poller.set_pods(KEY, [target()])
        await asyncio.sleep(0.1)
        assert bench.poll().error == "a fault of the operator, see its log"
        bench.pods.documents.clear()
        await asyncio.sleep(2)
        assert bench.poll().report == report()

    play(scene)
    assert "asking pod tools/search-1 failed" in caplog.text


def test_once_closed_it_asks_nobody() -> None:
    async def scene(bench: Bench) -> None:
        bench.pods.hang.add("search-1")
        bench.poller.set_pods(KEY, [target(1), target(2)])
        await asyncio.sleep(1)
        await bench.poller.close()
        assert bench.pods.in_flight == 0
        bench.poller.set_pods(KEY, [target(3)])
        await asyncio.sleep(10)
        assert "uid-3" not in bench.pods.asked

    play(scene)


def test_thousands_that_wait_can_be_dropped_at_once() -> None:
    async def scene(bench: Bench) -> None:
        bench.pods.hang.update(f"search-{number}" for number in range(3000))
        bench.poller.set_pods(KEY, [target(number) for number in range(3000)])
        await asyncio.sleep(0.1)
        faults: list[object] = []
        bench.loop.set_exception_handler(lambda _, context: faults.append(context))
        bench.poller.set_pods(KEY, [])
        bench.poller.set_pods(KEY, [target(3000)])
        await asyncio.sleep(0.1)
        assert faults == []
        assert bench.poll(3000).report == report("search-3000")

    play(scene)


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pods"), st.integers(0, 2), st.sets(st.integers(0, 5), max_size=4)),
        st.tuples(st.just("ready"), st.integers(0, 2), st.sets(st.integers(0, 5), max_size=4)),
        st.tuples(st.just("hang"), st.just(0), st.sets(st.integers(0, 5))),
        st.tuples(st.just("refuse"), st.just(0), st.sets(st.integers(0, 5))),
        st.tuples(st.just("moved"), st.integers(0, 2), st.integers(1, 9).map(lambda at: {at})),
        st.tuples(st.just("closely"), st.integers(0, 2), st.just(set[int]())),
        st.tuples(st.just("remove"), st.integers(0, 2), st.just(set[int]())),
        st.tuples(st.just("wait"), st.integers(0, 60), st.just(set[int]())),
    ),
    max_size=25,
)


@given(_STEPS)
def test_whatever_happens_each_pod_there_is_is_asked_by_one_question_at_a_time(
    steps: list[tuple[str, int, set[int]]],
) -> None:
    async def scene(bench: Bench) -> None:
        there: dict[Key, set[int]] = {}
        for what, number, pods in steps:
            key = Key("tools", f"group-{number}")
            names = {f"search-{10 * number + pod}" for pod in pods}
            if what in ("pods", "ready"):
                there[key] = {10 * number + pod for pod in pods}
                ready = what == "ready"
                bench.poller.set_pods(key, [target(each, ready=ready) for each in there[key]])
            elif what == "hang":
                bench.pods.hang = names
            elif what == "refuse":
                bench.pods.refuse = names
            elif what == "moved":
                moved = [target(each, ip=f"10.0.{min(pods)}.1") for each in there.get(key, ())]
                bench.poller.set_pods(key, moved)
            elif what == "closely":
                bench.poller.watch_closely(key, 10)
            elif what == "remove":
                there.pop(key, None)
                bench.poller.remove(key)
            else:
                await asyncio.sleep(number / 4)
        assert bench.pods.most_at_once <= 1
        bench.pods.hang.clear()
        bench.pods.refuse.clear()
        await asyncio.sleep(8.5)
        for key, numbers in there.items():
            for number in numbers:
                assert bench.poll(number, key).report == report(f"search-{number}")
        wanted = {f"uid-{number}" for numbers in there.values() for number in numbers}
        since = bench.loop.time()
        await asyncio.sleep(6.5)
        asked = {uid for uid, times in bench.pods.asked.items() if times[-1] >= since}
        assert asked == wanted

    play(scene)


def test_a_slot_is_given_back_once_and_what_waits_starts_in_order() -> None:
    lane, other = Lane(1), Lane(1)
    started: list[int] = []
    slots: list[Slot] = []

    def start(number: int, slot: Slot) -> None:
        started.append(number)
        slots.append(slot)

    for number in range(3):
        lane.enter(functools.partial(start, number))
    assert started == [0]
    slots[0].give_back()
    slots[0].give_back()
    assert started == [0, 1]
    slots[1].move(other)
    slots[1].move(other)
    assert started == [0, 1, 2]
    assert (lane.busy, other.busy) == (1, 1)
    slots[1].give_back()
    slots[2].give_back()
    assert (lane.busy, other.busy) == (0, 0)
