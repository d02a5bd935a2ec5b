"""Whose an object with the name of a child is: only our own are written and deleted.

A forced apply of a name that somebody else's object happens to have would take it over without a
word, and its owner would find it changed or, with our owner reference, deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcpgroup_api import API_VERSION, KIND
from mcpgroup_operator import names

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no such object: it may be made, without force."""


@dataclass(frozen=True, slots=True)
class Deleting:
    """It is being deleted: to be waited for."""


@dataclass(frozen=True, slots=True)
class Ours:
    """It may be written, with force and its `uid`, and deleted."""

    uid: str


@dataclass(frozen=True, slots=True)
class NotOwned:
    """Somebody made it who is not the operator: it stays untouched."""


@dataclass(frozen=True, slots=True)
class ManagedByOther:
    """Another installation of the operator, `mark`, writes it."""

    mark: str


Ownership = Absent | Deleting | Ours | NotOwned | ManagedByOther


def ownership(live: Mapping[str, Any] | None, group: str, operator_mark: str) -> Ownership:
    """Whose `live` is, to the operator of this mark on behalf of this group.

    Needs of it `metadata` with `managedFields`, of which the names of the managers suffice. An
    object without any controller is one that a deletion with `--cascade=orphan` left behind, and
    one controlled by a group of the same name and another uid is from before the group was made
    anew: both are taken back.
    """
    if live is None:
        return Absent()
    metadata = live["metadata"]
    if metadata.get("deletionTimestamp") is not None:
        return Deleting()
    if not _is_of_group(metadata, group):
        return NotOwned()
    mark = (metadata.get("annotations") or {}).get(names.OPERATOR_ANNOTATION)
    if mark is not None and mark != operator_mark:
        return ManagedByOther(mark)
    return Ours(metadata["uid"])


def _is_of_group(metadata: Mapping[str, Any], group: str) -> bool:
    """By its controller, which nobody changes without meaning to; the label, which people do take
    away, decides where there is none."""
    managers = {entry.get("manager") for entry in metadata.get("managedFields") or []}
    if names.FIELD_MANAGER not in managers:
        return False
    controllers = [r for r in metadata.get("ownerReferences") or [] if r.get("controller")]
    if controllers:
        return all(_is_group(reference, group) for reference in controllers)
    return (metadata.get("labels") or {}).get(names.GROUP_LABEL) == group


def _is_group(reference: Mapping[str, Any], group: str) -> bool:
    """In any version of the API: a reference keeps the one it was written with."""
    api_group = str(reference.get("apiVersion")).partition("/")[0]
    return (
        api_group == API_VERSION.partition("/")[0]
        and reference.get("kind") == KIND
        and reference.get("name") == group
    )
