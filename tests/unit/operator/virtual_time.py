"""A loop whose time passes at once: with nothing left to do, the next timer is due."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

T = TypeVar("T")


class _Jumping(selectors.SelectSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or not timeout:
            if timeout is None and not found:
                raise RuntimeError("everything waits and nothing will happen")
            return found
        self.loop.now += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """`now` is what `time()` gives, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def run(scene: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run to its end in no time; whatever it leaves behind is ended and awaited."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        return runner.run(scene(loop))
