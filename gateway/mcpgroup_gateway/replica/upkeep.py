"""What a replica does from time to time, and whether it has become ready."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.telemetry.metrics import watch_loop_lag

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

#: Readiness waits so long for the first members to be tried, once (DESIGN section 9).
_FIRST_READY_SECONDS: Final = 20.0
_EXPIRE_SECONDS: Final = 10.0
_ABSENT_SECONDS: Final = 1.0


class Upkeep:
    """Owns the tasks, from `start` to `close`.

    `was_ready` becomes true once, and stays.
    """

    def __init__(self, context: Context, metrics: Metrics) -> None:
        self.was_ready = False
        self._context = context
        self._metrics = metrics
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *, starts_members: Callable[[], bool]) -> None:
        context = self._context
        self._tasks = [
            asyncio.create_task(watch_loop_lag(self._metrics), name="loop lag"),
            asyncio.create_task(context.subscriptions.run(), name="subscriptions"),
            asyncio.create_task(self._first_readiness(starts_members), name="first readiness"),
            asyncio.create_task(
                _each(_EXPIRE_SECONDS, self._expire, "the expiry of upstream sessions failed"),
                name="expire upstream sessions",
            ),
            asyncio.create_task(
                _each(
                    _ABSENT_SECONDS,
                    self._end_of_absent,
                    "questions of absent clients could not be ended",
                ),
                name="questions of absent clients",
            ),
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _expire(self) -> None:
        self._context.upstreams.expire(self._context.subscriptions.held())

    def _end_of_absent(self) -> None:
        self._context.questions.end_of_absent(time.monotonic())
        self._context.pending.end_lost()

    async def _first_readiness(self, starts_members: Callable[[], bool]) -> None:
        """Ready once a member is, or all that start were tried, or after 20 s; for ever then."""
        end = time.monotonic() + _FIRST_READY_SECONDS
        while time.monotonic() < end:
            supervisors = list(self._context.supervisors.values())
            tried = all(supervisor.tried.is_set() for supervisor in supervisors)
            ready = any(supervisor.endpoint.ready for supervisor in supervisors)
            if tried or ready or not starts_members():
                break
            await asyncio.sleep(0.05)
        self.was_ready = True


async def _each(seconds: float, act: Callable[[], None], failed: str) -> None:
    """Act every so many seconds; after a fault, which is logged, the rest comes next time."""
    while True:
        await asyncio.sleep(seconds)
        try:
            act()
        except Exception:  # noqa: BLE001 - logged; one of many must not stop the others' upkeep
            _log.exception(failed)
