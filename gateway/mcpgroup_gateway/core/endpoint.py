"""Everything one replica knows of one endpoint."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpgroup_gateway.core.breaker import Breaker
    from mcpgroup_gateway.core.latency import LatencyWindow
    from mcpgroup_gateway.core.rotation import Rotation


class State(StrEnum):
    """What a member's process or session is doing; spelled as in `/status`."""

    COLD = "Cold"  # not started yet, or stopped because it was idle; a call may start it
    STARTING = "Starting"
    READY = "Ready"
    FAILED = "Failed"  # waits for its next start
    STOPPED = "Stopped"  # on purpose; nothing starts it but a person
    DRAINING = "Draining"  # finishes its calls, takes no new ones


@dataclass(slots=True, eq=False)
class Endpoint:
    """Only `Group` writes here, but for `queued`, which belongs to the waiting room.

    `id` never changes, `member` does when a reload renames it. Times are seconds of the group's
    clock. `order` numbers come from the group's counter of attempts, probes and starts: a smaller
    one began earlier, however coarse the clock is.
    """

    id: str
    member: str
    source: str
    position: int  # manifest order; ties go to the smallest
    weight: int
    priority: int
    region: str | None
    resource_tags: frozenset[str]
    max_concurrent: int  # 0: no limit
    rotation: Rotation
    breaker: Breaker
    latencies: LatencyWindow
    state_since: float
    canary: bool = False
    staged: bool = False  # a replacement made by a reload that does not serve yet
    leaving: bool = False  # drained by a reload, to be removed; it counts in nothing
    state: State = State.COLD
    is_up: bool = False  # its process or control session is there, whatever the state says
    in_flight: int = 0
    queued: int = 0
    busy_until: float = 0.0
    selections: int = 0
    last_selected: int = 0  # order of its newest attempt; 0: never selected
    last_error: str | None = None
    last_success_at: float | None = None
    outage_since: float | None = None  # first failure since its last success
    due_at: float = math.inf  # when the supervisor's next probe or start is due
    probe_passed: bool = False  # what the newest probe or start said
    # The rest is evidence, see `Group`.
    evidence_order: int = 0  # attempts up to this one prove nothing any more
    answer_order: int = 0  # the newest order when it last answered a call
    start_order: int = 0

    @property
    def dead(self) -> bool:
        return self.state is State.FAILED or self.state is State.STOPPED

    @property
    def ready(self) -> bool:
        return self.state is State.READY

    @property
    def counts(self) -> bool:
        """Whether it belongs to the stable pool that the group's counts are made of."""
        return not (self.canary or self.staged or self.leaving)

    @property
    def may_serve(self) -> bool:
        """In rotation and neither dead nor on its way in or out; the breaker has its own say."""
        return (
            self.rotation.in_rotation
            and not self.staged
            and self.state is not State.FAILED
            and self.state is not State.STOPPED
            and self.state is not State.DRAINING
        )
