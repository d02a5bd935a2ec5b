"""The store is listed when kopf listed, now and then, and again until that succeeds."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from tests.unit.operator.virtual_time import VirtualLoop, run

from mcpgroup_operator import errors
from mcpgroup_operator.client import Page
from mcpgroup_operator.kinds import CONFIG_MAP, GROUP, POD, WATCHED, Kind
from mcpgroup_operator.listing import Lister
from mcpgroup_operator.store import Key, Store
from mcpgroup_operator.watches import Scope, Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import pytest

RESYNC = 600.0
A = Key("tools", "a")


def item(kind: Kind, name: str, version: int) -> dict[str, Any]:
    labels = {} if kind is GROUP else {"mcpgroup.dev/group": name}
    metadata = {"namespace": "tools", "name": name, "uid": name, "labels": labels}
    return {"metadata": {**metadata, "resourceVersion": str(version)}}


class Cluster:
    """Lists take `seconds`; kinds in `refused` are not listed, and no namespaces in `closed`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.items: dict[Kind, list[dict[str, Any]]] = {}
        self.refused: set[Kind] = set()
        self.closed: set[str | None] = set()
        self.seconds = 0.1
        self.lists: list[tuple[float, Kind, str]] = []
        self.open = 0
        self.most_open = 0

    async def pages(self, kind: Kind, namespace: str | None, selector: str) -> AsyncIterator[Page]:
        self.lists.append((self._loop.time(), kind, selector))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            found = list(self.items.get(kind, ()))
            await asyncio.sleep(self.seconds)
            if kind in self.refused or namespace in self.closed:
                raise errors.ForbiddenError(f"list {kind.resource}", 403, "no")
            yield Page(found[:1], 0)
            await asyncio.sleep(self.seconds)
            yield Page(found[1:], 0)
        finally:
            self.open -= 1


class Counter:
    """Metrics."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []

    def listed(self, plural: str, *, ok: bool) -> None:
        self.told.append((plural, ok))


class Scene:
    def __init__(self, loop: VirtualLoop, namespaces: tuple[str, ...] = ()) -> None:
        self.loop = loop
        self.scope = Scope(namespaces, "team=a")
        self.cluster = Cluster(loop)
        self.store = Store()
        self.concerned: list[Key] = []
        self.metrics = Counter()
        self.lister = Lister(
            self.cluster,  # type: ignore[arg-type]
            self.store,
            self.scope,
            self.metrics,  # type: ignore[arg-type]
            self.concerned.append,
            Random(1),  # noqa: S311 - jitter
            resync_seconds=RESYNC,
        )

    async def kopf_listed(self) -> None:
        for kind in WATCHED:
            self.lister.request(Watch(kind, None))
        await self.lister.synced.wait()

    def times(self, kind: Kind) -> list[float]:
        return [at for at, listed, _ in self.cluster.lists if listed is kind]


def scene(play: Callable[[Scene], Awaitable[None]], *, namespaces: tuple[str, ...] = ()) -> None:
    async def on_loop(loop: VirtualLoop) -> None:
        s = Scene(loop, namespaces)
        task = asyncio.create_task(s.lister.run())
        try:
            await play(s)
        finally:
            task.cancel()
            await asyncio.wait({task})

    run(on_loop)


def test_it_knows_everything_once_each_kind_was_listed() -> None:
    async def play(s: Scene) -> None:
        s.cluster.items[GROUP] = [item(GROUP, "a", 1), item(GROUP, "b", 2)]
        assert len(s.lister.unlisted()) == len(WATCHED)
        await s.kopf_listed()
        assert s.lister.unlisted() == []
        assert s.store.groups() == [A, Key("tools", "b")]
        assert set(s.concerned) == set(s.store.groups())
        selectors = {kind: selector for _, kind, selector in s.cluster.lists}
        assert selectors[GROUP] == "team=a"
        assert selectors[POD] == "mcpgroup.dev/group"

    scene(play)


def test_a_kind_that_cannot_be_listed_is_named_and_tried_until_it_can() -> None:
    async def play(s: Scene) -> None:
        s.cluster.refused.add(POD)
        for kind in WATCHED:
            s.lister.request(Watch(kind, None))
        await asyncio.sleep(60)
        assert s.lister.unlisted() == ["pods"]
        assert not s.lister.synced.is_set()
        assert s.metrics.told.count(("pods", False)) >= 3
        s.cluster.refused.clear()
        await s.lister.synced.wait()
        gaps = [b - a for a, b in zip(s.times(POD), s.times(POD)[1:], strict=False)]
        assert max(gaps) <= 31

    scene(play)


def test_without_a_list_of_kopfs_it_lists_all_the_same() -> None:
    async def play(s: Scene) -> None:
        await s.lister.synced.wait()
        assert s.loop.time() - 1000 < 12

    scene(play)


def test_everything_is_listed_anew_now_and_then_but_not_at_one_moment() -> None:
    async def play(s: Scene) -> None:
        await s.kopf_listed()
        await asyncio.sleep(1.2 * RESYNC)
        second = [s.times(kind)[1] for kind in WATCHED]
        assert all(0.9 * RESYNC <= at - 1000 <= 1.1 * RESYNC + 2 for at in second)
        assert max(second) - min(second) > 0.02 * RESYNC

    scene(play)


def test_what_a_list_under_way_may_have_missed_is_listed_again() -> None:
    async def play(s: Scene) -> None:
        await s.kopf_listed()
        s.lister.request(Watch(CONFIG_MAP, None))
        await asyncio.sleep(0.05)
        s.cluster.items[CONFIG_MAP] = [item(CONFIG_MAP, "a", 9)]
        s.lister.request(Watch(CONFIG_MAP, None))
        s.lister.request(Watch(CONFIG_MAP, None))
        await asyncio.sleep(5)
        assert len(s.times(CONFIG_MAP)) == 3
        assert s.store.child(CONFIG_MAP, "tools", "a") is not None

    scene(play)


def test_what_vanished_between_two_lists_concerns_its_group() -> None:
    async def play(s: Scene) -> None:
        s.cluster.items[CONFIG_MAP] = [item(CONFIG_MAP, "a", 1)]
        await s.kopf_listed()
        s.concerned.clear()
        s.cluster.items.clear()
        await s.lister.refresh()
        assert s.concerned == [A]
        assert s.store.child(CONFIG_MAP, "tools", "a") is None

    scene(play)


def test_a_list_that_fails_takes_nothing_away() -> None:
    async def play(s: Scene) -> None:
        s.cluster.items[CONFIG_MAP] = [item(CONFIG_MAP, "a", 1)]
        await s.kopf_listed()
        s.cluster.items.clear()
        s.cluster.refused.add(CONFIG_MAP)
        s.lister.request(Watch(CONFIG_MAP, None))
        await asyncio.sleep(10)
        assert s.metrics.told.count(("configmaps", False)) >= 2
        assert s.store.child(CONFIG_MAP, "tools", "a") is not None

    scene(play)


def test_a_refresh_ends_when_lists_that_began_after_it_did() -> None:
    async def play(s: Scene) -> None:
        await s.kopf_listed()
        s.cluster.seconds = 5
        s.lister.request(Watch(CONFIG_MAP, None))
        await asyncio.sleep(1)
        s.cluster.items[CONFIG_MAP] = [item(CONFIG_MAP, "a", 9)]
        await s.lister.refresh()
        assert s.store.child(CONFIG_MAP, "tools", "a") is not None

    scene(play)


def test_few_lists_are_under_way_at_once() -> None:
    async def play(s: Scene) -> None:
        await s.kopf_listed()
        assert s.cluster.most_open == 4

    scene(play)


def test_ending_while_a_list_is_read_leaves_nothing_behind() -> None:
    async def on_loop(loop: VirtualLoop) -> None:
        s = Scene(loop)
        s.cluster.seconds = 100
        task = asyncio.create_task(s.lister.run())
        s.lister.request(Watch(CONFIG_MAP, None))
        await asyncio.sleep(1)
        assert s.store._lists != []
        task.cancel()
        await asyncio.wait({task})
        assert s.store._lists == []
        assert s.cluster.open == 0

    run(on_loop)


def test_of_several_namespaces_one_that_is_gone_holds_up_no_other() -> None:
    """Its roles went with it, so nothing in it may be listed any more."""

    async def play(s: Scene) -> None:
        s.cluster.closed = {"gone"}
        s.cluster.items[GROUP] = [item(GROUP, "a", 1)]
        await s.lister.synced.wait()
        assert s.lister.knows("tools")
        assert not s.lister.knows("gone")
        assert s.concerned[-1] == A
        began = s.loop.time()
        await s.lister.refresh()
        assert s.loop.time() - began < 5
        assert all(what.endswith(" in gone") for what in s.lister.unlisted())

        s.concerned.clear()
        s.cluster.closed = set()
        await asyncio.sleep(60)
        assert s.lister.knows("gone")
        assert s.lister.unlisted() == []

    scene(play, namespaces=("gone", "tools"))


def test_groups_are_looked_at_when_the_last_kind_of_their_namespace_is_listed() -> None:
    async def play(s: Scene) -> None:
        s.cluster.items[GROUP] = [item(GROUP, "a", 1)]
        s.cluster.refused = {POD}
        await asyncio.sleep(60)
        assert not s.lister.knows("tools")
        s.concerned.clear()
        s.cluster.refused = set()
        await s.lister.synced.wait()
        assert s.concerned == [A]

    scene(play)


def test_why_a_list_fails_is_logged_once_and_once_more_after_it_worked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(s: Scene) -> None:
        for _ in range(2):
            s.cluster.refused = {POD}
            s.lister.request(Watch(POD, None))
            await asyncio.sleep(300)
            s.cluster.refused = set()
            await asyncio.sleep(60)

    scene(play)
    assert [record.getMessage() for record in caplog.records] == [
        "list pods: no; tried until it works",
        "list pods: no; tried until it works",
    ]
