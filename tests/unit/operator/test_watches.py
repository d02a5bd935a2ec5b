"""Watches that nobody asks for any more are noticed; those that are quiet or retried are not."""

from __future__ import annotations

import pytest

from mcpgroup_operator.kinds import CONFIG_MAP, DEPLOYMENT, GROUP, WATCHED
from mcpgroup_operator.names import GROUP_LABEL
from mcpgroup_operator.watches import UNANSWERED_SECONDS, Scope, Watch, WatchMonitor

GROUPS = Watch(GROUP, None)
MAPS = Watch(CONFIG_MAP, None)
LIMIT = 200.0


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def monitor(clock: Clock) -> WatchMonitor:
    return WatchMonitor([GROUPS, MAPS], clock)


def test_everything_is_watched_everywhere_or_in_each_namespace() -> None:
    assert Scope((), "").watches() == [Watch(kind, None) for kind in WATCHED]
    some = Scope(("a", "b"), "").watches()
    assert len(some) == 2 * len(WATCHED)
    assert Watch(DEPLOYMENT, "b") in some


def test_a_selector_limits_groups_and_the_label_everything_else() -> None:
    scope = Scope((), "team=a")
    assert scope.label_selector(GROUP) == "team=a"
    assert scope.label_selector(CONFIG_MAP) == GROUP_LABEL


def test_what_is_not_watched_is_not_known(monitor: WatchMonitor) -> None:
    assert GROUPS in monitor
    assert Watch(GROUP, "a") not in monitor


def test_the_age_counts_from_what_was_heard_last(monitor: WatchMonitor, clock: Clock) -> None:
    clock.now += 5
    monitor.hear(GROUPS)
    clock.now += 2
    assert monitor.ages() == {GROUPS: 2, MAPS: 7}


def test_an_open_stream_may_be_quiet_until_the_limit(monitor: WatchMonitor, clock: Clock) -> None:
    monitor.begin(GROUPS)
    monitor.begin(MAPS)
    clock.now += LIMIT
    assert monitor.lost(LIMIT) == {}
    clock.now += 1
    assert monitor.lost(LIMIT) == {GROUPS: "silent for 201 s", MAPS: "silent for 201 s"}


def test_a_watch_that_nobody_asks_for_is_lost(monitor: WatchMonitor, clock: Clock) -> None:
    begun = monitor.begin(GROUPS)
    clock.now += 10
    monitor.end(begun)
    other = monitor.begin(MAPS)
    clock.now += UNANSWERED_SECONDS
    assert monitor.lost(LIMIT) == {}
    clock.now += 1
    assert monitor.lost(LIMIT) == {GROUPS: "its task ended"}
    monitor.end(other)
    clock.now += UNANSWERED_SECONDS + 1
    assert set(monitor.lost(LIMIT)) == {GROUPS, MAPS}


def test_a_request_that_waits_for_its_time_is_asked_for(
    monitor: WatchMonitor, clock: Clock
) -> None:
    monitor.begin(GROUPS)
    monitor.begin(MAPS)
    clock.now += UNANSWERED_SECONDS + 1
    assert monitor.lost(LIMIT) == {}


def test_a_watch_that_is_refused_again_and_again_is_not_lost(
    monitor: WatchMonitor, clock: Clock
) -> None:
    monitor.begin(MAPS)
    for _ in range(100):
        begun = monitor.begin(GROUPS)
        clock.now += 5
        monitor.sent(GROUPS)
        monitor.sent(MAPS)
        monitor.end(begun)
    assert monitor.lost(LIMIT) == {}
    assert monitor.age(GROUPS) == 500


def test_a_new_start_gives_time_and_keeps_ages(monitor: WatchMonitor, clock: Clock) -> None:
    old = monitor.begin(GROUPS)
    clock.now += LIMIT + 1
    assert set(monitor.lost(LIMIT)) == {GROUPS, MAPS}
    monitor.started()
    assert monitor.lost(LIMIT) == {}
    assert monitor.age(GROUPS) == LIMIT + 1
    new = monitor.begin(GROUPS)
    monitor.end(old)
    clock.now += UNANSWERED_SECONDS + 1
    assert set(monitor.lost(LIMIT)) == {MAPS}, "what ends late is of the one before"
    monitor.end(new)


def test_a_watch_says_what_it_is() -> None:
    assert str(Watch(DEPLOYMENT, None)) == "watch of apps/deployments in all namespaces"
    assert str(Watch(CONFIG_MAP, "a")) == "watch of configmaps in a"


def test_a_watch_that_is_refused_is_not_deaf(monitor: WatchMonitor, clock: Clock) -> None:
    clock.now += LIMIT
    monitor.refuse(GROUPS)
    clock.now += 1
    assert monitor.deaf(LIMIT) == [MAPS]
    assert monitor.age(GROUPS) == LIMIT + 1
    clock.now += LIMIT
    assert monitor.deaf(LIMIT) == [GROUPS, MAPS]
