"""Those who wait for a session that is being opened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpgroup_gateway.members.upstream import MemberFailure, Upstream


class SessionWaiters:
    """Each waits on a future of its own; cancelling it is how one stops to wait."""

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[Upstream]] = set()

    def __bool__(self) -> bool:
        return bool(self._futures)

    def new(self) -> asyncio.Future[Upstream]:
        future: asyncio.Future[Upstream] = asyncio.get_running_loop().create_future()
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def serve(self, session: Upstream) -> None:
        for future in tuple(self._futures):
            if not future.done():
                future.set_result(session)

    def fail(self, failure: MemberFailure) -> None:
        for future in tuple(self._futures):
            if not future.done():
                future.set_exception(failure)
