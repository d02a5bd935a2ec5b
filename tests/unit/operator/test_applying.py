"""One child is brought to what is desired: when that is a write, and when it must not be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from mcpgroup_operator import errors
from mcpgroup_operator.applying import Applier, GroupGoneError
from mcpgroup_operator.children.manifests import Desired, sealed
from mcpgroup_operator.kinds import CONFIG_MAP
from mcpgroup_operator.metrics import Metrics
from mcpgroup_operator.names import FIELD_MANAGER, GROUP_LABEL
from mcpgroup_operator.overruled import TRY_AGAIN_SECONDS, Overruled
from mcpgroup_operator.store import Key, Store

if TYPE_CHECKING:
    from mcpgroup_operator.client import Client
    from mcpgroup_operator.kinds import Kind

KEY = Key("team", "demo")
MARK = "system.mcpgroup"


class FakeApi:
    """Holds at most one object, and remembers what was applied."""

    def __init__(self, live: dict[str, Any] | None = None) -> None:
        self.live = live
        self.applied: list[tuple[dict[str, Any], bool]] = []

    async def find(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        assert (kind, namespace, name) == (CONFIG_MAP, KEY.namespace, KEY.name)
        return self.live

    async def apply(self, manifest: dict[str, Any], *, force: bool) -> dict[str, Any]:
        self.applied.append((manifest, force))
        uid = self.live["metadata"]["uid"] if self.live else "made"
        self.live = live(manifest, uid=uid)
        return self.live


class ConflictingApi(FakeApi):
    """Holds another object than the store knows, or none."""

    async def apply(self, manifest: dict[str, Any], *, force: bool) -> dict[str, Any]:
        raise errors.ConflictError("patch configmaps", 409, "the uid is another one")


class Group:
    """Whether it is still there, and how often that was asked."""

    def __init__(self, *, gone: bool = False) -> None:
        self.gone = gone
        self.asked: list[bool] = []

    async def __call__(self, *, fresh: bool) -> None:
        self.asked.append(fresh)
        if self.gone:
            raise GroupGoneError


def config_map(owner: str = "uid-of-group", text: str = "a") -> Desired:
    reference = {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "name": KEY.name,
        "uid": owner,
        "controller": True,
    }
    return sealed(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": KEY.name,
                "namespace": KEY.namespace,
                "labels": {GROUP_LABEL: KEY.name},
                "annotations": {"mcpgroup.dev/operator": MARK},
                "ownerReferences": [reference],
            },
            "data": {"key": text},
        }
    )


def live(manifest: dict[str, Any], *, uid: str = "u", version: str = "7") -> dict[str, Any]:
    metadata = {
        **manifest["metadata"],
        "uid": uid,
        "resourceVersion": version,
        "managedFields": [{"manager": FIELD_MANAGER}],
    }
    return {**manifest, "metadata": metadata}


def orphan(desired: Desired) -> dict[str, Any]:
    found = live(desired.manifest)
    del found["metadata"]["ownerReferences"]
    return found


def applier(api: FakeApi, group: Group) -> Applier:
    overruled = Overruled(lambda: 0.0)
    return Applier(cast("Client", api), Store(), Metrics("1"), KEY, MARK, group, overruled)


async def test_what_is_there_is_not_written() -> None:
    desired = config_map()
    api, group = FakeApi(live(desired.manifest)), Group()
    await applier(api, group).ensure(desired, api.live)
    assert (api.applied, group.asked) == ([], [])


async def test_what_is_missing_is_made_for_a_group_that_is_there_and_never_merged() -> None:
    desired = config_map()
    api, group = FakeApi(), Group()
    await applier(api, group).ensure(desired, None)
    ((manifest, force),) = api.applied
    # Of an object that somebody made meanwhile this is not the version: a conflict.
    assert (manifest["metadata"].pop("resourceVersion"), force) == ("1", False)
    assert manifest == desired.manifest
    assert group.asked == [False]


async def test_nothing_is_made_for_a_group_that_is_gone() -> None:
    api = FakeApi()
    with pytest.raises(GroupGoneError):
        await applier(api, Group(gone=True)).ensure(config_map(), None)
    assert api.applied == []


async def test_what_differs_is_applied_with_force_and_its_uid() -> None:
    api, group = FakeApi(live(config_map(text="old").manifest, uid="its")), Group()
    await applier(api, group).ensure(config_map(text="new"), api.live)
    ((manifest, force),) = api.applied
    assert (manifest["metadata"]["uid"], manifest["data"], force) == ("its", {"key": "new"}, True)
    assert group.asked == []


async def test_an_orphan_is_taken_back_once_the_group_is_known_to_stay() -> None:
    desired = config_map()
    api, group = FakeApi(orphan(desired)), Group()
    await applier(api, group).ensure(desired, api.live)
    assert group.asked == [True]
    assert [force for _, force in api.applied] == [True]


async def test_an_orphan_of_a_group_that_is_being_deleted_is_left_alone() -> None:
    desired = config_map()
    api = FakeApi(orphan(desired))
    with pytest.raises(GroupGoneError):
        await applier(api, Group(gone=True)).ensure(desired, api.live)
    assert api.applied == []


async def test_a_child_of_an_earlier_group_is_taken_over_once_the_new_one_is_known_to_stay() -> (
    None
):
    api, group = FakeApi(live(config_map("earlier").manifest)), Group()
    await applier(api, group).ensure(config_map("later"), api.live)
    assert group.asked == [True]
    assert len(api.applied) == 1


class Webhook(FakeApi):
    """Has its own mind about one key."""

    async def apply(self, manifest: dict[str, Any], *, force: bool) -> dict[str, Any]:
        await super().apply(manifest, force=force)
        assert self.live is not None
        self.live = {**self.live, "data": {"key": "as the webhook wants it"}}
        return self.live


class Overruling:
    """One child, brought there again and again, through a webhook that changes it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.api = Webhook()
        self.overruled = Overruled(lambda: self.now)

    async def ensure(self, desired: Desired) -> int:
        """How many writes that was."""
        before = len(self.api.applied)
        client, metrics = cast("Client", self.api), Metrics("1")
        one = Applier(client, Store(), metrics, KEY, MARK, Group(), self.overruled)
        await one.ensure(desired, self.api.live)
        return len(self.api.applied) - before


async def test_what_a_webhook_changes_is_applied_once_and_not_at_each_reconcile() -> None:
    child = Overruling()
    assert [await child.ensure(config_map()) for _ in range(5)] == [1, 0, 0, 0, 0]


async def test_another_manifest_is_applied_though_a_webhook_changes_it() -> None:
    child = Overruling()
    await child.ensure(config_map())
    assert await child.ensure(config_map(text="another")) == 1


async def test_what_else_is_missing_is_applied_though_a_webhook_changes_some() -> None:
    child = Overruling()
    await child.ensure(config_map())
    assert child.api.live is not None
    del child.api.live["metadata"]["annotations"]["mcpgroup.dev/operator"]
    assert await child.ensure(config_map()) == 1


async def test_a_webhook_may_have_gone_after_a_while() -> None:
    child = Overruling()
    await child.ensure(config_map())
    child.now = TRY_AGAIN_SECONDS
    assert [await child.ensure(config_map()) for _ in range(2)] == [1, 0]


async def test_what_a_webhook_changed_is_forgotten_with_the_group() -> None:
    child = Overruling()
    await child.ensure(config_map())
    child.overruled.forget(KEY)
    assert await child.ensure(config_map()) == 1


@pytest.mark.parametrize("uid", ["another", None])
async def test_a_conflict_shows_that_the_store_is_behind(uid: str | None) -> None:
    """A watch may be down for long: the next try is to judge what is there."""
    known = live(config_map(text="old").manifest, uid="gone", version="7")
    desired = config_map(text="new")
    there = None if uid is None else live(desired.manifest, uid=uid, version="9")
    store = Store()
    store.put(CONFIG_MAP, known)
    api = cast("Client", ConflictingApi(there))
    one = Applier(api, store, Metrics("1"), KEY, MARK, Group(), Overruled(lambda: 0.0))
    with pytest.raises(errors.ConflictError):
        await one.ensure(desired, known)
    found = store.child(CONFIG_MAP, KEY.namespace, KEY.name)
    assert (found["metadata"]["uid"] if found else None) == uid
