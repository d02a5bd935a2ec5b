"""What becomes of one reconcile: when the group is looked at again, and that no fault of one group
stops the others."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.operator.virtual_time import VirtualLoop, run

from mcpgroup_operator import errors
from mcpgroup_operator.acceptance import accepted
from mcpgroup_operator.applying import GroupGoneError, OtherOperatorError
from mcpgroup_operator.deploying import Deployed
from mcpgroup_operator.kinds import GROUP
from mcpgroup_operator.metrics import Metrics
from mcpgroup_operator.reconciling import BLOCKED_SECONDS, Reconciler
from mcpgroup_operator.store import Key, Store
from mcpgroup_operator.workqueue import Workers, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

GOOD, BAD = Key("tools", "good"), Key("tools", "bad")
RESYNC = 600.0


def group(key: Key, version: int = 1, **metadata: Any) -> dict[str, Any]:
    place = {"namespace": key.namespace, "name": key.name, "uid": f"uid-{version}"}
    return {"metadata": {**place, "resourceVersion": str(version), **metadata}, "spec": {}}


class Parts:
    """Stands for the client, the deployer, the refresher and the reporter."""

    def __init__(self) -> None:
        self.deploys: list[tuple[Key, float]] = []
        self.outcomes: dict[Key, list[Any]] = {}
        self.live: dict[str, Any] | None = None
        self.refresh_in: float | None = None
        self.report_in: float | None = None
        self.reports: list[Key] = []
        self.forgotten: list[Key] = []
        self.others: list[str] = []
        self.telling_fails: Exception | None = None
        self.edit: Callable[[], object] | None = None

    async def deploy(self, key: Key, found: dict[str, Any]) -> Deployed:
        assert found["metadata"]["name"] == key.name
        self.deploys.append((key, asyncio.get_running_loop().time()))
        outcomes = self.outcomes.get(key) or [Deployed(accepted())]
        outcome = outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]
        if isinstance(outcome, BaseException):
            raise outcome
        if isinstance(outcome, float):
            await asyncio.sleep(outcome)
            return Deployed(accepted())
        assert isinstance(outcome, Deployed)
        return outcome

    async def find(self, *_: Any) -> dict[str, Any] | None:
        return self.live

    def observe(self, key: Key, _: Any) -> Key:
        return key

    async def refresh(self, *_: Any) -> float | None:
        return self.refresh_in

    async def report(self, key: Key, *_: Any) -> float | None:
        self.reports.append(key)
        if self.edit is not None:
            edit, self.edit = self.edit, None
            edit()
        return self.report_in

    def forget(self, key: Key) -> None:
        self.forgotten.append(key)

    async def managed_by_other(self, _: Key, mark: str) -> None:
        if self.telling_fails is not None:
            raise self.telling_fails
        self.others.append(mark)

    def times(self, key: Key) -> list[float]:
        return [at - 1000 for found, at in self.deploys if found == key]


class Scene:
    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.unknown: set[str] = set()
        self.parts = self.stand_in()
        self.store = Store()
        self.metrics = Metrics("test")
        random = Random(1)  # noqa: S311 - jitter
        self.queue: WorkQueue[Key] = WorkQueue(random, self.metrics)
        self.workers = Workers(self.queue, self.work, loop.time, 2)
        self.reconciler = Reconciler(
            self.parts,
            self.store,
            self.parts,
            self.parts,
            self.parts,
            self.metrics,
            random,
            loop.time,
            lambda namespace: namespace not in self.unknown,
            resync_seconds=RESYNC,
        )
        for key in (GOOD, BAD):
            self.store.put(GROUP, group(key))

    def stand_in(self) -> Any:
        """For any of the parts."""
        return Parts()

    async def work(self, key: Key) -> None:
        await self.reconciler.work(key, self.workers)

    def failed(self, reason: str) -> float:
        name = "mcpgroup_operator_reconcile_errors_total"
        return self.metrics.registry.get_sample_value(name, {"reason": reason}) or 0


def scene(play: Callable[[Scene], Awaitable[None]]) -> None:
    async def on_loop(loop: VirtualLoop) -> None:
        s = Scene(loop)
        task = asyncio.create_task(s.workers.run())
        try:
            await play(s)
            assert not task.done(), "the workers go on"
        finally:
            task.cancel()
            await asyncio.wait({task})

    run(on_loop)


def test_a_group_is_looked_at_again_within_the_resync() -> None:
    async def play(s: Scene) -> None:
        s.workers.add(GOOD)
        await asyncio.sleep(RESYNC)
        first, second = s.parts.times(GOOD)
        assert 0.8 * RESYNC <= second - first <= RESYNC
        assert s.parts.reports == [GOOD, GOOD]

    scene(play)


@pytest.mark.parametrize(("refresh", "report"), [(5.0, None), (None, 5.0), (5.0, 7.0), (7.0, 5.0)])
def test_the_earliest_reason_to_look_again_counts(
    refresh: float | None, report: float | None
) -> None:
    async def play(s: Scene) -> None:
        s.parts.refresh_in, s.parts.report_in = refresh, report
        s.workers.add(GOOD)
        await asyncio.sleep(6)
        assert s.parts.times(GOOD) == [0, 5]

    scene(play)


def test_what_nothing_will_tell_is_tried_again_sooner() -> None:
    async def play(s: Scene) -> None:
        s.parts.outcomes[GOOD] = [Deployed(accepted(), blocked=True)]
        s.workers.add(GOOD)
        await asyncio.sleep(1.2 * BLOCKED_SECONDS)
        first, second = s.parts.times(GOOD)
        assert 0.8 * BLOCKED_SECONDS <= second - first <= 1.2 * BLOCKED_SECONDS

    scene(play)


def test_a_group_that_is_gone_or_going_is_forgotten_and_not_looked_at_again() -> None:
    async def play(s: Scene) -> None:
        s.store.put(GROUP, group(GOOD, 2, deletionTimestamp="2026-11-30T12:00:00Z"))
        s.workers.add(GOOD)
        s.workers.add(Key("tools", "unknown"))
        await asyncio.sleep(2 * RESYNC)
        assert s.parts.deploys == []
        assert set(s.parts.forgotten) == {GOOD, Key("tools", "unknown")}

    scene(play)


FAULTS: dict[str, Exception] = {
    "conflict": errors.ConflictError("patch", 409, "no"),
    "busy": errors.BusyError("patch", 503, "no"),
    "server_error": errors.ServerError("patch", 500, "no"),
    "unreachable": errors.UnreachableError("patch", 0, "no"),
    "forbidden": errors.ForbiddenError("list", 403, "no"),
    "not_leading": errors.NotLeadingError(),
    "internal": ZeroDivisionError("a fault of ours"),
}


@pytest.mark.parametrize("reason", FAULTS)
def test_a_failure_is_counted_and_tried_again_until_it_succeeds(reason: str) -> None:
    async def play(s: Scene) -> None:
        s.parts.outcomes[BAD] = [FAULTS[reason]] * 3 + [Deployed(accepted())]
        s.workers.add(BAD)
        await asyncio.sleep(5)
        assert len(s.parts.times(BAD)) == 4
        assert s.failed(reason) == 3
        waits = [b - a for a, b in zip(s.parts.times(BAD), s.parts.times(BAD)[1:], strict=False)]
        assert waits == sorted(waits)

    scene(play)


@pytest.mark.parametrize("reason", ["internal", "server_error"])
def test_a_group_that_always_fails_delays_no_other(reason: str) -> None:
    async def play(s: Scene) -> None:
        s.parts.outcomes[BAD] = [FAULTS[reason]]
        s.workers.add(BAD)
        await asyncio.sleep(500)
        s.workers.add(GOOD)
        await asyncio.sleep(0.01)
        assert s.parts.times(GOOD) == [500]
        assert [key for key in s.parts.reports if key != BAD] == [GOOD]
        assert len(s.parts.times(BAD)) < 30

    scene(play)


def test_a_group_that_takes_long_delays_no_other() -> None:
    async def play(s: Scene) -> None:
        s.parts.outcomes[BAD] = [50.0]
        s.workers.add(BAD)
        s.workers.add(GOOD)
        await asyncio.sleep(1)
        assert s.parts.reports == [GOOD]

    scene(play)


def test_the_server_says_when_to_come_back() -> None:
    async def play(s: Scene) -> None:
        busy = errors.BusyError("patch", 429, "no")
        busy.retry_after = 7
        s.parts.outcomes[BAD] = [busy, Deployed(accepted())]
        s.workers.add(BAD)
        await asyncio.sleep(10)
        assert s.parts.times(BAD) == [0, 7]

    scene(play)


def test_a_namespace_that_ends_is_left_alone() -> None:
    async def play(s: Scene) -> None:
        s.parts.outcomes[BAD] = [errors.NamespaceEndingError("create", 403, "no")]
        s.workers.add(BAD)
        await asyncio.sleep(2 * RESYNC)
        assert s.parts.times(BAD) == [0]
        assert s.failed("namespace_ending") == 0

    scene(play)


def test_a_group_of_another_operator_is_told_and_looked_at_rarely() -> None:
    async def play(s: Scene) -> None:
        s.parts.outcomes[BAD] = [OtherOperatorError("other.release")]
        s.workers.add(BAD)
        await asyncio.sleep(RESYNC - 1)
        assert s.parts.times(BAD) == [0]
        assert s.parts.others == ["other.release"]
        assert s.parts.reports == []
        await asyncio.sleep(2)
        assert len(s.parts.times(BAD)) == 2

    scene(play)


@pytest.mark.parametrize("reason", ["not_leading", "server_error", "internal"])
def test_when_that_cannot_be_told_it_is_a_failure_like_others(reason: str) -> None:
    async def play(s: Scene) -> None:
        s.parts.outcomes[BAD] = [OtherOperatorError("other.release")]
        s.parts.telling_fails = FAULTS[reason]
        s.workers.add(BAD)
        await asyncio.sleep(1)
        assert s.failed(reason) >= 1
        s.parts.telling_fails = None
        await asyncio.sleep(60)
        assert s.parts.others == ["other.release"]

    scene(play)


def test_a_group_that_is_gone_when_its_child_is_made_is_forgotten() -> None:
    async def play(s: Scene) -> None:
        s.parts.outcomes[GOOD] = [GroupGoneError()]
        s.workers.add(GOOD)
        await asyncio.sleep(2 * RESYNC)
        assert s.parts.times(GOOD) == [0]
        assert s.store.group(GOOD) is None
        assert set(s.parts.forgotten) == {GOOD}

    scene(play)


def test_a_group_made_anew_meanwhile_is_begun_from_the_start() -> None:
    async def play(s: Scene) -> None:
        s.parts.live = group(GOOD, 9)
        s.parts.outcomes[GOOD] = [GroupGoneError(), Deployed(accepted())]
        s.workers.add(GOOD)
        await asyncio.sleep(1)
        assert s.parts.times(GOOD) == [0, 0]
        found = s.store.group(GOOD)
        assert found is not None
        assert found["metadata"]["uid"] == "uid-9"
        assert s.parts.forgotten == []

    scene(play)


EDITS: dict[str, dict[str, Any]] = {
    "spec": {"generation": 2},
    "annotation": {"annotations": {"mcpgroup.dev/rotate-keys": "now"}},
    "label": {"labels": {"team": "a"}},
    "deletion": {"deletionTimestamp": "2026-11-30T12:00:00Z"},
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_that_the_answer_to_our_own_write_shows_is_not_lost(edit: str) -> None:
    """Its event is no news to the store any more, so nobody else would ask for the group."""

    async def play(s: Scene) -> None:
        s.store.put(GROUP, group(GOOD, 5))
        changed = {**group(GOOD, 5), "metadata": {**group(GOOD, 5)["metadata"], **EDITS[edit]}}
        changed["metadata"]["resourceVersion"] = "9"
        s.parts.edit = lambda: s.store.put(GROUP, changed)
        s.workers.add(GOOD)
        await asyncio.sleep(1)
        assert s.parts.times(GOOD) == ([0] if edit == "deletion" else [0, 0])
        assert (GOOD in s.parts.forgotten) is (edit == "deletion")

    scene(play)


def test_an_answer_that_shows_no_edit_is_no_reason_to_look_again() -> None:
    async def play(s: Scene) -> None:
        s.store.put(GROUP, group(GOOD, 5))
        answer = {**group(GOOD, 5), "status": {"state": "Healthy"}}
        answer["metadata"]["resourceVersion"] = "9"
        s.parts.edit = lambda: s.store.put(GROUP, answer)
        s.workers.add(GOOD)
        await asyncio.sleep(100)
        assert s.parts.times(GOOD) == [0]

    scene(play)


def test_nothing_is_done_for_a_group_whose_children_are_not_known_yet() -> None:
    async def play(s: Scene) -> None:
        s.unknown = {GOOD.namespace}
        s.workers.add(GOOD)
        await asyncio.sleep(2000)
        assert s.parts.times(GOOD) == []
        assert s.parts.forgotten == []
        s.unknown = set()
        s.workers.add(GOOD)
        await asyncio.sleep(1)
        assert s.parts.times(GOOD) == [2000]

    scene(play)
