"""Brings one child to what is desired, and deletes one that is no longer asked for.

Nothing is written that is there already, and nothing that is not ours. Every write is aimed at
the very object that was judged: by its uid when there is one, as one to be made when there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from mcpgroup_operator import errors
from mcpgroup_operator.kinds import POD, POD_MONITOR, SECRET, Kind
from mcpgroup_operator.lacking import lacks
from mcpgroup_operator.ownership import Deleting, ManagedByOther, NotOwned, Ours, ownership
from mcpgroup_operator.repairs import repairs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcpgroup_operator.children import Desired, Unwanted
    from mcpgroup_operator.client import Client
    from mcpgroup_operator.metrics import Metrics
    from mcpgroup_operator.overruled import Overruled
    from mcpgroup_operator.store import Key, Store

Manifest = dict[str, Any]

_NO_OBJECTS_VERSION: Final = "1"
"""The store of an API server is at this version while it is empty, so no object ever has it. An
apply that names a version is refused for an object of any other, and makes what is not there."""


class NotOursError(Exception):
    """There is an object of a child's name that is not ours."""


class OtherOperatorError(Exception):
    """The child belongs to another installation of the operator; `mark` is its."""

    def __init__(self, mark: str) -> None:
        super().__init__(mark)
        self.mark = mark


class StillDeletingError(Exception):
    """An earlier child of that name is on its way out."""


class GroupGoneError(Exception):
    """The group was deleted, or replaced by another one of its name."""


class Confirm(Protocol):
    """Asks whether a group is still there."""

    async def __call__(self, *, fresh: bool) -> None: ...


class Applier:
    """The children of one group during one reconcile.

    `confirm(fresh=…)` asks the API server whether the group is still there, and raises
    `GroupGoneError` if not; without `fresh` an answer of a moment ago will do.
    """

    def __init__(
        self,
        client: Client,
        store: Store,
        metrics: Metrics,
        key: Key,
        mark: str,
        confirm: Confirm,
        overruled: Overruled,
    ) -> None:
        self._client = client
        self._store = store
        self._metrics = metrics
        self._key = key
        self._mark = mark
        self._confirm = confirm
        self._overruled = overruled

    async def find(self, kind: Kind, name: str) -> Manifest | None:
        """The live object: from the store, or from the API server when the store cannot know."""
        namespace = self._key.namespace
        if kind in (SECRET, POD_MONITOR):
            return await self._client.find(kind, namespace, name)
        return self._store.child(kind, namespace, name)

    def refuse_other_operators(self, children: Iterable[Manifest]) -> None:
        """Raises `OtherOperatorError` when one of them is another installation's."""
        for child in children:
            whose = ownership(child, self._key.name, self._mark)
            if isinstance(whose, ManagedByOther) and child["kind"] != POD.name:
                raise OtherOperatorError(whose.mark)

    async def ensure(
        self, desired: Desired, live: Manifest | None, *, is_asked: bool = False
    ) -> None:
        """Applies `desired` unless `live` has all of it already. `is_asked`: the API server has
        just said what is live, nobody need ask it whether a child that is missing is there.

        Raises the errors above and those of the client.
        """
        if live is None and not is_asked:
            live = await self._client.find(desired.kind, self._key.namespace, desired.name)
        if live is None:
            await self._confirm(fresh=False)
            self._applied(desired, "created", await self._apply(desired, None))
            return
        self._require_ours(live)
        missing = lacks(desired.manifest, live)
        if not missing or self._overruled.explains(self._key, desired, missing):
            return
        if not _has_owner_of(desired.manifest, live):
            # It was orphaned, perhaps by a deletion of the group that we have not heard of yet:
            # back under an owner that is about to go it would go with it.
            await self._confirm(fresh=True)
        try:
            written = await self._apply(desired, live)
        except errors.InvalidError:
            written = await self._repair(desired)
        except errors.ConflictError:
            await self._look_again(desired.kind, live)
            raise
        self._applied(desired, "applied", written)

    async def prune(self, unwanted: Unwanted, live: Manifest | None) -> None:
        """Deletes what is there, ours, and not asked for."""
        whose = ownership(live, self._key.name, self._mark)
        if not isinstance(whose, Ours):
            return
        namespace, name = self._key.namespace, unwanted.name
        await self._client.delete(unwanted.kind, namespace, name, whose.uid)
        self._metrics.child_written(unwanted.kind.resource, "deleted")

    def _require_ours(self, live: Manifest) -> None:
        match ownership(live, self._key.name, self._mark):
            case NotOwned():
                raise NotOursError
            case Deleting():
                raise StillDeletingError
            case ManagedByOther(mark):
                raise OtherOperatorError(mark)

    async def _apply(self, desired: Desired, live: Manifest | None) -> Manifest:
        if live is None:
            # Whoever made one of that name a moment ago keeps it, another operator with our own
            # field manager, too: against what is there this is a conflict.
            metadata = {**desired.manifest["metadata"], "resourceVersion": _NO_OBJECTS_VERSION}
            return await self._client.apply({**desired.manifest, "metadata": metadata}, force=False)
        metadata = {**desired.manifest["metadata"], "uid": live["metadata"]["uid"]}
        return await self._client.apply({**desired.manifest, "metadata": metadata}, force=True)

    async def _repair(self, desired: Desired) -> Manifest:
        """What was merged is refused: what somebody put beside ours is taken out first. Raises
        `InvalidError` when that is not it."""
        live = await self._client.get(desired.kind, self._key.namespace, desired.name)
        self._require_ours(live)
        operations = repairs(desired.manifest, live)
        if operations:
            live = await self._client.json_patch(
                desired.kind, self._key.namespace, desired.name, operations
            )
            self._written(desired.kind, "repaired", live)
        return await self._apply(desired, live)

    def _applied(self, desired: Desired, action: str, written: Manifest) -> None:
        self._written(desired.kind, action, written)
        self._overruled.note(self._key, desired, lacks(desired.manifest, written))

    async def _look_again(self, kind: Kind, known: Manifest) -> None:
        """What is there is not what was judged: another object of that name, or none. Its watch may
        be down for long, and the next try is to judge what is there."""
        if kind in (SECRET, POD_MONITOR):
            return
        live = await self._client.find(kind, self._key.namespace, known["metadata"]["name"])
        if live is None:
            self._store.remove(kind, known)
        else:
            self._store.put(kind, live)

    def _written(self, kind: Kind, action: str, written: Manifest) -> None:
        if kind not in (SECRET, POD_MONITOR):
            self._store.put(kind, written)
        self._metrics.child_written(kind.resource, action)


def _has_owner_of(desired: Manifest, live: Manifest) -> bool:
    """Whether the group is among the owners of the live object already."""
    (wanted,) = desired["metadata"]["ownerReferences"]
    references = live["metadata"].get("ownerReferences") or []
    return any(reference.get("uid") == wanted["uid"] for reference in references)
