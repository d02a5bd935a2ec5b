"""What a session over HTTP says to its member without anybody waiting for it.

Cancellations and answers to requests of the member: each is a POST and a task of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

#: Messages that may be under way at once, and their bytes; more are dropped.
MAX_TELLING: Final = 256
MAX_TELLING_BYTES: Final = 32 * 1024 * 1024


class Telling:
    """The messages of one session that are under way.

    `deliver` sends one and raises `MemberFailure`; whatever a failure means to the session is its
    own affair. The session ends `tasks`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[bytes], Coroutine[None, None, None]],
    ) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._loop = loop
        self._deliver = deliver
        self._bytes = 0

    def tell(self, body: bytes) -> None:
        """Send a message in a task of its own; it is dropped when there are too many already."""
        if len(self.tasks) >= MAX_TELLING or self._bytes + len(body) > MAX_TELLING_BYTES:
            return
        self._bytes += len(body)
        task = self._loop.create_task(self._deliver_quietly(body))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _deliver_quietly(self, body: bytes) -> None:
        try:
            await self._deliver(body)
        except MemberFailure:
            return  # the loss of a session was reported; nothing else matters here
        finally:
            self._bytes -= len(body)
