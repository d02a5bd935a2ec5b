"""Keeps the store true: one LIST of each kind and place, when kopf listed anew and now and then.

A list that fails is tried again; meanwhile the store keeps what it has. Nothing is decided of a
group before every kind was listed once where it is (`knows`); of several namespaces, one that
cannot be listed holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mcpgroup_operator import errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from mcpgroup_operator.client import Client
    from mcpgroup_operator.metrics import Metrics
    from mcpgroup_operator.store import Key, Store
    from mcpgroup_operator.watches import Scope, Watch

_LOG: Final = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS: Final = 1.0
_MAX_RETRY_SECONDS: Final = 30.0
_FIRST_LIST_SECONDS: Final = 10.0
_AT_ONCE: Final = 4


class Lister:
    """`concerned(key)` is called for each group of which a list told something new."""

    def __init__(
        self,
        client: Client,
        store: Store,
        scope: Scope,
        metrics: Metrics,
        concerned: Callable[[Key], None],
        random: Random,
        *,
        resync_seconds: float,
    ) -> None:
        self._client = client
        self._store = store
        self._scope = scope
        self._metrics = metrics
        self._concerned = concerned
        self._random = random
        self._resync_seconds = resync_seconds
        self._asked = {watch: asyncio.Event() for watch in scope.watches()}
        self._requests = dict.fromkeys(scope.watches(), 0)
        self._done = dict.fromkeys(scope.watches(), 0)
        self._progress = asyncio.Condition()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._told: dict[Watch, str] = {}
        self._known: set[str | None] = set()
        self.synced = asyncio.Event()
        """There is a place, or there are several, of which every kind was listed."""

    def request(self, watch: Watch) -> None:
        """List it soon, from now on: what a list under way may have missed counts."""
        self._requests[watch] += 1
        self._asked[watch].set()

    def knows(self, namespace: str) -> bool:
        """Whether all that belongs to groups of a namespace was listed once."""
        return None in self._known or namespace in self._known

    def unlisted(self) -> list[str]:
        """What was never listed: kinds, with their namespace if there are several."""
        return [
            f"{watch.kind.resource} in {watch.namespace}"
            if watch.namespace
            else watch.kind.resource
            for watch, number in self._done.items()
            if not number
        ]

    async def refresh(self) -> None:
        """Lists everything that is known once more, and returns when that is done."""
        wanted = {}
        for watch in self._scope.watches():
            if watch.namespace in self._known:
                self.request(watch)
                wanted[watch] = self._requests[watch]
        async with self._progress:
            await self._progress.wait_for(
                lambda: all(self._done[watch] >= number for watch, number in wanted.items())
            )

    async def run(self) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in self._scope.watches():
                group.create_task(self._keep_listed(watch), name=f"list {watch.kind.plural}")

    async def _keep_listed(self, watch: Watch) -> None:
        retry = _FIRST_RETRY_SECONDS
        # The first list follows kopf's, which may be refused what ours is not.
        wait = _FIRST_LIST_SECONDS
        while True:
            try:
                async with asyncio.timeout(wait):
                    await self._asked[watch].wait()
            except TimeoutError:
                self._requests[watch] += 1
            self._asked[watch].clear()
            number = self._requests[watch]
            if await self._list(watch):
                retry = _FIRST_RETRY_SECONDS
                wait = self._resync_seconds * (0.9 + 0.2 * self._random.random())
                await self._note(watch, number)
            else:
                wait = retry * (0.5 + self._random.random() / 2)
                retry = min(retry * 2, _MAX_RETRY_SECONDS)

    async def _list(self, watch: Watch) -> bool:
        selector = self._scope.label_selector(watch.kind)
        async with self._slots:
            listing = self._store.begin_list(watch.kind, watch.namespace)
            try:
                async for page in self._client.pages(watch.kind, watch.namespace, selector):
                    listing.add(page.items, page.version)
            except errors.ApiError as error:
                if self._told.get(watch) != str(error):
                    self._told[watch] = str(error)
                    _LOG.warning("%s; tried until it works", error)
                self._metrics.listed(watch.kind.plural, ok=False)
                return False
            else:
                self._told.pop(watch, None)
                for key in self._store.finish_list(listing):
                    self._concerned(key)
                self._metrics.listed(watch.kind.plural, ok=True)
                return True
            finally:
                self._store.abandon_list(listing)

    async def _note(self, watch: Watch, number: int) -> None:
        async with self._progress:
            self._done[watch] = number
            self._progress.notify_all()
        place = watch.namespace
        if place in self._known or not all(
            n for w, n in self._done.items() if w.namespace == place
        ):
            return
        self._known.add(place)
        self.synced.set()
        for key in self._store.groups():
            if place in (None, key.namespace):
                self._concerned(key)
