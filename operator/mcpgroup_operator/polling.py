"""Asks every gateway pod for its `/status` again and again, and tells when the answer changed.

One poller serves all groups. Each pod has a clock of its own with jitter, so that the questions
spread; what hangs delays nobody else (`lanes`). A pod is known by its uid: another pod at the same
address is another pod, and an answer in another pod's name is none.

What is kept of a pod is a `Poll`. The group is told when a report differs from the last one, when
a pod was missed three times in a row, and when it is back.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, Literal, Protocol

from mcpgroup_operator.lanes import Lane
from mcpgroup_operator.observation import MAX_MISSES
from mcpgroup_operator.reports import Poll, UnreadableReportError, parse_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mcpgroup_operator.lanes import Slot
    from mcpgroup_operator.store import Key

INTERVAL_SECONDS: Final = 5.0
TIMEOUT_SECONDS: Final = 2.0
FAST_LIMIT: Final = 32
SLOW_LIMIT: Final = 128
PATIENCE_SECONDS: Final = 0.25
"""How long a question may stay in the fast lane."""
SOON_SECONDS: Final = 1.0
"""Between polls of a pod from which news is expected: one that never answered, until it was missed
three times, and one that is watched closely."""

_JITTER: Final = 0.2

_log = logging.getLogger(__name__)


class PodUnreachableError(Exception):
    """A pod cannot be asked. The text says why in a few words, which must not vary by chance."""


@dataclass(frozen=True, slots=True)
class Target:
    """A pod to be asked. `ready` as Kubernetes says it."""

    namespace: str
    name: str
    uid: str
    ip: str
    ready: bool


class Fetch(Protocol):
    """Reads the body of a pod's `/status`. Raises `PodUnreachableError`."""

    async def __call__(self, target: Target, /) -> bytes: ...


@dataclass(eq=False, slots=True)
class _Pod:
    """Either `timer` is set, or it waits for a slot, or `task` asks it now. Until `news_until`, a
    time of the loop, it is asked often."""

    key: Key
    target: Target
    poll: Poll = field(default_factory=Poll)
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None
    again: bool = False
    gone: bool = False
    news_until: float = 0.0


class Poller:
    """`on_change(key)` is called on the event loop and must not block. `observe(result)` hears of
    every poll: `ok`, `unreadable` or `unreachable`."""

    def __init__(
        self,
        fetch: Fetch,
        on_change: Callable[[Key], object],
        *,
        observe: Callable[[str], object],
        interval: float = INTERVAL_SECONDS,
        timeout: float = TIMEOUT_SECONDS,
        random: Random | None = None,
    ) -> None:
        self._fetch = fetch
        self._on_change = on_change
        self._observe = observe
        self._interval = interval
        self._timeout = timeout
        self._random = random or Random()  # noqa: S311 - spreads load
        self._fast = Lane(FAST_LIMIT)
        self._slow = Lane(SLOW_LIMIT)
        self._groups: dict[Key, dict[str, _Pod]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def set_pods(self, key: Key, targets: Iterable[Target]) -> None:
        """The pods of a group, all of them. New ones and those that became ready are asked now."""
        if self._closed:
            return
        pods = self._groups.setdefault(key, {})
        wanted = {target.uid: target for target in targets}
        for uid in pods.keys() - wanted.keys():
            self._drop(pods.pop(uid))
        for uid, target in wanted.items():
            pod = pods.get(uid)
            if pod is None:
                pods[uid] = pod = _Pod(key, target)
                self._enter(pod)
            elif pod.target != target:
                self._renew(pod, target)
        if not pods:
            del self._groups[key]

    def remove(self, key: Key) -> None:
        """Ask the pods of a group no more, and forget what they said."""
        for pod in self._groups.pop(key, {}).values():
            self._drop(pod)

    def poll_of(self, key: Key, uid: str) -> Poll | None:
        """How asking a pod went; None for one that is not known."""
        pod = self._groups.get(key, {}).get(uid)
        return pod.poll if pod is not None else None

    def watch_closely(self, key: Key, seconds: float) -> None:
        """Ask the pods of a group every second, each until it has news, at most for so long."""
        loop = asyncio.get_running_loop()
        for pod in self._groups.get(key, {}).values():
            pod.news_until = loop.time() + seconds
            soon = loop.time() + self._soon()
            if pod.timer is not None and soon < pod.timer.when():
                pod.timer.cancel()
                pod.timer = loop.call_at(soon, self._enter, pod)

    async def close(self) -> None:
        """Ask nobody any more. Ends what is in flight."""
        self._closed = True
        for key in list(self._groups):
            self.remove(key)
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- when a pod is asked

    def _drop(self, pod: _Pod) -> None:
        pod.gone = True
        if pod.timer is not None:
            pod.timer.cancel()
        if pod.task is not None:
            pod.task.cancel()

    def _renew(self, pod: _Pod, target: Target) -> None:
        became_ready = target.ready and not pod.target.ready
        moved = target.ip != pod.target.ip
        pod.target = target
        unreached = pod.poll.report is None or pod.poll.misses >= MAX_MISSES
        if became_ready and unreached:
            # While it started nobody could have answered: only misses from now on count.
            pod.poll = Poll()
        if became_ready or moved:
            self._hasten(pod)

    def _hasten(self, pod: _Pod) -> None:
        """Ask it without waiting for its time. An answer that is on its way may be older than what
        is new: then once more."""
        if pod.task is not None:
            pod.again = True
        elif pod.timer is not None:
            pod.timer.cancel()
            self._enter(pod)

    def _enter(self, pod: _Pod) -> None:
        pod.timer = None
        lane = self._slow if pod.poll.misses else self._fast
        lane.enter(lambda slot: self._start(pod, slot))

    def _start(self, pod: _Pod, slot: Slot) -> None:
        if pod.gone:
            slot.give_back()
            return
        pod.task = asyncio.get_running_loop().create_task(self._ask(pod, slot))
        self._tasks.add(pod.task)
        pod.task.add_done_callback(self._tasks.discard)
        # Also when it is cancelled before it began.
        pod.task.add_done_callback(lambda _: slot.give_back())

    def _soon(self) -> float:
        wait = min(SOON_SECONDS, self._interval)
        return wait * self._random.uniform(1 - _JITTER, 1)

    def _schedule(self, pod: _Pod, started: float, *, first: bool) -> None:
        loop = asyncio.get_running_loop()
        unknown = pod.poll.report is None and pod.poll.misses < MAX_MISSES
        if unknown or loop.time() < pod.news_until:
            wait = self._soon()
        elif first:
            # Pods that were found at one moment would go on together for a long time.
            wait = self._interval * self._random.uniform(_JITTER, 1)
        else:
            wait = self._interval * self._random.uniform(1 - _JITTER, 1 + _JITTER)
        pod.timer = loop.call_at(max(started + wait, loop.time()), self._enter, pod)

    # --- asking it

    async def _ask(self, pod: _Pod, slot: Slot) -> None:
        loop = asyncio.get_running_loop()
        started, first = loop.time(), not pod.poll.asked
        patience = loop.call_later(PATIENCE_SECONDS, slot.move, self._slow)
        try:
            poll, result = await self._outcome(pod.target, pod.poll)
        finally:
            patience.cancel()
            pod.task = None
        if pod.gone:
            return
        self._observe(result)
        before, pod.poll = pod.poll, poll
        news = _is_news(before, poll)
        if news:
            pod.news_until = 0.0
        slot.give_back()
        if pod.again:
            pod.again = False
            self._enter(pod)
        else:
            self._schedule(pod, started, first=first)
        if news:
            self._on_change(pod.key)

    async def _outcome(
        self, target: Target, before: Poll
    ) -> tuple[Poll, Literal["ok", "unreadable", "unreachable"]]:
        try:
            async with asyncio.timeout(self._timeout):
                content = await self._fetch(target)
            report = parse_report(content)
            if (report.namespace, report.pod) != (target.namespace, target.name):
                raise UnreadableReportError("another pod answers at its address")
        except UnreadableReportError as error:
            return _missed(before, str(error)), "unreadable"
        except PodUnreachableError as error:
            return _missed(before, str(error)), "unreachable"
        except TimeoutError:
            return _missed(before, f"no answer within {self._timeout:g} s"), "unreachable"
        except Exception:  # noqa: BLE001 - logged; a fault of ours must not end the polls of a pod
            _log.exception("asking pod %s/%s failed", target.namespace, target.name)
            return _missed(before, "a fault of the operator, see its log"), "unreachable"
        # The known object for an equal one: what is news is then seen by identity, and cheaply.
        return Poll(before.report if report == before.report else report), "ok"


def _missed(before: Poll, error: str) -> Poll:
    """Counts no further than matters, and keeps the reason given then: a pod that is refused at one
    poll and silent at the next is no news each time."""
    if before.misses >= MAX_MISSES:
        return before
    return Poll(before.report, before.misses + 1, error)


def _is_news(before: Poll, after: Poll) -> bool:
    reached = before.misses < MAX_MISSES
    return reached != (after.misses < MAX_MISSES) or (
        after.misses == 0 and after.report is not before.report
    )
