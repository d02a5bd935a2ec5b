"""The conditions of a group's status: which there are, their reasons, and how they change.

A condition says what is, never what happened: True, False, or Unknown when it cannot be told. All
of them are there from the first status on. Each carries the generation that it speaks of, and
the time of its last *transition*, which moves only with its status.

Source: the Kubernetes API conventions; DESIGN-KUBERNETES section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Status = Literal["True", "False", "Unknown"]
Condition = dict[str, Any]

READY: Final = "Ready"
ACCEPTED: Final = "Accepted"
CONFIG_APPLIED: Final = "ConfigApplied"
AVAILABLE: Final = "Available"
REPLICAS_AGREE: Final = "ReplicasAgree"
MEMBERS_CONSISTENT: Final = "MembersConsistent"
PROGRESSING: Final = "Progressing"
HEALTHY: Final = "Healthy"

TYPES: Final = (
    READY,
    ACCEPTED,
    CONFIG_APPLIED,
    AVAILABLE,
    REPLICAS_AGREE,
    MEMBERS_CONSISTENT,
    PROGRESSING,
    HEALTHY,
)
"""In the order in which they stand in a status."""

MAX_MESSAGE: Final = 1000
MAX_NAMED: Final = 5


class Reason:
    """Every reason a condition may have. Alerts and scripts compare them: they never change."""

    # Accepted
    ACCEPTED: Final = "Accepted"
    INVALID_SPEC: Final = "InvalidSpec"
    CONFIG_TOO_LARGE: Final = "ConfigTooLarge"
    SECRET_NOT_FOUND: Final = "SecretNotFound"  # noqa: S105 - a word
    NOT_OWNED: Final = "NotOwned"
    WAITING_FOR_DELETION: Final = "WaitingForDeletion"
    FORBIDDEN: Final = "Forbidden"
    REJECTED_RESOURCE: Final = "RejectedResource"
    NOT_WRITTEN: Final = "NotWritten"
    # ConfigApplied
    CONFIG_APPLIED: Final = "ConfigApplied"
    CONFIG_REJECTED: Final = "ConfigRejected"
    CONFIG_OUTDATED: Final = "ConfigOutdated"
    NO_CONFIG: Final = "NoConfig"
    # Available
    REPLICA_AVAILABLE: Final = "ReplicaAvailable"
    NO_MEMBER_AVAILABLE: Final = "NoMemberAvailable"
    # ReplicasAgree
    REPLICAS_AGREE: Final = "ReplicasAgree"
    NOTHING_TO_COMPARE: Final = "NothingToCompare"
    CIRCUITS_DIFFER: Final = "CircuitsDiffer"
    STATES_DIFFER: Final = "StatesDiffer"
    ROTATIONS_DIFFER: Final = "RotationsDiffer"
    # MembersConsistent
    MEMBERS_CONSISTENT: Final = "MembersConsistent"
    CATALOGUES_DIFFER: Final = "CataloguesDiffer"
    NAME_CONFLICT: Final = "NameConflict"
    # Progressing
    DEPLOYING: Final = "Deploying"
    RELOADING: Final = "Reloading"
    SETTLED: Final = "Settled"
    NOT_DEPLOYED: Final = "NotDeployed"
    PROGRESS_DEADLINE_EXCEEDED: Final = "ProgressDeadlineExceeded"
    REPLICA_FAILURE: Final = "ReplicaFailure"
    # several
    READY: Final = "Ready"
    SCALED_TO_ZERO: Final = "ScaledToZero"
    NO_READY_REPLICAS: Final = "NoReadyReplicas"
    REPLICA_UNREACHABLE: Final = "ReplicaUnreachable"
    NOT_ASKED_YET: Final = "NotAskedYet"


class Finding(NamedTuple):
    """What a condition says at one moment; `message` is for people."""

    status: Status
    reason: str
    message: str = ""


def yes(reason: str, message: str = "") -> Finding:
    """It holds."""
    return Finding("True", reason, message)


def no(reason: str, message: str = "") -> Finding:
    """It does not hold."""
    return Finding("False", reason, message)


def unknown(reason: str, message: str = "") -> Finding:
    """It cannot be told."""
    return Finding("Unknown", reason, message)


def next_conditions(
    previous: Sequence[Mapping[str, Any]],
    findings: Mapping[str, Finding],
    *,
    generation: int,
    now: str,
) -> list[Condition]:
    """The conditions after `previous`; `findings` has one for each of `TYPES`.

    `now` is in RFC 3339. Raises `KeyError` when a type is missing.
    """
    known = {condition.get("type"): condition for condition in previous}
    conditions: list[Condition] = []
    for name in TYPES:
        finding = findings[name]
        before = known.get(name)
        since = before.get("lastTransitionTime") if before is not None else None
        kept = before is not None and before.get("status") == finding.status and since
        conditions.append(
            {
                "type": name,
                "status": finding.status,
                "observedGeneration": generation,
                "lastTransitionTime": since if kept else now,
                "reason": finding.reason,
                "message": bounded(finding.message),
            }
        )
    return conditions


def status_of(conditions: Iterable[Mapping[str, Any]], name: str) -> str | None:
    """`True`, `False` or `Unknown`; None when there is no such condition yet."""
    return next((str(c.get("status")) for c in conditions if c.get("type") == name), None)


def bounded(text: str, limit: int = MAX_MESSAGE) -> str:
    """Cut to a length that the API server takes and a terminal bears."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def listed(parts: Sequence[str], separator: str = ", ", most: int = MAX_NAMED) -> str:
    """`a, b and 3 more`: the first ones, and how many are left out."""
    if len(parts) <= most:
        return separator.join(parts)
    return f"{separator.join(parts[:most])} and {len(parts) - most} more"
