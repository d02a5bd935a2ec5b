"""Upstream sessions of callers with members that keep one a client (`isolation: PerSession`).

A session is opened on first use, once however many calls wait for it, and closed with its client
session or when it was idle for long. Callers without a session share one a (tenant, member); all
anonymous callers are one principal (DESIGN-MCP section 3).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.serving.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcpgroup_gateway.members.upstream import Connector, Upstream
    from mcpgroup_gateway.wire.envelope import Message


class _Slot:
    """One upstream session, open or being opened."""

    __slots__ = ("last_used", "opening", "upstream", "waiters")

    def __init__(self) -> None:
        self.upstream: Upstream | None = None
        self.opening: asyncio.Task[None] | None = None
        self.waiters: set[asyncio.Future[Upstream]] = set()
        self.last_used = 0.0


class UpstreamSessions:
    """All `PerSession` upstream sessions of a replica.

    `maximum` bounds them; at the bound the one that is idle longest goes. `opened` is awaited once
    for a new session before its first call (log level).
    """

    def __init__(
        self,
        *,
        maximum: int,
        idle_seconds: float,
        opened: Callable[[str, Upstream], Awaitable[None]],
        message: Callable[[str, str, Message], None],
        lost: Callable[[str, MemberFailure], None],
    ) -> None:
        self.maximum = maximum
        self.idle_seconds = idle_seconds
        self._opened = opened
        self._message = message
        self._lost = lost
        self._slots: OrderedDict[tuple[str, str], _Slot] = OrderedDict()
        self._closing = Closing()

    def __len__(self) -> int:
        return len(self._slots)

    def get(
        self, owner: str, endpoint_id: str, connector: Connector, deadline: float
    ) -> Upstream | asyncio.Future[Upstream]:
        """The owner's open session with an endpoint, or a future of it.

        The future fails with `MemberFailure` (never `sent`); cancel it to stop waiting.
        """
        key = (owner, endpoint_id)
        slot = self._slots.get(key)
        loop = asyncio.get_running_loop()
        if slot is None:
            self._make_room()
            slot = self._slots[key] = _Slot()
        slot.last_used = loop.time()
        self._slots.move_to_end(key)
        if slot.upstream is not None and not slot.upstream.lost:
            return slot.upstream
        waiter: asyncio.Future[Upstream] = loop.create_future()
        slot.waiters.add(waiter)
        waiter.add_done_callback(slot.waiters.discard)
        if slot.opening is None:
            slot.opening = asyncio.create_task(
                self._open(key, slot, connector, deadline), name=f"open {endpoint_id}"
            )
        return waiter

    def peek(self, owner: str) -> list[Upstream]:
        """The owner's open sessions."""
        return [
            slot.upstream
            for (name, _), slot in self._slots.items()
            if name == owner and slot.upstream is not None
        ]

    def forget(self, owner: str, endpoint_id: str, upstream: Upstream) -> None:
        """The member lost this session: the next `get` opens another."""
        slot = self._slots.get((owner, endpoint_id))
        if slot is not None and slot.upstream is upstream:
            slot.upstream = None
            self._closing.when_idle(upstream)

    def last_used(self, endpoint_id: str) -> float | None:
        """When a session of this endpoint was used last; None when it has none."""
        times = [slot.last_used for (_, name), slot in self._slots.items() if name == endpoint_id]
        return max(times, default=None)

    def close_owner(self, owner: str) -> None:
        """The client session ended."""
        for key in [key for key in self._slots if key[0] == owner]:
            self._drop(key)

    def close_endpoint(self, endpoint_id: str) -> None:
        """The endpoint stopped, or was removed."""
        for key in [key for key in self._slots if key[1] == endpoint_id]:
            self._drop(key)

    def expire(self) -> None:
        """Close what was idle for `idle_seconds`. Called from time to time by the owner."""
        now = asyncio.get_running_loop().time()
        for key, slot in list(self._slots.items()):
            if now - slot.last_used < self.idle_seconds:
                continue
            if slot.opening is None and (slot.upstream is None or not slot.upstream.in_flight):
                self._drop(key)

    async def close(self) -> None:
        for key in list(self._slots):
            self._drop(key)
        await self._closing.close()

    async def _open(
        self, key: tuple[str, str], slot: _Slot, connector: Connector, deadline: float
    ) -> None:
        owner, endpoint_id = key
        opened: list[Upstream] = []

        def lost(failure: MemberFailure) -> None:
            if opened and slot.upstream is opened[0]:
                slot.upstream = None
                self._closing.when_idle(opened[0])
                self._lost(endpoint_id, failure)

        try:
            upstream = await connector.open(
                on_notification=lambda message: self._message(owner, endpoint_id, message),
                on_lost=lost,
                control=False,
                deadline=deadline,
            )
            opened.append(upstream)
            slot.upstream = upstream
            await self._opened(owner, upstream)
        except MemberFailure as failure:
            for waiter in tuple(slot.waiters):
                if not waiter.done():
                    waiter.set_exception(failure)
            if slot.upstream is None and self._slots.get(key) is slot:
                del self._slots[key]
        else:
            for waiter in tuple(slot.waiters):
                if not waiter.done():
                    waiter.set_result(upstream)
        finally:
            slot.opening = None

    def _make_room(self) -> None:
        if len(self._slots) < self.maximum:
            return
        for key, slot in self._slots.items():
            if slot.opening is None and (slot.upstream is None or not slot.upstream.in_flight):
                self._drop(key)
                return

    def _drop(self, key: tuple[str, str]) -> None:
        slot = self._slots.pop(key)
        if slot.opening is not None:
            slot.opening.cancel()
            self._closing.own(slot.opening)
        for waiter in tuple(slot.waiters):
            if not waiter.done():
                waiter.set_exception(
                    MemberFailure(Failure.CANCELLED, "the session was closed", sent=False)
                )
        if slot.upstream is not None:
            self._closing.soon(slot.upstream)
