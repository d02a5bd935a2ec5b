"""Endpoints and a group of them for tests of the selection, without the health half."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpgroup_gateway.core.breaker import Breaker
from mcpgroup_gateway.core.endpoint import Endpoint, State
from mcpgroup_gateway.core.latency import LatencyWindow
from mcpgroup_gateway.core.policy import BreakerPolicy, HealthPolicy
from mcpgroup_gateway.core.rotation import Rotation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

COOLDOWN = 30.0


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_endpoint(
    name: str,
    position: int = 0,
    *,
    weight: int = 1,
    priority: int = 1,
    region: str | None = None,
    tags: Iterable[str] = (),
    limit: int = 0,
    canary: bool = False,
    state: State = State.READY,
) -> Endpoint:
    return Endpoint(
        id=name,
        member=name,
        source="stdio",
        position=position,
        weight=weight,
        priority=priority,
        region=region,
        resource_tags=frozenset(tags),
        max_concurrent=limit,
        rotation=Rotation(HealthPolicy()),
        breaker=Breaker(BreakerPolicy(failure_threshold=5, cooldown_seconds=COOLDOWN)),
        latencies=LatencyWindow(),
        state_since=0.0,
        canary=canary,
        state=state,
        probe_passed=True,
    )


def make_endpoints(names: Sequence[str], weights: Sequence[int] | None = None) -> list[Endpoint]:
    """In manifest order, all ready."""
    return [
        make_endpoint(name, position, weight=weights[position] if weights else 1)
        for position, name in enumerate(names)
    ]


class Members:
    """What the selection sees of a group, and what an attempt does to an endpoint."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self.endpoints = {endpoint.id: endpoint for endpoint in endpoints}
        self._order = 0

    def __getitem__(self, name: str) -> Endpoint:
        return self.endpoints[name]

    def start(self, endpoint: Endpoint, now: float) -> None:
        self._order += 1
        endpoint.last_selected = self._order
        endpoint.in_flight += 1
        endpoint.breaker.begin(self._order, now)

    def trip(self, name: str, now: float, *, timeout: bool = False) -> None:
        """Open the breaker of an endpoint."""
        for _ in range(5):
            self._order += 1
            self[name].breaker.failed(self._order, self._order, now, timeout=timeout)
