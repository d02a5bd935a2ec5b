"""The group's state and counts, derived from its endpoints."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcpgroup_gateway.core.endpoint import Endpoint


class GroupState(StrEnum):
    """In order of precedence; spelled as in `/status`."""

    DEGRADED = "Degraded"  # the group circuit is open
    INACTIVE = "Inactive"  # no member in rotation that is not dead
    PARTIAL = "Partial"  # fewer than `minHealthy` of them
    HEALTHY = "Healthy"


@dataclass(frozen=True, slots=True)
class Counts:
    """Endpoints of the stable pool: `healthy` ≤ `in_rotation` ≤ `total`.

    `healthy` is ready and in rotation; `selectable` is what a call could be sent to now.
    """

    total: int
    in_rotation: int
    healthy: int
    selectable: int


def alive_in_rotation(endpoints: Iterable[Endpoint]) -> int:
    """How many of the stable pool are in rotation and not dead."""
    return sum(e.counts and e.rotation.in_rotation and not e.dead for e in endpoints)


def group_state(*, circuit_open: bool, alive: int, min_healthy: int) -> GroupState:
    if circuit_open:
        return GroupState.DEGRADED
    if alive == 0:
        return GroupState.INACTIVE
    return GroupState.PARTIAL if alive < min_healthy else GroupState.HEALTHY


def breakers_ignored(endpoints: Iterable[Endpoint], now: float) -> bool:
    """Whether calls may pass these endpoints' open breakers.

    True when there are any, none of their breakers takes a call now, all are open on timeouts only
    and all pass their probes: they are slow, not broken, and refusing every call helps nobody.
    """
    found = False
    for endpoint in endpoints:
        breaker = endpoint.breaker
        if breaker.allows(now) or not breaker.timeouts_only or not endpoint.probe_passed:
            return False
        found = True
    return found
