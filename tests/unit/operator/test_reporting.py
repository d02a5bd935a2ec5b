"""When a status is written, when it waits, and what is told with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.unit.operator.observations import LONG_AGO, NOW, deployment, never, report

from mcpgroup_api import config_hash
from mcpgroup_operator import errors, names
from mcpgroup_operator.acceptance import accepted
from mcpgroup_operator.conditions import Reason, no
from mcpgroup_operator.kinds import CONFIG_MAP, DEPLOYMENT, GROUP, POD
from mcpgroup_operator.metrics import Metrics
from mcpgroup_operator.reporting import Reporter
from mcpgroup_operator.reports import Poll
from mcpgroup_operator.status import rfc3339
from mcpgroup_operator.store import Key, Store

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcpgroup_operator.client import Client
    from mcpgroup_operator.conditions import Finding
    from mcpgroup_operator.polling import Poller, Target

KEY = Key("tools", "search")
FILE = "a file"
HASH = config_hash(FILE.encode())


class Server:
    """Takes applies and Events, and counts versions; `refuses` is raised instead."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.version = 100
        self.statuses: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.refuses: errors.ApiError | None = None
        self.relabelled: dict[str, str] | None = None

    async def apply(
        self, manifest: dict[str, Any], *, force: bool, subresource: str
    ) -> dict[str, Any]:
        assert (force, subresource) == (True, "status")
        assert manifest["metadata"]["uid"] == "uid-search"
        if self.refuses is not None:
            raise self.refuses
        self.statuses.append(manifest["status"])
        live = {**cast("Any", self.store.group(KEY)), "status": manifest["status"]}
        if self.relabelled is not None:
            live["metadata"] = {**live["metadata"], "labels": self.relabelled}
            self.version += 100
        return self.versioned(live)

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        if self.refuses is not None:
            raise self.refuses
        self.events.append(manifest)
        return manifest

    def versioned(self, item: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        metadata = {**item["metadata"], "resourceVersion": str(self.version)}
        return {**item, "metadata": metadata}


class Polls:
    """In place of the poller."""

    def __init__(self) -> None:
        self.of: dict[str, Poll] = {}
        self.targets: list[str] = []
        self.watched: list[float] = []
        self.removed: list[Key] = []

    def set_pods(self, key: Key, targets: Iterable[Target]) -> None:
        self.targets = [target.name for target in targets]

    def poll_of(self, key: Key, uid: str) -> Poll | None:
        return self.of.get(uid)

    def watch_closely(self, key: Key, seconds: float) -> None:
        self.watched.append(seconds)

    def remove(self, key: Key) -> None:
        self.removed.append(key)


class Bench:
    """A group with two Ready pods, each of which says that it is well."""

    def __init__(self) -> None:
        self.now = NOW
        self.store = Store()
        self.server = Server(self.store)
        self.polls = Polls()
        self.metrics = Metrics("1")
        self.reporter = self.new_reporter()
        meta = {"namespace": "tools", "name": "search", "labels": names.labels("search")}
        self.group: dict[str, Any] = {
            "apiVersion": GROUP.api_version,
            "kind": GROUP.name,
            "metadata": {**meta, "uid": "uid-search", "generation": 1},
            "spec": {"replicas": 2},
        }
        self.put(GROUP, self.group)
        self.put(CONFIG_MAP, {"metadata": meta, "data": {names.CONFIG_KEY: FILE}})
        self.put(DEPLOYMENT, {**deployment(), "metadata": {**meta, "generation": 4}})
        for name in ("search-1", "search-2"):
            self.put(POD, self.pod(name))
            self.says(name)

    def new_reporter(self) -> Reporter:
        """As after a start of the operator."""
        return Reporter(
            cast("Client", self.server),
            self.store,
            cast("Poller", self.polls),
            self.metrics,
            identity="operator-1",
            clock=lambda: self.now,
            wall_clock=lambda: self.now,
        )

    def put(self, kind: Any, item: dict[str, Any]) -> None:
        self.store.put(kind, self.server.versioned(item))

    def pod(self, name: str, **metadata: Any) -> dict[str, Any]:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(LONG_AGO)}
        return {
            "metadata": {
                "namespace": "tools",
                "name": name,
                "uid": f"uid-{name}",
                "labels": names.labels("search"),
                **metadata,
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [ready]},
        }

    def says(self, name: str, **facts: Any) -> None:
        facts = {"config_hash": HASH, **facts}
        self.polls.of[f"uid-{name}"] = Poll(report(name, **facts))

    def report(
        self, finding: Finding | None = None, reconciled: dict[str, Any] | None = None
    ) -> float | None:
        observed = self.reporter.observe(KEY, finding or accepted())
        found = reconciled or self.store.group(KEY)
        return asyncio.run(self.reporter.report(KEY, found or self.group, observed))

    @property
    def reasons(self) -> list[str]:
        return [event["reason"] for event in self.server.events]


def test_a_status_speaks_of_the_generation_that_was_reconciled() -> None:
    bench = Bench()
    reconciled = bench.store.group(KEY)
    newer = {**bench.group, "metadata": {**bench.group["metadata"], "generation": 2}}
    bench.put(GROUP, newer)
    bench.report(reconciled=reconciled)
    found = bench.store.group(KEY)
    assert found is not None
    assert found["status"]["observedGeneration"] == 1


def test_another_group_of_that_name_gets_no_status_of_the_one_before() -> None:
    bench = Bench()
    reconciled = bench.store.group(KEY)
    bench.put(GROUP, {**bench.group, "metadata": {**bench.group["metadata"], "uid": "another"}})
    assert bench.report(reconciled=reconciled) is None
    found = bench.store.group(KEY)
    assert found is not None
    assert "status" not in found or not found["status"]


def test_a_status_is_written_once_and_not_again_while_nothing_changes() -> None:
    bench = Bench()
    assert bench.report() is None
    assert bench.server.statuses[0]["state"] == "Healthy"
    for _ in range(20):
        bench.now += 60
        assert bench.report() is None
    assert len(bench.server.statuses) == 1
    assert bench.server.events == []


def test_a_condition_that_somebody_else_adds_is_no_reason_to_write() -> None:
    bench = Bench()
    bench.report()
    live = cast("Any", bench.store.group(KEY))
    others = [{"type": "Audited", "status": "True"}, *reversed(live["status"]["conditions"])]
    bench.put(GROUP, {**live, "status": {**live["status"], "conditions": others}})
    for _ in range(5):
        bench.now += 60
        assert bench.report() is None
    assert len(bench.server.statuses) == 1


def test_a_change_waits_for_its_turn_and_the_last_state_is_written() -> None:
    bench = Bench()
    bench.report()
    bench.now += 1
    bench.says("search-2", state="Partial")
    assert bench.report() == 4
    bench.now += 2
    bench.says("search-2", state="Degraded")
    assert bench.report() == 2
    bench.now += 2
    assert bench.report() is None
    assert [status["state"] for status in bench.server.statuses] == ["Healthy", "Degraded"]
    assert bench.reasons == ["StatesDiffer", "Degraded"]


def test_a_transition_of_ready_is_written_at_once() -> None:
    bench = Bench()
    bench.report()
    bench.now += 0.1
    bench.report(no(Reason.INVALID_SPEC, "spec.members: none"))
    assert len(bench.server.statuses) == 2
    assert bench.reasons == ["InvalidSpec"]


def test_a_change_that_is_taken_back_in_time_is_never_written() -> None:
    bench = Bench()
    bench.report()
    bench.now += 1
    bench.says("search-2", state="Partial")
    bench.report()
    bench.says("search-2")
    bench.now += 60
    assert bench.report() is None
    assert len(bench.server.statuses) == 1


def test_an_operator_that_has_just_started_takes_nothing_back() -> None:
    bench = Bench()
    bench.report()
    bench.now += 60
    bench.reporter = bench.new_reporter()
    for misses in range(3):
        bench.polls.of["uid-search-2"] = never(misses)
        wait = bench.report()
        assert wait is not None
        assert 0 < wait <= 1
    assert len(bench.server.statuses) == 1
    bench.says("search-2")
    assert bench.report() is None
    assert len(bench.server.statuses) == 1


def test_a_pod_that_stays_silent_after_a_start_is_told_in_the_end() -> None:
    bench = Bench()
    bench.report()
    bench.reporter = bench.new_reporter()
    bench.polls.of["uid-search-2"] = never()
    bench.report()
    assert len(bench.server.statuses) == 2
    assert bench.server.statuses[1]["gateways"][1]["state"] == "Unknown"


def test_a_group_without_a_status_gets_one_though_its_pods_were_not_asked() -> None:
    bench = Bench()
    bench.polls.of.clear()
    bench.report()
    assert len(bench.server.statuses) == 1


def test_a_pod_that_is_not_the_gateways_is_neither_asked_nor_counted() -> None:
    bench = Bench()
    labels = {names.GROUP_LABEL: "search"}
    bench.put(POD, bench.pod("debug", labels=labels))
    bench.put(POD, bench.pod("search-0", deletionTimestamp="2026-11-30T12:00:00Z"))
    bench.report()
    assert bench.polls.targets == ["search-1", "search-2"]
    rows = bench.server.statuses[0]["gateways"]
    assert [row["pod"] for row in rows] == ["search-1", "search-2"]


def test_a_write_that_fails_is_tried_again_and_tells_nothing_before() -> None:
    bench = Bench()
    bench.report()
    bench.now += 60
    bench.says("search-2", state="Partial")
    bench.server.refuses = errors.ServerError("apply", 500, "no")
    with pytest.raises(errors.ServerError):
        bench.report()
    bench.server.refuses = None
    bench.report()
    assert len(bench.server.statuses) == 2
    assert bench.reasons == ["StatesDiffer", "Partial"]


def test_a_new_file_makes_its_replicas_be_watched_and_the_same_file_does_not() -> None:
    bench = Bench()
    bench.report()
    bench.report()
    assert bench.polls.watched == []
    meta = {"namespace": "tools", "name": "search", "labels": names.labels("search")}
    bench.put(CONFIG_MAP, {"metadata": meta, "data": {names.CONFIG_KEY: "another file"}})
    bench.report()
    bench.report()
    assert bench.polls.watched == [10]


def test_a_replica_that_flaps_posts_a_bounded_number_of_events() -> None:
    bench = Bench()
    bench.report()
    for number in range(200):
        bench.now += 6
        bench.says("search-2", circuit_open=number % 2 == 0)
        bench.report()
    assert len(bench.server.statuses) == 201
    assert 25 < len(bench.server.events) <= 25 + 200 * 6 / 300


def test_another_operators_group_is_told_once() -> None:
    bench = Bench()
    for _ in range(3):
        asyncio.run(bench.reporter.managed_by_other(KEY, "other.release"))
    assert bench.reasons == ["ManagedByOther"]
    bench.reporter = bench.new_reporter()
    bench.now += 60
    asyncio.run(bench.reporter.managed_by_other(KEY, "other.release"))
    first, second = bench.server.events
    assert first["metadata"]["name"] == second["metadata"]["name"]  # the API server refuses it
    assert bench.server.statuses == []


def test_another_operators_group_is_neither_polled_nor_measured_any_more() -> None:
    bench = Bench()
    bench.report()
    asyncio.run(bench.reporter.managed_by_other(KEY, "other.release"))
    assert bench.polls.removed == [KEY]
    assert b'group="search"' not in bench.metrics.exposition()


def test_a_group_that_is_made_anew_is_told_of_once_more() -> None:
    bench = Bench()
    asyncio.run(bench.reporter.managed_by_other(KEY, "other.release"))
    bench.reporter.forget(KEY)
    asyncio.run(bench.reporter.managed_by_other(KEY, "other.release"))
    assert bench.reasons == ["ManagedByOther", "ManagedByOther"]


def test_the_answer_to_a_write_does_not_keep_a_group_that_is_selected_no_more() -> None:
    """Its label was taken away at version 150; the status was written after that, at 207."""
    bench = Bench()
    bench.server.relabelled = {"served-by": "another"}
    bench.report()
    gone = {"metadata": {**cast("Any", bench.group["metadata"]), "resourceVersion": "150"}}
    assert bench.store.remove(GROUP, gone) == {KEY}
    assert bench.store.group(KEY) is None


def test_a_group_that_is_gone_leaves_nothing() -> None:
    bench = Bench()
    bench.report()
    bench.reporter.forget(KEY)
    assert bench.polls.removed == [KEY]
    bench.store.remove(GROUP, cast("Any", bench.store.group(KEY)))
    assert bench.report() is None
    assert len(bench.server.statuses) == 1


def test_until_it_has_asked_every_pod_its_metrics_say_what_the_status_says() -> None:
    bench = Bench()
    bench.report()
    bench.metrics = Metrics("1")
    bench.reporter = bench.new_reporter()
    bench.polls.of.clear()

    bench.report()

    ready = 'group_condition{group_namespace="tools",group="search",condition="Ready"} 1\n'
    assert ready in bench.metrics.exposition().decode()
