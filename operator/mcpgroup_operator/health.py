"""Whether the operator is ready and alive, and the gauges of this moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcpgroup_operator.kinds import WATCHED
from mcpgroup_operator.metrics import live_gauges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.core import Metric

    from mcpgroup_operator.leases import Elector
    from mcpgroup_operator.listing import Lister
    from mcpgroup_operator.store import Key, Store
    from mcpgroup_operator.watches import WatchMonitor
    from mcpgroup_operator.workqueue import WorkQueue

STUCK_SECONDS: Final = 300.0
"""A reconcile has a deadline for every request, and some fifty of them at most."""


class Health:
    """Reads the parts, changes none."""

    def __init__(
        self,
        store: Store,
        queue: WorkQueue[Key],
        elector: Elector,
        lister: Lister,
        monitor: WatchMonitor,
        clock: Callable[[], float],
        *,
        deaf_seconds: float,
    ) -> None:
        self._store = store
        self._queue = queue
        self._elector = elector
        self._lister = lister
        self._monitor = monitor
        self._clock = clock
        self._deaf_seconds = deaf_seconds

    def not_ready(self) -> str:
        """Ready means: it knows what there is. Whether it leads does not matter."""
        unlisted = self._lister.unlisted()
        return f"not listed yet: {', '.join(unlisted)}" if unlisted else ""

    def not_alive(self) -> str:
        """A restart helps when a watch stays deaf though it was opened anew, or work hangs. It does
        not against a right that was taken away, or one namespace of several that is gone."""
        deaf = sorted({watch.kind.plural for watch in self._monitor.deaf(self._deaf_seconds)})
        if deaf and self._lister.synced.is_set():
            return f"watches are deaf: {', '.join(deaf)}"
        stuck = self._queue.longest_running(self._clock())
        return f"a reconcile has taken {stuck:.0f} s" if stuck > STUCK_SECONDS else ""

    def gauges(self) -> Iterable[Metric]:
        """Of this moment."""
        return live_gauges(
            leading=self._elector.is_leading,
            queue_depth=self._queue.depth,
            unfinished_seconds=self._queue.longest_running(self._clock()),
            objects={kind.plural: self._store.count(kind) for kind in WATCHED},
            watch_ages=self._monitor.ages(),
        )
