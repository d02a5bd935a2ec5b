"""How often a group's status may be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from mcpgroup_operator.conditions import READY, status_of

if TYPE_CHECKING:
    from collections.abc import Mapping

STATUS_SECONDS: Final = 5.0

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
