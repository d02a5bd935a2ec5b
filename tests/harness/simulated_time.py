"""Coroutines whose time passes only when nothing else happens: seconds take no time, exactly.

    async def scene(loop: SimulatedLoop) -> None:
        await asyncio.sleep(3600)

    simulated(scene)

For code that does no I/O. A scene that waits for what never comes fails at once.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class _Instant(selectors.DefaultSelector):
    """Moves the clock of its loop on in the place of waiting."""

    loop: SimulatedLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("everything waits, and for no point in time")
        self.loop.now += max(0.0, timeout)
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """`now` is its time in seconds; scenes may set it forward themselves."""

    def __init__(self) -> None:
        self.now = 1000.0
        selector = _Instant()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def simulated(scene: Callable[[SimulatedLoop], Coroutine[Any, Any, T]]) -> T:
    loop = SimulatedLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(scene(loop))
