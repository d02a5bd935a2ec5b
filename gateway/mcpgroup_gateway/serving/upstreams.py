"""Upstream sessions of callers with members that keep one a client (`isolation: PerSession`).

A session is opened on first use, once however many calls wait for it, and closed with its client
session or when it was idle for long. Callers without a session share one a member, tenant and set
of capabilities, but for a call that may be asked, which has one for itself; all anonymous callers
are one principal (DESIGN-MCP section 3).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import GATEWAY_IDENTITY, MemberFailure, Opening
from mcpgroup_gateway.serving.closing import Closing
from mcpgroup_gateway.serving.session_waiters import SessionWaiters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Set

    from mcpgroup_gateway.members.upstream import ClientIdentity, Connector, Upstream
    from mcpgroup_gateway.wire.envelope import Message


_log = logging.getLogger(__name__)


#: Sessions of one tenant's callers without a session with one endpoint: they choose what they
#: declare, and each may be a process. More are open while more are in use.
_MAX_SHARED: Final = 32


class _Slot:
    """One upstream session, open or being opened."""

    __slots__ = ("last_used", "opening", "reserved", "shared_by", "upstream", "waiters")

    def __init__(self, shared_by: str | None) -> None:
        self.shared_by = shared_by  # the tenant whose callers without a session use it
        self.reserved = False  # for one call; see `UpstreamSessions.reserve`
        self.upstream: Upstream | None = None
        self.opening: asyncio.Task[None] | None = None
        self.waiters = SessionWaiters()
        self.last_used = 0.0

    @property
    def is_idle(self) -> bool:
        if self.reserved or self.opening is not None:
            return False
        return self.upstream is None or not self.upstream.in_flight


class Reservation(NamedTuple):
    """A session that serves one call alone. A slot of the same name may follow it."""

    owner: str
    slot: _Slot


class UpstreamSessions:
    """All `PerSession` upstream sessions of a replica.

    `maximum` bounds those of one endpoint, as many as there may be client sessions; at the bound
    the one that is idle longest goes. `opened` is awaited once for a new session before its first
    call (log level); `requested` hears a member's request that is about no call in particular.
    """

    def __init__(
        self,
        *,
        maximum: int,
        idle_seconds: float,
        opened: Callable[[str, str, Upstream], Awaitable[None]],
        message: Callable[[str, str, Upstream, Message], None],
        lost: Callable[[str, MemberFailure], None],
        requested: Callable[[str, str, Upstream, Message], None],
    ) -> None:
        self.maximum = maximum
        self.idle_seconds = idle_seconds
        self._opened = opened
        self._message = message
        self._lost = lost
        self._requested = requested
        #: By endpoint id and owner; used last comes last.
        self._slots: dict[str, OrderedDict[str, _Slot]] = {}
        #: The endpoints that an owner has slots of.
        self._owned: dict[str, set[str]] = {}
        self._closing = Closing()

    def __len__(self) -> int:
        return sum(len(slots) for slots in self._slots.values())

    def get(
        self,
        owner: str,
        endpoint_id: str,
        connector: Connector,
        deadline: float,
        *,
        client: ClientIdentity = GATEWAY_IDENTITY,
        asked: bool = False,
        with_session: bool = False,
        shared_by: str | None = None,
    ) -> Upstream | asyncio.Future[Upstream]:
        """The owner's open session with an endpoint, or a future of it.

        A new one is opened for `client`; `asked` says that the member may send it requests,
        `with_session` that they reach it live; `shared_by` is the tenant of callers without a
        session. The future fails with `MemberFailure` (never `sent`); cancel it to stop waiting.
        """
        slot = self._slot(endpoint_id, owner) or self._new_slot(endpoint_id, owner, shared_by)
        loop = asyncio.get_running_loop()
        slot.last_used = loop.time()
        self._slots[endpoint_id].move_to_end(owner)
        if slot.upstream is not None and not slot.upstream.lost and slot.opening is None:
            return slot.upstream
        waiter = slot.waiters.new()
        if slot.opening is None:
            slot.opening = asyncio.create_task(
                self._open(
                    owner, endpoint_id, slot, connector, deadline, client, asked, with_session
                ),
                name=f"open {endpoint_id}",
            )
        return waiter

    def peek(self, owner: str) -> list[Upstream]:
        """The owner's open sessions."""
        slots = (self._slots[endpoint_id][owner] for endpoint_id in self._owned.get(owner, ()))
        return [slot.upstream for slot in slots if slot.upstream is not None]

    def reserve(self, owner: str, endpoint_id: str, shared_by: str) -> Reservation:
        """A session of this owner that serves nobody else until `release`; `get` opens it."""
        for number in count(1):
            name = f"{owner}#{number}"
            slot = self._slot(endpoint_id, name) or self._new_slot(endpoint_id, name, shared_by)
            if not slot.reserved:
                slot.reserved = True
                return Reservation(name, slot)
        raise AssertionError("unreachable")

    def release(self, reservation: Reservation) -> None:
        reservation.slot.reserved = False

    def forget(self, endpoint_id: str, upstream: Upstream) -> bool:
        """The member lost this session: the next `get` opens another. False when it is none of
        these."""
        for slot in self._slots.get(endpoint_id, {}).values():
            if slot.upstream is upstream:
                slot.upstream = None
                self._closing.when_idle(upstream)
                return True
        return False

    def last_used(self, endpoint_id: str) -> float | None:
        """When a session of this endpoint was used last; None when it has none."""
        slots = self._slots.get(endpoint_id)
        return next(reversed(slots.values())).last_used if slots else None

    def close_owner(self, owner: str) -> None:
        """The client session ended."""
        for endpoint_id in tuple(self._owned.get(owner, ())):
            self._drop(endpoint_id, owner)

    def close_endpoint(self, endpoint_id: str) -> None:
        """The endpoint stopped, or was removed."""
        for owner in tuple(self._slots.get(endpoint_id, ())):
            self._drop(endpoint_id, owner)
        self._slots.pop(endpoint_id, None)

    def expire(self, held: Set[Upstream] = frozenset()) -> None:
        """Close what was idle for `idle_seconds`, but for the sessions in `held`, which are
        listened to. Called from time to time by the owner."""
        now = asyncio.get_running_loop().time()
        for endpoint_id, slots in self._slots.items():
            for owner, slot in tuple(slots.items()):
                if now - slot.last_used < self.idle_seconds:
                    break
                if slot.is_idle and slot.upstream not in held:
                    self._drop(endpoint_id, owner)

    async def close(self) -> None:
        for endpoint_id in tuple(self._slots):
            self.close_endpoint(endpoint_id)
        await self._closing.close()

    async def _open(
        self,
        owner: str,
        endpoint_id: str,
        slot: _Slot,
        connector: Connector,
        deadline: float,
        client: ClientIdentity,
        asked: bool,
        with_session: bool,
    ) -> None:
        opened: list[Upstream] = []

        def lost(failure: MemberFailure) -> None:
            if opened and slot.upstream is opened[0]:
                slot.upstream = None
                self._closing.when_idle(opened[0])
                self._lost(endpoint_id, failure)

        def heard(message: Message) -> None:
            if opened:
                self._message(owner, endpoint_id, opened[0], message)

        def requested(message: Message) -> None:
            if opened:
                self._requested(owner, endpoint_id, opened[0], message)

        opening = Opening(
            on_notification=heard,
            on_lost=lost,
            control=False,
            client=client,
            on_request=requested if asked else None,
            with_session=with_session,
        )
        try:
            upstream = await connector.open(opening, deadline)
            opened.append(upstream)
            slot.upstream = upstream
            await self._opened(owner, endpoint_id, upstream)
        except MemberFailure as failure:
            self._not_opened(owner, endpoint_id, slot, failure)
        except Exception:  # noqa: BLE001 - logged; nobody may wait for what will not come
            _log.exception("a session with %s could not be opened", endpoint_id)
            text = "an internal error of the gateway"
            internal = MemberFailure(Failure.START_FAILED, text, sent=False)
            self._not_opened(owner, endpoint_id, slot, internal)
        else:
            slot.waiters.serve(upstream)
        finally:
            slot.opening = None

    def _not_opened(
        self, owner: str, endpoint_id: str, slot: _Slot, failure: MemberFailure
    ) -> None:
        slot.waiters.fail(failure)
        if slot.upstream is None and self._slot(endpoint_id, owner) is slot:
            self._take(endpoint_id, owner)

    def _new_slot(self, endpoint_id: str, owner: str, shared_by: str | None) -> _Slot:
        slots = self._slots.get(endpoint_id)
        if slots is None:
            slots = self._slots[endpoint_id] = OrderedDict()
        if shared_by is not None:
            self._make_room(
                endpoint_id,
                [name for name, slot in slots.items() if slot.shared_by == shared_by],
                _MAX_SHARED,
            )
        self._make_room(endpoint_id, slots, self.maximum)
        slot = slots[owner] = _Slot(shared_by)
        self._owned.setdefault(owner, set()).add(endpoint_id)
        return slot

    def _make_room(self, endpoint_id: str, owners: Collection[str], maximum: int) -> None:
        """Drop the one of these that is idle longest when they are as many as there may be."""
        if len(owners) < maximum:
            return
        for owner in owners:
            if self._slots[endpoint_id][owner].is_idle:
                self._drop(endpoint_id, owner)
                return

    def _slot(self, endpoint_id: str, owner: str) -> _Slot | None:
        slots = self._slots.get(endpoint_id)
        return None if slots is None else slots.get(owner)

    def _take(self, endpoint_id: str, owner: str) -> _Slot:
        owned = self._owned[owner]
        owned.discard(endpoint_id)
        if not owned:
            del self._owned[owner]
        return self._slots[endpoint_id].pop(owner)

    def _drop(self, endpoint_id: str, owner: str) -> None:
        slot = self._take(endpoint_id, owner)
        if slot.opening is not None:
            slot.opening.cancel()
            self._closing.own(slot.opening)
        slot.waiters.fail(MemberFailure(Failure.CANCELLED, "the session was closed", sent=False))
        if slot.upstream is not None:
            self._closing.soon(slot.upstream)
