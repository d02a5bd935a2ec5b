"""Groups, Deployments, pods and reports as the operator may find them, each with sound defaults."""

from __future__ import annotations

import json
from typing import Any

from mcpgroup_operator.acceptance import accepted
from mcpgroup_operator.observation import Observed, ObservedPod
from mcpgroup_operator.reports import MemberReport, PodReport, Poll
from mcpgroup_operator.status import build_status

NOW = 1_800_000_000.0
LONG_AGO = NOW - 3600
HASH = f"sha256:{'a' * 64}"
OLD_HASH = f"sha256:{'b' * 64}"
MEMBERS = ("a", "b")


def member(name: str = "a", **facts: Any) -> MemberReport:
    defaults: dict[str, Any] = {
        "in_rotation": True,
        "catalogue_hash": f"catalogue-{name}",
        "tools": 12,
        "shadowed": (),
    }
    return MemberReport(name=name, **{**defaults, **facts})


def report(pod: str = "search-1", **facts: Any) -> PodReport:
    """A healthy replica; `rotation` names the members in rotation, of `a` and `b`."""
    rotation = facts.pop("rotation", MEMBERS)
    defaults: dict[str, Any] = {
        "namespace": "tools",
        "config_hash": HASH,
        "generation": 3,
        "rejected": None,
        "ignored": (),
        "missing_secrets": (),
        "state": "Healthy",
        "available": True,
        "circuit_open": False,
        "total": 2,
        "in_rotation": len(rotation),
        "healthy": len(rotation),
        "selectable": len(rotation),
        "members": tuple(member(name, in_rotation=name in rotation) for name in MEMBERS),
    }
    return PodReport(pod=pod, **{**defaults, **facts})


def pod(
    name: str = "search-1",
    *,
    ready: bool = True,
    since: float = LONG_AGO,
    terminating: bool = False,
    poll: Poll | None = None,
    ip: str | None = "10.0.0.1",
    **facts: Any,
) -> ObservedPod:
    """A pod that answered its last poll with `report(name, **facts)`."""
    return ObservedPod(
        name=name,
        uid=f"uid-{name}",
        ip=ip,
        ready_since=since if ready else None,
        terminating=terminating,
        poll=poll or Poll(report(name, **facts)),
    )


def missed(name: str = "search-1", misses: int = 3, **facts: Any) -> Poll:
    """How it stands with a pod that answered once, and then did not."""
    return Poll(report(name, **facts), misses, "no answer within 2 s")


def never(misses: int = 3) -> Poll:
    """How it stands with a pod that never answered."""
    return Poll(None, misses, "no answer within 2 s") if misses else Poll()


def deployment(wanted: int = 2, **status: Any) -> dict[str, Any]:
    """One whose rollout is complete; `status` overrides."""
    return {
        "metadata": {"name": "search", "namespace": "tools", "generation": 4},
        "spec": {"replicas": wanted},
        "status": {
            "observedGeneration": 4,
            "replicas": wanted,
            "updatedReplicas": wanted,
            "availableReplicas": wanted,
            "readyReplicas": wanted,
            "conditions": [
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
            ],
            **status,
        },
    }


def observed(*pods: ObservedPod, **facts: Any) -> Observed:
    defaults: dict[str, Any] = {
        "accepted": accepted(),
        "deployment": deployment(len(pods)),
        "config_hash": HASH,
    }
    return Observed(pods=pods, **{**defaults, **facts})


def group(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "search", "namespace": "tools", "generation": 7},
        "spec": {"replicas": 2, "service": {"port": 80}, **spec},
    }


def status_of(
    what: Observed,
    *,
    previous: dict[str, Any] | None = None,
    now: float = NOW,
    **spec: Any,
) -> dict[str, Any]:
    return build_status(group(**spec), what, previous, now)


def condition(status: dict[str, Any], name: str) -> tuple[str, str, str]:
    """Status, reason and message."""
    found = next(entry for entry in status["conditions"] if entry["type"] == name)
    return found["status"], found["reason"], found["message"]


def answer(**facts: Any) -> dict[str, Any]:
    """The document that a gateway sends, as in DESIGN section 9."""
    document: dict[str, Any] = {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "GatewayStatus",
        "group": "search",
        "namespace": "tools",
        "pod": "search-1",
        "instance": "f00",
        "config": {
            "hash": HASH,
            "generation": 3,
            "loadedAt": "2026-11-30T12:00:00.000Z",
            "rejected": None,
            "ignored": [],
            "missingSecrets": [],
        },
        "state": "Healthy",
        "available": True,
        "circuit": {"open": False, "consecutiveFailures": 0, "since": "2026-11-30T12:00:00.000Z"},
        "counts": {"total": 2, "inRotation": 2, "healthy": 2, "selectable": 2},
        "draining": False,
        "sessions": {"open": 4, "owned": 3},
        "store": None,
        "members": [
            {
                "name": name,
                "source": "http",
                "inRotation": True,
                "state": "Ready",
                "selections": 120,
                "tools": 12,
                "catalogueHash": f"catalogue-{name}",
                "shadowed": [],
            }
            for name in MEMBERS
        ],
        "events": [],
    }
    return document | facts


def encoded(document: object) -> bytes:
    return json.dumps(document).encode()
