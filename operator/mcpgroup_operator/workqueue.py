"""Which group is reconciled next: a queue of keys in which each key stands at most once.

A key that is asked for while it is worked on is worked on once more afterwards, never twice at
once. A key that failed waits longer each time, up to `MAX_BACKOFF_SECONDS`; asking for it because
something changed does not wait, and does not forgive either. Only a server that says when to come
back is not asked earlier, whatever changed.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable
    from random import Random

    K = TypeVar("K", bound=Hashable)
else:
    K = TypeVar("K")

FIRST_BACKOFF_SECONDS: Final = 0.2
MAX_BACKOFF_SECONDS: Final = 60.0
_MAX_DOUBLINGS: Final = 12
_SLACK: Final = 100


class QueueObserver(Protocol):
    """Told what the queue does, for metrics."""

    def added(self) -> None: ...

    def retried(self) -> None: ...


class WorkQueue(Generic[K]):
    """Pure: knows no tasks and no clock but the times it is given.

    `take(now)` gives a key that is due or None; every key taken is given back with `done`.
    `next_due(now)` is the time at which to look again, None when nothing waits.
    """

    def __init__(self, random: Random, observer: QueueObserver) -> None:
        self._random = random
        self._observer = observer
        self._ready: deque[K] = deque()
        self._waiting_since: dict[K, float] = {}
        self._running: dict[K, float] = {}
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._due: dict[K, float] = {}
        self._not_before: dict[K, float] = {}
        self._later: list[tuple[float, int, K]] = []
        self._count = itertools.count()

    def add(self, key: K, now: float) -> None:
        """Something changed: as soon as possible."""
        if key in self._waiting_since or (key in self._running and key in self._again):
            return
        if key not in self._running and self._must_wait(key, now):
            return
        self._observer.added()
        self._due.pop(key, None)
        if key in self._running:
            self._again.add(key)
        else:
            self._waiting_since[key] = now
            self._ready.append(key)

    def add_after(self, key: K, delay: float, now: float) -> None:
        """Not before `delay` seconds, unless it is asked for earlier. The earliest time counts."""
        due = now + delay
        if key in self._waiting_since or self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._later, (due, next(self._count), key))
        if len(self._later) > 2 * len(self._due) + _SLACK:
            # Times that no longer count would stay until they pass, minutes later.
            self._later = [entry for entry in self._later if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._later)

    def add_failed(self, key: K, now: float, at_least: float = 0.0) -> float:
        """After a backoff with jitter that doubles with each failure; returns its length. It is not
        tried before `at_least` seconds, of which no more than `MAX_BACKOFF_SECONDS` count."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._observer.retried()
        doublings = min(failures - 1, _MAX_DOUBLINGS)
        longest = min(FIRST_BACKOFF_SECONDS * float(2**doublings), MAX_BACKOFF_SECONDS)
        at_least = min(at_least, MAX_BACKOFF_SECONDS)
        delay = max(at_least, longest * (0.5 + self._random.random() / 2))
        if at_least > 0:
            self._not_before[key] = now + at_least
        self.add_after(key, delay, now)
        return delay

    def forgive(self, key: K) -> None:
        """It succeeded: the next failure starts from the shortest backoff."""
        self._failures.pop(key, None)

    def forget(self, key: K) -> None:
        """The key is gone for good: nothing of it stays."""
        self._failures.pop(key, None)
        self._not_before.pop(key, None)
        self._due.pop(key, None)

    def take(self, now: float) -> K | None:
        """A key to work on now. It counts as running until `done`."""
        while self._later and self._later[0][0] <= now:
            due, _, key = heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key, now)
        if not self._ready:
            return None
        key = self._ready.popleft()
        del self._waiting_since[key]
        self._running[key] = now
        return key

    def done(self, key: K, now: float) -> None:
        """The work on a key ended, well or not."""
        del self._running[key]
        if key in self._again:
            self._again.discard(key)
            if self._must_wait(key, now):
                return
            self._due.pop(key, None)
            self._waiting_since[key] = now
            self._ready.append(key)

    def _must_wait(self, key: K, now: float) -> bool:
        """Whether it is too early for a key; it comes by itself when it is not any more."""
        earliest = self._not_before.get(key)
        if earliest is None:
            return False
        if earliest <= now:
            del self._not_before[key]
            return False
        self.add_after(key, earliest - now, now)
        return True

    def next_due(self, now: float) -> float | None:
        """When `take` may give a key: `now` when one is ready."""
        if self._ready:
            return now
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    @property
    def depth(self) -> int:
        """Keys that wait for a worker now."""
        return len(self._ready)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing is ready; what waits for a later time does not count."""
        return not self._ready and not self._running

    def longest_running(self, now: float) -> float:
        """Seconds that the oldest work has taken so far."""
        return now - min(self._running.values()) if self._running else 0.0


class Workers(Generic[K]):
    """A fixed number of tasks that work on the queue until they are cancelled.

    `work(key)` must not raise but on a fault of the program, which ends everything.
    """

    def __init__(
        self,
        queue: WorkQueue[K],
        work: Callable[[K], Awaitable[None]],
        clock: Callable[[], float],
        count: int,
    ) -> None:
        self._queue = queue
        self._work = work
        self._clock = clock
        self._count = count
        self._changed = asyncio.Event()

    def add(self, key: K) -> None:
        """Something changed."""
        self._queue.add(key, self._clock())
        self._changed.set()

    def add_after(self, key: K, delay: float) -> None:
        """Look at it again in so many seconds."""
        self._queue.add_after(key, delay, self._clock())
        self._changed.set()

    def add_failed(self, key: K, at_least: float = 0.0) -> float:
        """It failed; returns the seconds until it is tried again."""
        delay = self._queue.add_failed(key, self._clock(), at_least)
        self._changed.set()
        return delay

    def forgive(self, key: K) -> None:
        """It succeeded."""
        self._queue.forgive(key)

    def forget(self, key: K) -> None:
        """It is gone for good."""
        self._queue.forget(key)

    async def run(self) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._count):
                group.create_task(self._worker(), name=f"worker {number}")

    async def _worker(self) -> None:
        while True:
            key = self._queue.take(self._clock())
            if key is None:
                await self._wait()
                continue
            try:
                await self._work(key)
            finally:
                self._queue.done(key, self._clock())
                self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        due = self._queue.next_due(self._clock())
        timeout = None if due is None else max(0.0, due - self._clock())
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            return
