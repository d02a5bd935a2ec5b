"""Every metric of the operator, in a registry of its own.

Label values come from kinds, verbs, reasons and the names of groups; a group that is gone takes
its series with it. The names follow prometheus-operator and client-go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from mcpgroup_operator.group_metrics import GroupMetrics
from mcpgroup_operator.kinds import WATCHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client.core import Metric

    from mcpgroup_operator.watches import Watch

_PREFIX: Final = "mcpgroup_operator_"
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Observer of the client, the queue, the poller and everything else that counts."""

    def __init__(self, version: str) -> None:
        self.registry = registry = CollectorRegistry()
        info = Gauge(
            f"{_PREFIX}build_info", "The version that runs.", ["version"], registry=registry
        )
        info.labels(version).set(1)
        self._requests = Counter(
            f"{_PREFIX}api_requests",
            "Requests to the API server.",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self._request_seconds = Histogram(
            f"{_PREFIX}api_request_duration_seconds",
            "How long requests to the API server took.",
            ["verb"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._reconciles = Counter(
            f"{_PREFIX}reconcile_operations", "Reconciles of a group.", registry=registry
        )
        self._reconcile_errors = Counter(
            f"{_PREFIX}reconcile_errors",
            "Reconciles that failed and are tried again.",
            ["reason"],
            registry=registry,
        )
        self._reconcile_seconds = Histogram(
            f"{_PREFIX}reconcile_duration_seconds",
            "How long a reconcile took.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._status_updates = Counter(
            f"{_PREFIX}status_update_operations", "Writes of a group's status.", registry=registry
        )
        self._status_errors = Counter(
            f"{_PREFIX}status_update_errors",
            "Writes of a group's status that failed.",
            registry=registry,
        )
        self._child_writes = Counter(
            f"{_PREFIX}child_writes",
            "Writes of what belongs to a group.",
            ["resource", "action"],
            registry=registry,
        )
        self._queue_adds = Counter(
            f"{_PREFIX}workqueue_adds", "Groups put into the work queue.", registry=registry
        )
        self._queue_retries = Counter(
            f"{_PREFIX}workqueue_retries",
            "Groups put back into the work queue after a failure.",
            registry=registry,
        )
        self._watch_events = Counter(
            f"{_PREFIX}watch_events", "Events that watches brought.", ["kind"], registry=registry
        )
        self._watch_errors = Counter(
            f"{_PREFIX}watch_operations_failed",
            "Lists and watches of the informer that the API server refused.",
            ["kind"],
            registry=registry,
        )
        self._watch_restarts = Counter(
            f"{_PREFIX}watch_restarts",
            "Times a watch was found dead or deaf and the informer was started again.",
            ["kind"],
            registry=registry,
        )
        self._lists = Counter(
            f"{_PREFIX}list_operations",
            "Lists that refreshed the store.",
            ["kind"],
            registry=registry,
        )
        self._list_errors = Counter(
            f"{_PREFIX}list_operations_failed",
            "Lists that failed; the store keeps what it has.",
            ["kind"],
            registry=registry,
        )
        self._polls = Counter(
            f"{_PREFIX}pod_polls", "Questions to gateway pods.", ["result"], registry=registry
        )
        self._events = Counter(
            f"{_PREFIX}events_posted", "Kubernetes Events.", ["result"], registry=registry
        )
        for kind in WATCHED:
            for family in (
                self._watch_events,
                self._watch_errors,
                self._watch_restarts,
                self._lists,
                self._list_errors,
            ):
                family.labels(kind.plural)
        for result in ("ok", "unreadable", "unreachable"):
            self._polls.labels(result)
        for result in ("ok", "failed"):
            self._events.labels(result)
        self.groups = GroupMetrics(_PREFIX)

    def collect_live(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Adds gauges that are read when they are asked for."""
        self.registry.register(_Live(read))

    def exposition(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry) + self.groups.exposition().encode()

    # --- the API server

    def requested(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """A request to the API server ended; code "error" when there was no answer."""
        self._requests.labels(verb, resource, code).inc()
        self._request_seconds.labels(verb).observe(seconds)

    def watch_event(self, plural: str) -> None:
        """A watch brought an event."""
        self._watch_events.labels(plural).inc()

    def watch_failed(self, plural: str) -> None:
        """The API server refused a list or watch of the informer."""
        self._watch_errors.labels(plural).inc()

    def watch_restarted(self, plural: str) -> None:
        """A watch had to be brought back."""
        self._watch_restarts.labels(plural).inc()

    def listed(self, plural: str, *, ok: bool) -> None:
        """A list of the store's ended."""
        (self._lists if ok else self._list_errors).labels(plural).inc()

    # --- the queue

    def added(self) -> None:
        """A group was put into the queue."""
        self._queue_adds.inc()

    def retried(self) -> None:
        """A group was put back after a failure."""
        self._queue_retries.inc()

    # --- reconciling

    def reconciled(self, seconds: float) -> None:
        """A reconcile ended, well or not."""
        self._reconciles.inc()
        self._reconcile_seconds.observe(seconds)

    def reconcile_failed(self, reason: str) -> None:
        """It is tried again."""
        self._reconcile_errors.labels(reason).inc()

    def child_written(self, resource: str, action: str) -> None:
        """Something that belongs to a group was applied, patched or deleted."""
        self._child_writes.labels(resource, action).inc()

    def status_written(self, *, ok: bool) -> None:
        """The status of a group was written, or that failed."""
        (self._status_updates if ok else self._status_errors).inc()

    def polled(self, result: str) -> None:
        """A gateway pod was asked: "ok", "unreadable" or "unreachable"."""
        self._polls.labels(result).inc()

    def event_posted(self, *, ok: bool) -> None:
        """A Kubernetes Event was posted, or that failed."""
        self._events.labels("ok" if ok else "failed").inc()


class _Live:
    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()


def live_gauges(
    *,
    leading: bool,
    queue_depth: int,
    unfinished_seconds: float,
    objects: Mapping[str, int],
    watch_ages: Mapping[Watch, float],
) -> Iterable[Metric]:
    """Gauges of one moment; `objects` counts what the store holds by kind."""
    yield GaugeMetricFamily(f"{_PREFIX}leader", "1 while this process leads.", value=leading)
    yield GaugeMetricFamily(
        f"{_PREFIX}workqueue_depth", "Groups that wait for a worker.", value=queue_depth
    )
    yield GaugeMetricFamily(
        f"{_PREFIX}workqueue_unfinished_work_seconds",
        "How long the oldest reconcile under way has taken.",
        value=unfinished_seconds,
    )
    known = GaugeMetricFamily(
        f"{_PREFIX}managed_resources", "Objects in the store.", labels=["kind"]
    )
    for plural, count in objects.items():
        known.add_metric([plural], count)
    yield known
    oldest: dict[str, float] = {}
    for watch, age in watch_ages.items():
        oldest[watch.kind.plural] = max(age, oldest.get(watch.kind.plural, 0.0))
    ages = GaugeMetricFamily(
        f"{_PREFIX}watch_last_event_age_seconds",
        "Seconds since a watch heard anything, bookmarks included; the oldest of a kind.",
        labels=["kind"],
    )
    for plural, age in oldest.items():
        ages.add_metric([plural], age)
    yield ages
