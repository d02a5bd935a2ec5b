"""What the core tells its listener. Every event is a change; nothing is repeated.

The listener is called synchronously, after the whole change was made, so it may ask the group
anything and may end attempts in turn. `endpoint` is an id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mcpgroup_gateway.core.breaker import BreakerState
    from mcpgroup_gateway.core.counts import GroupState
    from mcpgroup_gateway.core.endpoint import State
    from mcpgroup_gateway.core.outcomes import Evidence


@dataclass(frozen=True, slots=True)
class RotationChanged:
    """Out with `evidence` HARD or SOFT, in with None."""

    endpoint: str
    member: str
    to: Literal["in", "out"]
    evidence: Evidence | None
    reason: str


@dataclass(frozen=True, slots=True)
class EvidenceHardened:
    """A hard failure of a member that is out on soft evidence: calls that still wait there move."""

    endpoint: str
    member: str
    reason: str


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    endpoint: str
    member: str
    old: BreakerState
    new: BreakerState
    consecutive_failures: int


@dataclass(frozen=True, slots=True)
class CircuitChanged:
    open: bool
    consecutive_failures: int


@dataclass(frozen=True, slots=True)
class StateChanged:
    endpoint: str
    member: str
    old: State
    new: State
    reason: str


@dataclass(frozen=True, slots=True)
class GroupStateChanged:
    old: GroupState
    new: GroupState


@dataclass(frozen=True, slots=True)
class ProbeDue:
    """A call moved the next probe of this endpoint forward: ask `Group.next_wait` again."""

    endpoint: str


Event = (
    RotationChanged
    | EvidenceHardened
    | BreakerChanged
    | CircuitChanged
    | StateChanged
    | GroupStateChanged
    | ProbeDue
)
