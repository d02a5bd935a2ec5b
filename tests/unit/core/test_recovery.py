from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.groups import Scene

from mcpgroup_gateway.core import recovery
from mcpgroup_gateway.core.endpoint import State
from mcpgroup_gateway.core.events import RotationChanged
from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.core.policy import GroupPolicy, HealthPolicy, RecoveryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

POLICY = RecoveryPolicy(initial_backoff_seconds=1, max_backoff_seconds=60)


def wait(outage: float, *, http_probe: bool = False, jitter: float = 0.0) -> float:
    return recovery.wait(outage, POLICY, http_probe=http_probe, interval_seconds=10, jitter=jitter)


def test_the_wait_is_a_third_of_the_outage_between_the_bounds() -> None:
    assert [wait(outage) for outage in (0, 2, 6, 30, 180, 1e6)] == [1, 1, 2, 10, 60, 60]


def test_http_probes_wait_for_an_interval_at_most() -> None:
    assert [wait(outage, http_probe=True) for outage in (0, 15, 1e6)] == [1, 5, 10]


def test_jitter_takes_off_up_to_a_fifth() -> None:
    assert wait(30, jitter=1) == pytest.approx(8)
    assert recovery.regular(10, jitter=1) == pytest.approx(9)


def test_regular_probes_keep_a_margin_for_timers_that_are_late() -> None:
    assert recovery.regular(10, jitter=0) == pytest.approx(9.8)


@given(
    st.floats(0, 2000),
    st.floats(0.1, 5),
    st.floats(5, 100),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_recovery_lags_an_outage_by_a_third_of_it_or_the_first_backoff(
    outage: float, initial: float, longest: float, http_probe: bool, seed: int
) -> None:
    policy = RecoveryPolicy(initial, longest)
    rng = random.Random(seed)  # noqa: S311
    now = 0.0
    while now < outage:
        now += recovery.wait(
            now, policy, http_probe=http_probe, interval_seconds=10, jitter=rng.random()
        )
    assert now - outage <= max(outage / 3, initial) + 1e-9


class Supervised:
    """One member under a supervisor that does what `next_wait` says, in simulated time.

    `is_up(seconds)` says whether it answers. Probes and starts end at once, but for probes that
    hang for the probe timeout when `hangs`.
    """

    def __init__(
        self,
        is_up: Callable[[float], bool],
        *,
        health: HealthPolicy,
        hangs: bool = False,
        source: str = "stdio",
        seed: int = 0,
    ) -> None:
        policy = GroupPolicy("g", ("a", "b"), health=health, recovery=POLICY)
        self.scene = Scene("a", "b", policy=policy, seed=seed, source=source)
        self.began = self.scene.now
        self._is_up_at = is_up
        self.health, self.hangs = health, hangs
        self.outs: list[float] = []
        self.ins: list[float] = []

    def is_up(self) -> bool:
        return self._is_up_at(self.scene.now - self.began)

    def run(self, seconds: float) -> None:
        scene, group = self.scene, self.scene.group
        while True:
            due = scene.now + group.next_wait("a")
            if due > self.began + seconds:
                break
            scene.now = due
            if scene["a"].state is State.FAILED:
                scene.start("a", None if self.is_up() else Failure.START_FAILED)
            else:
                self.probe()
            for event in scene.told(RotationChanged):
                (self.outs if event.to == "out" else self.ins).append(scene.now - self.began)
            scene.events.clear()

    def probe(self) -> None:
        scene = self.scene
        if self.is_up() or not self.hangs:
            scene.probe("a", None if self.is_up() else Failure.REFUSED)
            return
        probe = scene.group.probe_started("a")
        scene.now += self.health.timeout_seconds
        scene.group.probe_failed(probe, Failure.PROBE_TIMEOUT, reason="hangs")


@pytest.mark.parametrize("interval", [1, 10])
@pytest.mark.parametrize("seed", range(5))
def test_a_member_flapping_every_seven_seconds_leaves_rotation_five_times_at_most(
    interval: float, seed: int
) -> None:
    health = HealthPolicy(interval_seconds=interval, timeout_seconds=1)
    flapping = Supervised(lambda at: int(at / 7) % 2 == 0, health=health, seed=seed)
    flapping.run(300)
    # Probes ten seconds apart need not see two failures in a row.
    assert int(interval == 1) <= len(flapping.outs) <= 5


@pytest.mark.parametrize("seed", range(5))
def test_a_member_flapping_under_calls_leaves_rotation_five_times_at_most(seed: int) -> None:
    flapping = Supervised(lambda at: int(at / 7) % 2 == 0, health=HealthPolicy(), seed=seed)
    scene, outs = flapping.scene, 0
    for step in range(1, 3000):
        flapping.run(step / 10)
        scene.now = flapping.began + step / 10
        if scene.group.is_selectable(scene["a"], scene.now):
            scene.call("a", None if flapping.is_up() else Failure.RESET)
        outs += sum(event.to == "out" for event in scene.told(RotationChanged))
        scene.events.clear()
    assert 1 <= outs + len(flapping.outs) <= 5


@settings(max_examples=50)
@given(
    st.floats(0, 100),
    st.integers(1, 4),
    st.floats(1, 20),
    st.floats(0, 1),
    st.integers(0, 2**32),
)
def test_a_member_that_hangs_is_out_within_its_intervals_and_one_timeout(
    hangs_at: float, threshold: int, interval: float, timeout_share: float, seed: int
) -> None:
    timeout = interval * timeout_share
    health = HealthPolicy(
        interval_seconds=interval, timeout_seconds=timeout, unhealthy_threshold=threshold
    )
    member = Supervised(lambda at: at < hangs_at, health=health, hangs=True, seed=seed)
    member.run(hangs_at + (threshold + 2) * (interval + timeout))
    assert member.outs[0] - hangs_at <= interval * threshold + timeout + 1e-6


@settings(max_examples=50)
@given(
    st.floats(20, 600),
    st.integers(1, 5),
    st.sampled_from(["stdio", "http"]),
    st.integers(0, 2**32),
)
def test_a_member_that_answers_again_is_back_within_a_third_of_its_outage(
    outage: float, healthy: int, source: str, seed: int
) -> None:
    health = HealthPolicy(healthy_threshold=healthy)
    member = Supervised(
        lambda at: not 5 <= at < 5 + outage, health=health, source=source, seed=seed
    )
    member.run(5 + outage * 2)
    assert len(member.outs) == len(member.ins) == 1
    # After the first success the others follow at the first backoff.
    assert member.ins[0] - (5 + outage) <= max(outage / 3, 1) + (healthy - 1) * 1.0 + 1e-6


def test_a_member_that_cannot_start_for_fifteen_seconds_is_back_within_ten() -> None:
    scene = Scene("a", "b")
    scene.group.exited("a", reason="killed")
    back = 0.0
    while not back:
        scene.now += scene.group.next_wait("a")
        up = scene.now >= 1015
        scene.start("a", None if up else Failure.START_FAILED)
        back = scene.now if up else 0.0
    assert scene["a"].rotation.in_rotation
    assert back <= 1025


def test_a_killed_member_is_started_again_within_the_first_backoff() -> None:
    scene = Scene("a", "b")
    scene.now += 500
    scene.group.exited("a", reason="killed")
    assert 0.8 <= scene.group.next_wait("a") <= 1


def test_a_member_that_is_stopped_draining_starting_or_cold_is_not_due() -> None:
    scene = Scene("a", "b", "c", "d")
    scene.group.stop("a")
    scene.group.drain("b")
    scene.group.start_began("c")
    scene.group.cold("d")
    assert [scene.group.next_wait(e) for e in "abcd"] == [math.inf] * 4


def test_a_member_that_went_cold_while_it_was_out_is_started_to_come_back() -> None:
    scene = Scene("a", "b")
    scene.evict("a")
    scene.group.cold("a")
    assert scene.group.next_wait("a") <= 1


def test_the_wait_counts_down_and_is_not_pushed_back_by_asking() -> None:
    scene = Scene("a")
    first = scene.group.next_wait("a")
    scene.now += 4
    assert scene.group.next_wait("a") == pytest.approx(first - 4)
    scene.now += 100
    assert scene.group.next_wait("a") == 0
