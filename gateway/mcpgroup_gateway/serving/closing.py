"""Sessions that were replaced are closed once the calls on them have ended."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from mcpgroup_gateway.members.upstream import Upstream

_log = logging.getLogger(__name__)

#: A session that its member forgot gets so long for the answers that say so.
_LINGER_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05


class Closing:
    """Owns the tasks that close upstream sessions."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def soon(self, upstream: Upstream) -> None:
        """Close it now, in the background; its calls fail."""
        self.own(asyncio.create_task(_close(upstream), name="close upstream session"))

    def when_idle(self, upstream: Upstream) -> None:
        """Close it when nothing is in flight on it.

        Of twenty calls that meet a forgotten session the first learns it; the others must hear it
        from the member too, or nobody could say that they were not run.
        """
        self.own(asyncio.create_task(_close_when_idle(upstream), name="close lost session"))

    def own(self, task: asyncio.Task[None]) -> None:
        """Wait for this task, too, in `close`."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Close what still lingers, and wait for everything."""
        for task in self._tasks:
            if task.get_name() == "close lost session":
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _close_when_idle(upstream: Upstream) -> None:
    rounds = int(_LINGER_SECONDS / _LOOK_SECONDS)
    try:
        for _ in range(rounds):
            if not upstream.in_flight:
                break
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        await _close(upstream)


async def _close(upstream: Upstream) -> None:
    try:
        await upstream.close()
    except MemberFailure as failure:
        _log.debug("closing an upstream session: %s", failure.reason)
