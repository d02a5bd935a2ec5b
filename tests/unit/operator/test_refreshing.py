"""A pod with an old file gets a patch at once, after 5 and after 15 seconds, and no more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.operator.observations import HASH, OLD_HASH, never, observed, pod

from mcpgroup_operator import errors
from mcpgroup_operator.kinds import POD
from mcpgroup_operator.refreshing import ConfigRefresher, ConfigRefreshes, Decision
from mcpgroup_operator.store import Key, Store

if TYPE_CHECKING:
    from mcpgroup_operator.kinds import Kind
    from mcpgroup_operator.observation import ObservedPod

KEY = Key("tools", "search")


def decide(
    refreshes: ConfigRefreshes,
    now: float,
    *,
    told: str = OLD_HASH,
    wanted: str = HASH,
    annotated: str | None = HASH,
) -> Decision:
    return refreshes.decide("u", wanted=wanted, annotated=annotated, told=told, now=now)


def test_a_pod_with_the_file_needs_nothing() -> None:
    assert decide(ConfigRefreshes(), 0, told=HASH, annotated=None) == Decision()


def test_patches_come_at_once_after_five_and_after_fifteen_seconds_and_never_again() -> None:
    refreshes = ConfigRefreshes()
    assert decide(refreshes, 100, annotated=OLD_HASH) == Decision(1, 5)
    refreshes.patched("u", wanted=HASH, patch=1, now=100)
    assert decide(refreshes, 102) == Decision(None, 3)
    assert decide(refreshes, 105) == Decision(2, 10)
    refreshes.patched("u", wanted=HASH, patch=2, now=105)
    assert decide(refreshes, 114.5) == Decision(None, 0.5)
    assert decide(refreshes, 115) == Decision(3)
    refreshes.patched("u", wanted=HASH, patch=3, now=115)
    for later in (116, 130, 1000):
        assert decide(refreshes, later) == Decision()


def test_a_patch_that_could_not_be_made_is_asked_for_again() -> None:
    refreshes = ConfigRefreshes()
    assert decide(refreshes, 100, annotated=None) == Decision(1, 5)
    assert decide(refreshes, 101, annotated=None) == Decision(1, 5)
    refreshes.patched("u", wanted=HASH, patch=1, now=101)
    assert decide(refreshes, 106) == Decision(2, 10)
    assert decide(refreshes, 107) == Decision(2, 9)


def test_an_operator_that_has_just_started_does_not_repeat_the_first_patch() -> None:
    refreshes = ConfigRefreshes()
    assert decide(refreshes, 100) == Decision(None, 5)
    assert decide(refreshes, 105) == Decision(2, 10)


def test_another_file_begins_anew() -> None:
    refreshes = ConfigRefreshes()
    for number in (1, 2, 3):
        refreshes.patched("u", wanted=HASH, patch=number, now=100)
    assert decide(refreshes, 101, wanted="sha256:new") == Decision(1, 5)
    refreshes.patched("u", wanted="sha256:new", patch=1, now=101)
    assert decide(refreshes, 101, wanted="sha256:new", annotated="sha256:new") == Decision(None, 5)


def test_a_file_that_was_taken_and_lost_begins_anew() -> None:
    refreshes = ConfigRefreshes()
    refreshes.patched("u", wanted=HASH, patch=1, now=100)
    assert decide(refreshes, 101, told=HASH) == Decision()
    assert decide(refreshes, 102) == Decision(None, 5)


def test_pods_that_are_gone_are_forgotten() -> None:
    refreshes = ConfigRefreshes()
    refreshes.patched("u", wanted=HASH, patch=1, now=100)
    refreshes.keep({"other"})
    assert decide(refreshes, 101, annotated=None) == Decision(1, 5)


# --- with a client


class Pods:
    """A client that patches pods, or fails as it is told; metrics count with it."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.fails: Exception | None = None
        self.written: list[tuple[str, str]] = []
        self.status: dict[str, Any] = {"phase": "Running", "podIP": "10.0.0.1"}

    async def merge_patch(
        self, kind: Kind, namespace: str, name: str, patch: dict[str, Any], subresource: str
    ) -> dict[str, Any]:
        assert (kind.plural, namespace, subresource) == ("pods", "tools", "status")
        if self.fails is not None:
            raise self.fails
        self.patches.append((name, patch["metadata"]))
        metadata = {"name": name, "namespace": namespace, "labels": {}, **patch["metadata"]}
        version = str(100 + len(self.patches))
        return {"metadata": {**metadata, "resourceVersion": version}, "status": self.status}

    def child_written(self, resource: str, action: str) -> None:
        self.written.append((resource, action))


class Scene:
    def __init__(self) -> None:
        self.now = 100.0
        self.pods = Pods()
        store = Store()
        for name in ("search-1", "search-2"):
            metadata: dict[str, Any] = {"name": name, "namespace": "tools", "labels": {}}
            metadata["resourceVersion"] = "1"
            store.put(POD, {"metadata": metadata, "status": self.pods.status})
        self.refresher = ConfigRefresher(
            self.pods,  # type: ignore[arg-type]
            store,
            self.pods,  # type: ignore[arg-type]
            lambda: self.now,
        )

    def refresh(self, *pods: ObservedPod, **facts: Any) -> float | None:
        return asyncio.run(self.refresher.refresh(KEY, observed(*pods, **facts)))


def old(name: str = "search-1", **facts: Any) -> ObservedPod:
    return pod(name, config_hash=OLD_HASH, **facts)


def test_the_patch_names_the_very_pod_and_the_hash() -> None:
    scene = Scene()
    assert scene.refresh(old(), pod("search-2")) == 5
    ((name, metadata),) = scene.pods.patches
    assert name == "search-1"
    assert metadata["uid"] == old().uid
    assert metadata["annotations"]["mcpgroup.dev/config-hash"] == HASH
    assert scene.pods.written == [("pods", "refreshed")]


def test_each_repeat_changes_the_pod() -> None:
    scene = Scene()
    for later in (0, 5, 15, 60):
        scene.now = 100.0 + later
        scene.refresh(old())
    texts = [m["annotations"]["mcpgroup.dev/config-refresh"] for _, m in scene.pods.patches]
    assert texts == ["1", "2", "3"]


def test_who_is_on_the_way_out_or_never_answered_is_left_alone() -> None:
    scene = Scene()
    assert scene.refresh(old(terminating=True), pod("search-2", poll=never())) is None
    assert scene.refresh(old(), config_hash=None) is None
    assert scene.pods.patches == []


@pytest.mark.parametrize("kind", [errors.NotFoundError, errors.ConflictError])
def test_a_pod_that_is_gone_or_another_one_is_no_error(kind: type[errors.ApiError]) -> None:
    scene = Scene()
    scene.pods.fails = kind("patch pods/status", 404, "no")
    assert scene.refresh(old()) == 5


def test_a_failed_patch_is_made_at_the_next_try() -> None:
    scene = Scene()
    scene.pods.fails = errors.ServerError("patch pods/status", 500, "no")
    with pytest.raises(errors.ServerError):
        scene.refresh(old())
    scene.pods.fails = None
    scene.now += 0.2
    assert scene.refresh(old()) == 5
    assert len(scene.pods.patches) == 1


def test_a_group_that_is_forgotten_begins_anew() -> None:
    scene = Scene()
    scene.refresh(old())
    scene.refresher.forget(KEY)
    scene.refresher.forget(KEY)
    scene.refresh(old())
    assert len(scene.pods.patches) == 1, "the annotation is there"


def test_what_the_answer_to_a_patch_shows_of_a_pod_is_looked_at() -> None:
    """The event that told of it is no news to the store any more."""
    scene = Scene()
    scene.pods.status = {**scene.pods.status, "podIP": "10.0.0.9"}
    assert scene.refresh(old()) == 0
    scene.now += 5
    assert scene.refresh(old()) == 10
