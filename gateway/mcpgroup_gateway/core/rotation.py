"""Whether an endpoint is in rotation, and what it must show to come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.outcomes import Evidence

if TYPE_CHECKING:
    from mcpgroup_gateway.core.policy import HealthPolicy

MAX_PENALTY = 32
#: Evicted again within so many probe intervals of its rejoin, a member is flapping.
FLAP_INTERVALS = 10


@dataclass(slots=True)
class Rotation:
    """Counts failures and successes in a row; it starts in rotation.

    `evicted_on` is None in rotation, else the strongest evidence so far. `penalty` multiplies the
    successes that a rejoin takes: 1, and doubled up to 32 with each eviction that follows a rejoin
    within ten probe intervals.
    """

    policy: HealthPolicy
    in_rotation: bool = True
    evicted_on: Evidence | None = None
    consecutive_failures: int = 0
    consecutive_successes: int = 0
    penalty: int = 1
    rejoined_at: float | None = None

    @property
    def required_successes(self) -> int:
        return self.policy.healthy_threshold * self.penalty

    def failed(self, evidence: Evidence, now: float, *, may_leave: bool) -> bool:
        """Count one failure, `HARD` or `SOFT`.

        `may_leave` false keeps a member in rotation whatever the count says (soft evidence on the
        last one). Returns True when it left rotation, or when what took it out softly before has
        now become hard.
        """
        self.consecutive_failures += 1
        self.consecutive_successes = 0
        if not self.in_rotation:
            if evidence is Evidence.HARD and self.evicted_on is Evidence.SOFT:
                self.evicted_on = Evidence.HARD
                return True
            return False
        if self.consecutive_failures < self.policy.unhealthy_threshold or not may_leave:
            return False
        flapped = (
            self.rejoined_at is not None
            and now - self.rejoined_at <= FLAP_INTERVALS * self.policy.interval_seconds
        )
        self.penalty = min(MAX_PENALTY, self.penalty * 2) if flapped else 1
        self.in_rotation = False
        self.evicted_on = evidence
        return True

    def succeeded(self, now: float, *, ready: bool) -> bool:
        """Count one success; those of a member that is not ready bring nobody back.

        Returns True when it came back into rotation.
        """
        self.consecutive_failures = 0
        if self.in_rotation or not ready:
            return False
        self.consecutive_successes += 1
        if self.consecutive_successes < self.required_successes:
            return False
        self._join(now)
        return True

    def reset(self) -> None:
        """Forget the runs and the penalty; whether it is in rotation stays."""
        self.consecutive_failures = self.consecutive_successes = 0
        self.penalty = 1
        self.rejoined_at = None

    def restore(self) -> bool:
        """Back in rotation with a clean slate (`rebalance`). True when it was out."""
        self.reset()
        if self.in_rotation:
            return False
        self._join(None)
        return True

    def _join(self, now: float | None) -> None:
        self.in_rotation = True
        self.evicted_on = None
        self.consecutive_successes = 0
        self.rejoined_at = now
