"""Calls that wait for a free slot of a member with a concurrency limit, first in, first out.

The room only keeps order. Whoever learns that a slot of an endpoint is free asks `freed` for the
call that waited longest and starts the attempt for it at once, before anything else runs: a call
that arrives later finds the limit reached again and queues behind, so that nobody is overtaken.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

W = TypeVar("W", bound="Hashable")

#: A call is refused when this many times the slots of its endpoints already wait for them.
WAITERS_A_SLOT = 4


class WaitingRoom(Generic[W]):
    """`W` is whatever stands for a waiting call; each waits once at a time.

    Waiters are bounded a set of endpoints, and with it in all: at most 4 for each slot of it.
    """

    def __init__(self) -> None:
        self._wanted: dict[W, frozenset[str]] = {}
        # An OrderedDict finds and removes its oldest entry in constant time, also when many left.
        self._queues: dict[str, OrderedDict[W, None]] = {}
        self._sizes: dict[frozenset[str], int] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def enter(self, waiter: W, endpoints: Collection[str], *, slots: int) -> bool:
        """Queue for a slot of any of `endpoints`, which have `slots` in all.

        False when too many wait for the same endpoints already.
        """
        wanted = frozenset(endpoints)
        size = self._sizes.get(wanted, 0)
        if not wanted or size >= WAITERS_A_SLOT * slots:
            return False
        if waiter in self._wanted:
            raise ValueError("a call waits once at a time")
        self._wanted[waiter] = wanted
        self._sizes[wanted] = size + 1
        for endpoint in wanted:
            self._queues.setdefault(endpoint, OrderedDict())[waiter] = None
        return True

    def freed(self, endpoint: str) -> W | None:
        """Take out the call that waited longest for this endpoint; None when none does.

        Also to be asked when a slot appears in another way: an endpoint that rejoins, is no longer
        busy, or has a higher limit; as long as slots are free.
        """
        queue = self._queues.get(endpoint)
        if not queue:
            return None
        waiter = next(iter(queue))
        self._remove(waiter)
        return waiter

    def leave(self, waiter: W) -> bool:
        """Stop waiting (time over, cancelled). False when the call did not wait any more."""
        if waiter not in self._wanted:
            return False
        self._remove(waiter)
        return True

    def stranded(self, endpoint: str) -> list[W]:
        """Take out the calls that wait for this endpoint and for no other, oldest first."""
        only = frozenset((endpoint,))
        found = [w for w in self._queues.get(endpoint, ()) if self._wanted[w] == only]
        for waiter in found:
            self._remove(waiter)
        return found

    def waiting_for(self, endpoint: str) -> int:
        """How many calls would take a slot of this endpoint."""
        return len(self._queues.get(endpoint, ()))

    def _remove(self, waiter: W) -> None:
        endpoints = self._wanted.pop(waiter)
        size = self._sizes[endpoints] - 1
        if size:
            self._sizes[endpoints] = size
        else:
            del self._sizes[endpoints]
        for endpoint in endpoints:
            queue = self._queues[endpoint]
            del queue[waiter]
            if not queue:
                del self._queues[endpoint]
