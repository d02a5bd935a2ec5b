"""How often a group's status may be written, and Events posted of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from mcpgroup_operator.conditions import READY, status_of

if TYPE_CHECKING:
    from collections.abc import Mapping

STATUS_SECONDS: Final = 5.0
EVENT_BURST: Final = 25
EVENT_SECONDS: Final = 300.0
"""What client-go's recorder allows for one object: so many Events, then one each five minutes."""

K = TypeVar("K")


class StatusThrottle(Generic[K]):
    """One write in `interval` seconds a group; a transition of `Ready` does not wait.

    Who must wait comes back later and builds the status anew: so the last state wins and nothing
    is kept here but times, of a monotonic clock.
    """

    def __init__(self, interval: float = STATUS_SECONDS) -> None:
        self._interval = interval
        self._last: dict[K, float] = {}

    def wait(
        self, key: K, before: Mapping[str, Any] | None, after: Mapping[str, Any], now: float
    ) -> float:
        """Seconds until `after` may be written over `before`; 0 when it may be now."""
        last = self._last.get(key)
        if last is None or _ready(before or {}) != _ready(after):
            return 0.0
        return max(0.0, last + self._interval - now)

    def written(self, key: K, now: float) -> None:
        """A status of this group was written."""
        self._last[key] = now

    def forget(self, key: K) -> None:
        """The group is gone."""
        self._last.pop(key, None)


def _ready(status: Mapping[str, Any]) -> str | None:
    return status_of(status.get("conditions") or (), READY)


class EventBudget(Generic[K]):
    """A token bucket for each group, of a monotonic clock: a replica that flaps for a day must not
    fill the API server with what a status says as well."""

    def __init__(self, burst: int = EVENT_BURST, seconds: float = EVENT_SECONDS) -> None:
        self._ahead = (burst - 1) * seconds
        self._seconds = seconds
        self._full_at: dict[K, float] = {}

    def take(self, key: K, now: float) -> bool:
        """Whether one more Event may be posted now; then it is counted."""
        full_at = max(self._full_at.get(key, now), now)
        if full_at - now > self._ahead:
            return False
        self._full_at[key] = full_at + self._seconds
        return True

    def forget(self, key: K) -> None:
        """The group is gone."""
        self._full_at.pop(key, None)
