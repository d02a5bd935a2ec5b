"""The status of a group whose children or pods cannot be written."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest

from mcpgroup_operator import errors
from mcpgroup_operator.acceptance import accepted
from mcpgroup_operator.conditions import Finding, Reason
from mcpgroup_operator.deploying import Deployed
from mcpgroup_operator.kinds import GROUP
from mcpgroup_operator.metrics import Metrics
from mcpgroup_operator.reconciling import PATIENCE_SECONDS, Reconciler
from mcpgroup_operator.store import Key, Store
from mcpgroup_operator.workqueue import Workers, WorkQueue

if TYPE_CHECKING:
    from mcpgroup_operator.client import Client
    from mcpgroup_operator.deploying import Deployer
    from mcpgroup_operator.refreshing import ConfigRefresher
    from mcpgroup_operator.reporting import Reporter

KEY = Key("tools", "search")
RESYNC = 600.0
WEBHOOK_DOWN = errors.ServerError("patch services", 500, "failed calling webhook")


class Parts:
    """In place of deployer, refresher and reporter; each may raise."""

    def __init__(self) -> None:
        self.deploying: Exception | None = None
        self.refreshing: Exception | None = None
        self.verdicts: list[Finding] = []

    async def deploy(self, key: Key, group: dict[str, Any]) -> Deployed:
        if self.deploying is not None:
            raise self.deploying
        return Deployed(accepted())

    async def refresh(self, key: Key, observed: Finding) -> float | None:
        if self.refreshing is not None:
            raise self.refreshing
        return None

    def observe(self, key: Key, verdict: Finding) -> Finding:
        return verdict

    async def report(self, key: Key, group: dict[str, Any], observed: Finding) -> float | None:
        self.verdicts.append(observed)
        return None

    def forget(self, key: Key) -> None:
        """Nothing is kept."""


class Bench:
    """One group, reconciled by hand."""

    def __init__(self, **status: Any) -> None:
        self.now = 100.0
        self.parts = Parts()
        self.store = Store()
        metadata = {"namespace": KEY.namespace, "name": KEY.name, "uid": "u", "generation": 2}
        metadata["resourceVersion"] = "5"
        self.store.put(GROUP, {"metadata": metadata, "spec": {}, "status": status})
        metrics = Metrics("1")
        random = Random(1)  # noqa: S311 - jitter
        self.queue: WorkQueue[Key] = WorkQueue(random, metrics)
        self.workers = Workers(self.queue, self._nothing, lambda: self.now, 1)
        self.reconciler = Reconciler(
            cast("Client", None),
            self.store,
            cast("Deployer", self.parts),
            cast("ConfigRefresher", self.parts),
            cast("Reporter", self.parts),
            metrics,
            random,
            lambda: self.now,
            lambda _: True,
            resync_seconds=RESYNC,
        )

    async def _nothing(self, key: Key) -> None:
        """Nobody works but by hand."""

    def work(self) -> float:
        """Seconds after which the group is looked at again."""
        asyncio.run(self.reconciler.work(KEY, self.workers))
        due = self.queue.next_due(self.now)
        assert due is not None
        return due - self.now


def condition(generation: int) -> dict[str, Any]:
    return {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": "with a warning",
        "observedGeneration": generation,
    }


def test_a_status_tells_the_truth_also_when_pods_may_not_be_patched() -> None:
    bench = Bench()
    bench.parts.refreshing = errors.ForbiddenError("patch pods/status", 403, "cannot patch")
    assert bench.work() < 1
    assert bench.parts.verdicts == [accepted()]


def test_children_that_cannot_be_written_for_a_moment_change_no_status() -> None:
    bench = Bench()
    bench.parts.deploying = WEBHOOK_DOWN
    bench.work()
    bench.now += PATIENCE_SECONDS - 1
    bench.work()
    assert bench.parts.verdicts == []


@pytest.mark.parametrize(
    ("of_generation", "verdict"),
    [
        (2, Finding("True", "Accepted", "with a warning")),
        (1, Finding("Unknown", Reason.NOT_WRITTEN, f"tried until it works: {WEBHOOK_DOWN}")),
    ],
)
def test_children_that_cannot_be_written_for_long_do_not_freeze_the_status(
    of_generation: int, verdict: Finding
) -> None:
    bench = Bench(conditions=[condition(of_generation)])
    bench.parts.deploying = WEBHOOK_DOWN
    bench.work()
    bench.now += PATIENCE_SECONDS
    bench.work()
    assert bench.parts.verdicts == [verdict]


def test_patience_begins_anew_after_a_success() -> None:
    bench = Bench()
    for failure in (WEBHOOK_DOWN, None, WEBHOOK_DOWN):
        bench.now += PATIENCE_SECONDS
        bench.parts.deploying = failure
        bench.work()
    assert bench.parts.verdicts == [accepted()]
