"""The metrics of one replica (DESIGN section 10), in a registry of their own.

    metrics = Metrics("search")
    metrics.set_members(["a", "b"])
    metrics.bind(replica.snapshot)          # the gauges, read at each scrape
    metrics.request_finished("tools/call", "ok", 0.0123)

Every label value is a word of a vocabulary: methods of the protocol, the words of `words`, members
of the configuration, tools of the catalogue. Nothing that a client sends can create a series.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily

from mcpgroup_gateway import __version__
from mcpgroup_gateway.telemetry import words
from mcpgroup_gateway.telemetry.series import (
    OTHER,
    Counts,
    Durations,
    Vocabulary,
    is_fit_for_a_label,
)
from mcpgroup_gateway.telemetry.snapshot import gauges
from mcpgroup_gateway.wire.protocol import KNOWN_METHODS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric

    from mcpgroup_gateway.telemetry.snapshot import GroupSnapshot

MAX_TOOLS: Final = 200
REQUEST_SECONDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    *(10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
OVERHEAD_SECONDS: Final = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
)
#: Lags remembered, so that a stall between two scrapes is seen: 15 s at the interval below.
LAG_SAMPLES: Final = 30
LAG_INTERVAL_SECONDS: Final = 0.5


class Metrics:
    """Counts what a replica does. Methods are called on the replica's event loop only.

    The methods of the serving path cost well under 1 µs each. A word that is not known counts as
    `_other`; a member that is not (or no longer) configured is not counted.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self.registry = CollectorRegistry()
        self._snapshot: Callable[[], GroupSnapshot] | None = None
        self._lags: deque[float] = deque(maxlen=LAG_SAMPLES)
        self._members = members = Vocabulary(other=None)
        self._tools = tools = Vocabulary((OTHER,))
        methods = Vocabulary((*sorted(KNOWN_METHODS), OTHER))
        outcomes = Vocabulary(words.OUTCOMES)

        self._requests = Counts(
            group,
            "mcpgroup_requests",
            "Client requests, once each.",
            {"method": methods, "outcome": outcomes},
        )
        self._attempts = Counts(
            group,
            "mcpgroup_attempts",
            "Tries on members; a failed-over request has several.",
            {"member": members, "outcome": Vocabulary(words.ATTEMPT_OUTCOMES)},
        )
        self._tool_calls = Counts(
            group, "mcpgroup_tool_calls", "Tool calls.", {"tool": tools, "outcome": outcomes}
        )
        self._selections = Counts(
            group,
            "mcpgroup_selections",
            "Members selected for a try.",
            {"member": members, "reason": Vocabulary(words.SELECTION_REASONS)},
        )
        self._refusals = Counts(
            group,
            "mcpgroup_refusals",
            "Requests that the gateway refused.",
            {"reason": Vocabulary(words.REFUSAL_REASONS)},
        )
        self._failovers = Counts(
            group,
            "mcpgroup_failovers",
            "Requests moved to another member.",
            {"reason": Vocabulary(words.FAILOVER_REASONS)},
        )
        self._retries_exhausted = Counts(
            group, "mcpgroup_retries_exhausted", "Safe calls that no further try was left for."
        )
        self._evictions = Counts(
            group,
            "mcpgroup_evictions",
            "Times a member left rotation.",
            {"member": members, "reason": Vocabulary(words.EVICTION_REASONS)},
        )
        self._rejoins = Counts(
            group, "mcpgroup_rejoins", "Times a member came back.", {"member": members}
        )
        self._circuit = Counts(
            group,
            "mcpgroup_circuit_transitions",
            "Changes of the group circuit.",
            {"to": Vocabulary(("open", "closed"))},
        )
        self._probes = Counts(
            group,
            "mcpgroup_probes",
            "Health probes.",
            {"member": members, "result": Vocabulary(words.PROBE_RESULTS)},
        )
        self._starts = Counts(
            group,
            "mcpgroup_member_starts",
            "Starts of members.",
            {"member": members, "result": Vocabulary(words.START_RESULTS)},
        )
        self._exits = Counts(
            group,
            "mcpgroup_member_exits",
            "Ended processes of members.",
            {"member": members, "reason": Vocabulary(words.EXIT_REASONS)},
        )
        self._sessions_lost = Counts(
            group,
            "mcpgroup_sessions_lost",
            "Client sessions ended other than by DELETE.",
            {"reason": Vocabulary(words.SESSION_LOSSES)},
        )
        self._reloads = Counts(
            group,
            "mcpgroup_config_reloads",
            "Changes of the configuration.",
            {"result": Vocabulary(words.RELOAD_RESULTS)},
        )
        self._request_seconds = Durations(
            group,
            "mcpgroup_request_duration_seconds",
            "From a client request to its answer.",
            REQUEST_SECONDS,
            {"method": methods},
        )
        self._attempt_seconds = Durations(
            group,
            "mcpgroup_attempt_duration_seconds",
            "From a try on a member to its end.",
            REQUEST_SECONDS,
            {"member": members},
        )
        self._overhead_seconds = Durations(
            group,
            "mcpgroup_gateway_overhead_seconds",
            "Time of a request that the gateway itself took.",
            OVERHEAD_SECONDS,
        )
        self._of_members: tuple[Counts | Durations, ...] = (
            *(self._attempts, self._selections, self._evictions, self._rejoins),
            *(self._probes, self._starts, self._exits, self._attempt_seconds),
        )
        self._families: tuple[Counts | Durations, ...] = (
            *(self._requests, self._tool_calls, self._refusals, self._failovers),
            *(self._retries_exhausted, self._circuit, self._sessions_lost, self._reloads),
            *(self._request_seconds, self._overhead_seconds, *self._of_members),
        )
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    # ---- what may be named

    def bind(self, snapshot: Callable[[], GroupSnapshot]) -> None:
        """Compute the gauges from `snapshot` at each scrape; before this there are none."""
        self._snapshot = snapshot

    def set_members(self, names: Iterable[str]) -> None:
        """Name the members of the configuration; the series of others vanish."""
        self._members.replace(names)
        for family in self._of_members:
            family.synchronize()

    def remove_member(self, name: str) -> None:
        self.set_members(word for word in self._members.words if word != name)

    def set_tools(self, names: Iterable[str]) -> None:
        """Name the tools of the catalogue, in its order; all but the first 200 are `_other`.

        A tool that is counted by name keeps its place while the catalogue has it, so that new
        tools before it do not reset its counters.
        """
        offered = dict.fromkeys(name for name in names if is_fit_for_a_label(name))
        kept = [name for name in self._tools.words if name in offered and name != OTHER]
        fresh = [name for name in offered if name not in self._tools.words]
        self._tools.replace((*(kept + fresh)[:MAX_TOOLS], OTHER))
        self._tool_calls.synchronize()

    # ---- what happened

    def request_finished(self, method: str, outcome: str, seconds: float) -> None:
        self._requests.add(method, outcome)
        self._request_seconds.observe(seconds, method)

    def attempt_finished(self, member: str, outcome: str, seconds: float) -> None:
        self._attempts.add(member, outcome)
        self._attempt_seconds.observe(seconds, member)

    def tool_call_finished(self, tool: str, outcome: str) -> None:
        self._tool_calls.add(tool, outcome)

    def selected(self, member: str, reason: str) -> None:
        self._selections.add(member, reason)

    def refused(self, reason: str) -> None:
        self._refusals.add(reason)

    def failover(self, reason: str) -> None:
        self._failovers.add(reason)

    def retries_exhausted(self) -> None:
        self._retries_exhausted.add()

    def evicted(self, member: str, reason: str) -> None:
        """`reason` is `hard` or `soft`."""
        self._evictions.add(member, reason)

    def rejoined(self, member: str) -> None:
        self._rejoins.add(member)

    def circuit_changed(self, to: str) -> None:
        """`to` is `open` or `closed`."""
        self._circuit.add(to)

    def probed(self, member: str, result: str) -> None:
        self._probes.add(member, result)

    def started(self, member: str, result: str) -> None:
        self._starts.add(member, result)

    def exited(self, member: str, reason: str) -> None:
        self._exits.add(member, reason)

    def session_lost(self, reason: str) -> None:
        self._sessions_lost.add(reason)

    def config_reloaded(self, result: str) -> None:
        self._reloads.add(result)

    def overhead(self, seconds: float) -> None:
        """The part of a request that was spent in the gateway rather than on members."""
        self._overhead_seconds.observe(seconds)

    def loop_lagged(self, seconds: float) -> None:
        self._lags.append(seconds)

    # ---- exposition

    def collect(self) -> Iterator[Metric]:
        """All families but the process's, for the registry."""
        build = GaugeMetricFamily(
            "mcpgroup_build_info", "The gateway that runs.", labels=("group", "version")
        )
        build.add_metric((self.group, __version__), 1)
        yield build
        if self._lags:
            lag = GaugeMetricFamily(
                "mcpgroup_event_loop_lag_seconds",
                "Longest delay of the event loop in the last 15 s.",
                labels=("group",),
            )
            lag.add_metric((self.group,), max(self._lags))
            yield lag
        if self._snapshot is not None:
            yield from gauges(self.group, self._snapshot())
        for family in self._families:
            yield family.collect()


async def watch_loop_lag(metrics: Metrics, interval: float = LAG_INTERVAL_SECONDS) -> None:
    """Measure how late the event loop wakes, until cancelled; its caller owns the task."""
    clock = asyncio.get_running_loop().time
    while True:
        due = clock() + interval
        await asyncio.sleep(interval)
        metrics.loop_lagged(max(0.0, clock() - due))
