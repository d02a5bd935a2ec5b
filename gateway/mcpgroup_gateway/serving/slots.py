"""Calls that wait for a slot of a member with a concurrency limit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.waiting import WaitingRoom
from mcpgroup_gateway.wire.refusals import Overloaded

if TYPE_CHECKING:
    from mcpgroup_gateway.core.group import Attempt as AttemptRecord
    from mcpgroup_gateway.core.selection import Refusal
    from mcpgroup_gateway.serving.calls import ServedCall
    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.serving.interruption import Interruption


class SelectAgain(Exception):
    """What a queued call waited for will not come."""


class SlotQueue:
    """Calls that wait for a member below its concurrency limit, with what wakes them."""

    def __init__(self) -> None:
        self._room: WaitingRoom[ServedCall] = WaitingRoom()
        self._wakers: dict[ServedCall, asyncio.Future[AttemptRecord]] = {}

    def enter(
        self, call: ServedCall, waiter: asyncio.Future[AttemptRecord], refusal: Refusal
    ) -> bool:
        if not self._room.enter(call, refusal.endpoints, slots=refusal.slots):
            return False
        self._wakers[call] = waiter
        return True

    def leave(self, call: ServedCall) -> None:
        self._room.leave(call)
        self._wakers.pop(call, None)

    def freed(self, endpoint_id: str) -> tuple[ServedCall, asyncio.Future[AttemptRecord]] | None:
        """The call that waited longest for this endpoint, taken out of the queue."""
        while (call := self._room.freed(endpoint_id)) is not None:
            waiter = self._wakers.pop(call)
            if not waiter.done():
                return call, waiter
        return None

    def look_again(self, endpoint_id: str) -> None:
        """The endpoint goes, or takes no call now: calls that wait for it alone select anew."""
        for call in self._room.stranded(endpoint_id):
            waiter = self._wakers.pop(call)
            if not waiter.done():
                waiter.set_exception(SelectAgain())

    def waiting_for(self, endpoint_id: str) -> int:
        return self._room.waiting_for(endpoint_id)


async def wait_for_slot(
    context: Context, call: ServedCall, refusal: Refusal, interruption: Interruption
) -> AttemptRecord:
    """Queue for a slot of any of the refusal's endpoints; the attempt has begun when it returns.

    Raises `Overloaded` when there is no room or the time is over, `SelectAgain`, and what the
    interruption raises.
    """
    waiter: asyncio.Future[AttemptRecord] = asyncio.get_running_loop().create_future()
    full = Overloaded(
        "queue",
        "every member that offers this is at its limit of concurrent requests",
        retryable=True,
        retry_after=1.0,
    )
    if not context.queue.enter(call, waiter, refusal):
        raise full
    context.count_queued(refusal.endpoints)
    try:
        async with asyncio.timeout(context.queue_seconds):
            return await interruption.during(waiter)
    except TimeoutError:
        _give_back(context, waiter)
        raise full from None
    except BaseException:
        _give_back(context, waiter)
        raise
    finally:
        context.queue.leave(call)
        context.count_queued(refusal.endpoints)


def _give_back(context: Context, waiter: asyncio.Future[AttemptRecord]) -> None:
    """The slot came in the same moment in which the call stopped to wait for it."""
    if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
        context.group.attempt_released(waiter.result())
        context.slot_freed(waiter.result().endpoint)
