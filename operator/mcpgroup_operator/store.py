"""What the operator knows of the cluster: one trimmed copy of every object that it watches.

kopf keeps no copy, tells nothing of objects that vanished while a watch was down, and gives no
sign when it knows everything. So events only fill this store between two lists of ours, and a
list decides what is there. Three things can overtake each other: events, the answers to our own
writes, and lists that take a while. The version of an object decides between them; they are
compared as numbers, which they are on every API server there is (KEP-5504).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mcpgroup_operator.kinds import DEPLOYMENT, GROUP, POD, Kind
from mcpgroup_operator.names import GROUP_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Manifest = dict[str, Any]

_TOMBSTONES: Final = 10_000
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class Key(NamedTuple):
    """A group."""

    namespace: str
    name: str


class _Place(NamedTuple):
    kind: Kind
    namespace: str
    name: str


class ListInFlight:
    """A list that is being read. What events say meanwhile is newer than what it will hold, unless
    their versions say that they come late."""

    def __init__(self, kind: Kind, namespace: str | None) -> None:
        self.kind = kind
        self.namespace = namespace
        self.version = 0
        self.items: dict[_Place, Manifest] = {}
        self.touched: set[_Place] = set()

    def add(self, items: Iterable[Manifest], version: int = 0) -> None:
        """A page of it. Only what is kept of each object is held. `version` is that of the whole
        list: nothing older is there that it does not hold."""
        self.version = version
        for item in items:
            trimmed = trim(self.kind, item)
            metadata = trimmed["metadata"]
            self.items[_Place(self.kind, metadata["namespace"], metadata["name"])] = trimmed


class Store:
    """Objects by kind, namespace and name, and which of them belong to which group."""

    def __init__(self) -> None:
        self._objects: dict[_Place, Manifest] = {}
        self._of_group: dict[Key, set[_Place]] = {}
        self._gone: OrderedDict[_Place, int] = OrderedDict()
        self._lists: list[ListInFlight] = []

    # --- questions

    def group(self, key: Key) -> Manifest | None:
        """The group itself."""
        return self._objects.get(_Place(GROUP, key.namespace, key.name))

    def groups(self) -> list[Key]:
        """All groups."""
        return [Key(p.namespace, p.name) for p in self._objects if p.kind is GROUP]

    def child(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """An object that carries the label of some group."""
        return self._objects.get(_Place(kind, namespace, name))

    def children(self, key: Key, kind: Kind | None = None) -> Iterator[Manifest]:
        """What carries the label of this group, of one kind or of all."""
        for place in sorted(self._of_group.get(key, ()), key=lambda p: (p.kind.name, p.name)):
            if kind is None or place.kind is kind:
                yield self._objects[place]

    def count(self, kind: Kind) -> int:
        """How many objects of a kind are known."""
        return sum(1 for place in self._objects if place.kind is kind)

    # --- changes; each returns the groups that they concern

    def put(self, kind: Kind, item: Manifest) -> set[Key]:
        """An object as an event or an answer shows it. Empty when that is no news."""
        trimmed = trim(kind, item)
        metadata = trimmed["metadata"]
        place = _Place(kind, metadata["namespace"], metadata["name"])
        version = _version(trimmed)
        if version <= self._gone.get(place, -1):
            return set()
        known = self._objects.get(place)
        if known is not None and version <= _version(known):
            return set()
        self._touch(place)
        self._keep(place, trimmed)
        keys = {_key(place, trimmed), _key(place, known) if known is not None else None}
        return {key for key in keys if key is not None}

    def remove(self, kind: Kind, item: Manifest) -> set[Key]:
        """An object that was deleted; `item` is its last state."""
        metadata = item["metadata"]
        place = _Place(kind, metadata["namespace"], metadata["name"])
        version = _version(item)
        known = self._objects.get(place)
        if known is not None and version < _version(known):
            return set()
        self._bury(place, version)
        self._touch(place)
        if known is None:
            return set()
        self._drop(place)
        key = _key(place, known)
        return {key} if key is not None else set()

    def begin_list(self, kind: Kind, namespace: str | None) -> ListInFlight:
        """To be called before the first page is asked for, and ended by one of the next two."""
        listing = ListInFlight(kind, namespace)
        self._lists.append(listing)
        return listing

    def abandon_list(self, listing: ListInFlight) -> None:
        """The list could not be read."""
        if listing in self._lists:
            self._lists.remove(listing)

    def finish_list(self, listing: ListInFlight) -> set[Key]:
        """What the list does not hold is deleted. Returns the groups with a difference."""
        self.abandon_list(listing)
        concerned: set[Key | None] = set()
        for place in self._places(listing.kind, listing.namespace):
            if place in listing.items:
                continue
            version = _version(self._objects[place])
            if place not in listing.touched or version <= listing.version:
                concerned.add(_key(place, self._objects[place]))
                self._bury(place, max(version, listing.version))
                self._drop(place)
        for place, trimmed in listing.items.items():
            known = self._objects.get(place)
            if known is not None:
                newer = _version(known) < _version(trimmed)
            elif place in listing.touched:
                # It was deleted meanwhile, and perhaps made anew before the list was read.
                newer = 0 <= self._gone.get(place, -1) < _version(trimmed)
            else:
                newer = True
            if newer:
                self._keep(place, trimmed)
                concerned |= {_key(place, each) for each in (trimmed, known) if each is not None}
        return {key for key in concerned if key is not None}

    # --- inside

    def _places(self, kind: Kind, namespace: str | None) -> list[_Place]:
        return [
            place
            for place in self._objects
            if place.kind is kind and namespace in (None, place.namespace)
        ]

    def _touch(self, place: _Place) -> None:
        for listing in self._lists:
            if listing.kind is place.kind:
                listing.touched.add(place)

    def _keep(self, place: _Place, trimmed: Manifest) -> None:
        self._drop(place)
        self._objects[place] = trimmed
        key = _key(place, trimmed)
        if key is not None and place.kind is not GROUP:
            self._of_group.setdefault(key, set()).add(place)

    def _drop(self, place: _Place) -> None:
        known = self._objects.pop(place, None)
        if known is None:
            return
        key = _key(place, known)
        if key is not None and key in self._of_group:
            self._of_group[key].discard(place)
            if not self._of_group[key]:
                del self._of_group[key]

    def _bury(self, place: _Place, version: int) -> None:
        """So that a late answer to one of our writes does not bring back what is gone."""
        self._gone[place] = max(version, self._gone.pop(place, -1))
        if len(self._gone) > _TOMBSTONES:
            self._gone.popitem(last=False)


def trim(kind: Kind, item: Manifest) -> Manifest:
    """What is kept of an object: of pods little more than where they are and whether they are
    ready, of managed fields the names of the managers."""
    metadata = item.get("metadata") or {}
    kept = {
        name: metadata[name]
        for name in (
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "labels",
            "ownerReferences",
        )
        if metadata.get(name) is not None
    }
    annotations = metadata.get("annotations") or {}
    kept["annotations"] = {k: v for k, v in annotations.items() if k != _LAST_APPLIED}
    managers = {str(entry.get("manager")) for entry in metadata.get("managedFields") or []}
    kept["managedFields"] = [{"manager": manager} for manager in sorted(managers)]
    trimmed: Manifest = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": kept}
    status = item.get("status") or {}
    if kind is POD:
        conditions = status.get("conditions") or []
        trimmed["status"] = {
            "phase": status.get("phase"),
            "podIP": status.get("podIP"),
            "conditions": [entry for entry in conditions if entry.get("type") == "Ready"],
        }
        return trimmed
    if kind in (GROUP, DEPLOYMENT):
        trimmed["status"] = status
    left_out = ("apiVersion", "kind", "metadata", "status")
    trimmed |= {name: value for name, value in item.items() if name not in left_out}
    return trimmed


def _key(place: _Place, trimmed: Manifest) -> Key | None:
    if place.kind is GROUP:
        return Key(place.namespace, place.name)
    group = (trimmed["metadata"].get("labels") or {}).get(GROUP_LABEL)
    return Key(place.namespace, group) if group else None


def _version(item: Manifest) -> int:
    text = item["metadata"].get("resourceVersion") or "0"
    return int(text) if text.isdigit() else 0
