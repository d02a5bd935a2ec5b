"""Tasks that stand beside a test: ended with it, and their faults told by it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Tasks:
    """`failed` is the first fault of any of them. Unlike a task group it cancels no test: who waits
    for what the tasks do asks `failed`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._running: set[asyncio.Task[None]] = set()
        self.failed: BaseException | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> Callable[[], bool]:
        """Begin; what cancels this one alone."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task.cancel

    async def end(self) -> None:
        """Cancel all and wait for them."""
        while tasks := set(self._running):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def tell(self, fault: BaseException | None) -> None:
        """At the end of a test that ends with `fault`: raise what failed, or note it there."""
        if self.failed is None:
            return
        if fault is None:
            raise self.failed
        fault.add_note(f"{self._what} failed: {self.failed!r}")

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.failed = self.failed or fault
