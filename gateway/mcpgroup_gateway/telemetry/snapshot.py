"""The gauges: a snapshot of a replica, taken when it is scraped.

Nothing here runs on the serving path: the composition hands `Metrics` a function that reads the
group's own objects, so that a gauge can never drift from what the replica does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily

from mcpgroup_gateway.core.breaker import BreakerState
from mcpgroup_gateway.core.counts import GroupState
from mcpgroup_gateway.core.endpoint import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from prometheus_client.core import Metric


@dataclass(frozen=True, slots=True)
class EndpointSnapshot:
    """One endpoint as it is now; a member's gauges are the share or the sum of its endpoints'."""

    member: str
    in_rotation: bool
    selectable: bool
    state: State
    breaker: BreakerState
    consecutive_failures: int
    in_flight: int
    queued: int
    last_success: float | None = None  # Unix time; None before the first


@dataclass(frozen=True, slots=True)
class ConfigSnapshot:
    """The configuration that serves. `hash` is `sha256:…`; times are Unix times."""

    hash: str
    generation: int | None
    last_reload_successful: bool
    last_success: float


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """One replica as it is now. Endpoints that are staged by a reload are not in it."""

    state: GroupState
    available: bool
    circuit_open: bool
    members: int
    members_in_rotation: int
    members_healthy: int
    members_selectable: int
    min_healthy: int
    endpoints: Sequence[EndpointSnapshot]
    requests_in_flight: int
    requests_in_flight_limit: int
    sessions: int
    sessions_limit: int
    streams_open: int
    draining: bool
    upstream_connections: Mapping[str, int] = field(default_factory=dict)  # by "active" and "idle"
    config: ConfigSnapshot | None = None  # None before the first load
    canary_split_ratio: float | None = None  # 0..1; None without a canary


def gauges(group: str, snapshot: GroupSnapshot) -> Iterator[Metric]:
    """The families of a snapshot, each with the label `group`."""

    def gauge(name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"mcpgroup_{name}", text, labels=("group",))
        family.add_metric((group,), value)
        return family

    s = snapshot
    yield gauge("group_circuit_open", "1 while the group circuit is open.", s.circuit_open)
    yield gauge(
        "group_available", "1 when the circuit is closed and a member is in rotation.", s.available
    )
    state = GaugeMetricFamily(
        "mcpgroup_group_state", "1 for the state of the group.", labels=("group", "state")
    )
    for known in GroupState:
        state.add_metric((group, known.value), float(known is s.state))
    yield state
    yield gauge("group_members", "Members, the canary not counted.", s.members)
    yield gauge("group_members_in_rotation", "Members in rotation.", s.members_in_rotation)
    yield gauge("group_members_healthy", "Members ready and in rotation.", s.members_healthy)
    yield gauge(
        "group_members_selectable", "Members that a call may select now.", s.members_selectable
    )
    yield gauge("group_min_healthy", "Members the group wants in rotation.", s.min_healthy)
    yield gauge("requests_in_flight", "Client requests being served.", s.requests_in_flight)
    yield gauge("requests_in_flight_limit", "limits.requestsInFlight.", s.requests_in_flight_limit)
    yield gauge("sessions", "Client sessions open on this replica.", s.sessions)
    yield gauge("sessions_limit", "sessions.max.", s.sessions_limit)
    yield gauge("streams_open", "GET streams open.", s.streams_open)
    yield gauge("draining", "1 from SIGTERM on.", s.draining)
    connections = GaugeMetricFamily(
        "mcpgroup_upstream_connections",
        "Connections to members over HTTP.",
        labels=("group", "state"),
    )
    for name in ("active", "idle"):
        connections.add_metric((group, name), s.upstream_connections.get(name, 0))
    yield connections
    if s.canary_split_ratio is not None:
        yield gauge(
            "canary_split_ratio", "Configured share of tenants (0..1).", s.canary_split_ratio
        )
    if s.config is not None:
        yield from _config_gauges(group, s.config)
    yield from _member_gauges(group, s.endpoints)


def _config_gauges(group: str, config: ConfigSnapshot) -> Iterator[Metric]:
    def gauge(name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"mcpgroup_config_{name}", text, labels=("group",))
        family.add_metric((group,), value)
        return family

    info = GaugeMetricFamily(
        "mcpgroup_config_info", "The configuration that serves.", labels=("group", "hash")
    )
    info.add_metric((group, config.hash), 1)
    yield info
    if config.generation is not None:
        yield gauge("generation", "Generation of the configuration that serves.", config.generation)
    yield gauge(
        "last_reload_successful",
        "0 while the newest configuration is refused.",
        config.last_reload_successful,
    )
    yield gauge(
        "last_reload_success_timestamp_seconds",
        "When a configuration was last taken.",
        config.last_success,
    )


def _member_gauges(group: str, endpoints: Sequence[EndpointSnapshot]) -> Iterator[Metric]:
    members: dict[str, list[EndpointSnapshot]] = {}
    for endpoint in endpoints:
        members.setdefault(endpoint.member, []).append(endpoint)

    def family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(
            f"mcpgroup_member_{name}", text, labels=("group", "member", *labels)
        )

    in_rotation = family("in_rotation", "Share of the member's endpoints in rotation.")
    selectable = family("selectable", "Share of the member's endpoints that a call may select.")
    state = family("state", "Share of the member's endpoints in the state.", "state")
    breaker = family(
        "breaker_state", "Share of the member's endpoints with the breaker state.", "state"
    )
    failures = family("consecutive_failures", "Counted failures in a row.")
    in_flight = family("in_flight_requests", "Attempts in flight on the member.")
    queued = family("queued_requests", "Calls that wait for the member's concurrency limit.")
    success = family("last_success_timestamp_seconds", "When the member last answered.")
    for name, own in members.items():
        key = (group, name)
        total = len(own)
        in_rotation.add_metric(key, sum(e.in_rotation for e in own) / total)
        selectable.add_metric(key, sum(e.selectable for e in own) / total)
        for word in State:
            state.add_metric((*key, word.value), sum(e.state is word for e in own) / total)
        for mode in BreakerState:
            breaker.add_metric((*key, mode.value), sum(e.breaker is mode for e in own) / total)
        failures.add_metric(key, sum(e.consecutive_failures for e in own))
        in_flight.add_metric(key, sum(e.in_flight for e in own))
        queued.add_metric(key, sum(e.queued for e in own))
        times = [e.last_success for e in own if e.last_success is not None]
        if times:
            success.add_metric(key, max(times))
    yield from (in_rotation, selectable, state, breaker, failures, in_flight, queued, success)
