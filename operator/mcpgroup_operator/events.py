"""Kubernetes Events of a group: what `kubectl describe` tells of how its conditions changed.

Only transitions are told, and each by the condition that knows why: `Ready` and what follows from
another condition are not told again. The first status of a group tells nothing but why it was not
accepted, and a reload only that it is over.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from mcpgroup_operator import conditions as c
from mcpgroup_operator.conditions import Reason, bounded
from mcpgroup_operator.names import FIELD_MANAGER
from mcpgroup_operator.status import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TOLD: Final = (
    c.ACCEPTED,
    c.CONFIG_APPLIED,
    c.AVAILABLE,
    c.REPLICAS_AGREE,
    c.MEMBERS_CONSISTENT,
    c.PROGRESSING,
    c.HEALTHY,
)
_TOLD_BY_REASON: Final = (c.ACCEPTED, c.CONFIG_APPLIED, c.AVAILABLE, c.PROGRESSING)
"""Where another reason is news although the status is the same."""

_QUIET: Final = (Reason.CONFIG_OUTDATED, Reason.RELOADING, Reason.SETTLED, Reason.NOT_DEPLOYED)
_WELCOME: Final = (Reason.SCALED_TO_ZERO, Reason.DEPLOYING)
"""Nothing to warn of: somebody asked for it."""


class Notice(NamedTuple):
    """What an Event says."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def transitions(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[Notice]:
    """What is to be told of two lists of conditions, in the order of the conditions."""
    old = {condition["type"]: condition for condition in before}
    new = {condition["type"]: condition for condition in after}
    told: list[Notice] = []
    for name in _TOLD:
        notice = _notice(name, old.get(name), new[name]) if name in new else None
        if notice is not None and notice.reason not in (each.reason for each in told):
            told.append(notice)
    return told


def managed_by_other(mark: str) -> Notice:
    """Another operator's children are where this one's should be."""
    return Notice(
        "Warning",
        "ManagedByOther",
        f"the operator {mark} manages this group's objects; this one changes nothing",
    )


def event(
    group: Mapping[str, Any], notice: Notice, *, now: float, instance: str, once: bool = False
) -> dict[str, Any]:
    """The manifest, of core/v1, to be created in the group's namespace.

    Its name follows from what it says and when, so that posting it again is refused (409) and
    harmless. With `once` the time does not matter: as long as the API server keeps it, it is
    there one time. `instance` names the pod that runs the operator; `now` is a Unix time.
    """
    metadata = group["metadata"]
    time = rfc3339(now)
    told = (metadata["uid"], *notice, "" if once else time)
    digest = hashlib.sha256("\0".join(told).encode()).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name']}.{digest[:16]}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": group["apiVersion"],
            "kind": group["kind"],
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "type": notice.type,
        "reason": notice.reason,
        "message": bounded(notice.message),
        "count": 1,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "reportingInstance": instance,
    }


def _notice(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Notice | None:
    status, reason = new["status"], new["reason"]
    if old is None:
        if name != c.ACCEPTED or status != "False":
            return None
    elif old["status"] == status and not (
        name in _TOLD_BY_REASON and status != "Unknown" and old["reason"] != reason
    ):
        return None
    text = new["message"] or f"{name} is {status}"
    if name == c.PROGRESSING:
        kind: Literal["Normal", "Warning"] = "Normal" if reason in _WELCOME else "Warning"
        return None if reason in _QUIET or status == "Unknown" else Notice(kind, reason, text)
    if status == "True":
        return Notice("Normal", reason, text) if old is not None and _was_bad(old, new) else None
    if status == "Unknown":
        return Notice("Warning", reason, text) if reason == Reason.REPLICA_UNREACHABLE else None
    if reason in _QUIET or (reason == Reason.NO_READY_REPLICAS and not _was_good(old)):
        return None
    return Notice("Normal" if reason in _WELCOME else "Warning", reason, text)


def _was_bad(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether being good now is worth a word."""
    bad: bool = old["status"] == "False" or old["reason"] == Reason.REPLICA_UNREACHABLE
    return bad and str(old["status"]) != str(new["status"])


def _was_good(old: Mapping[str, Any] | None) -> bool:
    return old is not None and str(old["status"]) == "True"
