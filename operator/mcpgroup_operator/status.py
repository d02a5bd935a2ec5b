"""The whole status of a group as a pure function of what is observed.

    status = build_status(group, observed, group.get("status"), time.time())

The same observation gives the same status, byte for byte: what is kept from the previous one (the
times at which a condition or a row last changed) moves only when that which it dates does. So a
status is written exactly when it differs from the live one.

Source: DESIGN-KUBERNETES section 3.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from mcpgroup_operator import conditions as c
from mcpgroup_operator.acceptance import with_secrets
from mcpgroup_operator.agreement import (
    Told,
    config_applied,
    members_consistent,
    replicas_agree,
    told,
    unreachable,
)
from mcpgroup_operator.conditions import Finding, Reason, listed, no, unknown, yes
from mcpgroup_operator.names import child, selector_text
from mcpgroup_operator.reports import STATES
from mcpgroup_operator.rollouts import progressing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mcpgroup_operator.observation import Observed, ObservedPod

MAX_ROWS: Final = 128
UNKNOWN_STATE: Final = "Unknown"
"""Of a replica that tells nothing, and of a group whose counted replicas all do."""

_DEFAULT_REPLICAS: Final = 2
_DEFAULT_PORT: Final = 80


def build_status(
    group: Mapping[str, Any],
    observed: Observed,
    previous: Mapping[str, Any] | None,
    now: float,
) -> dict[str, Any]:
    """The status to be applied. `group` is the object as the API server has it, `now` a Unix time.

    What is not known is left out, for server-side apply to take away; it always has `conditions`.
    """
    metadata, spec = group["metadata"], group.get("spec") or {}
    before, time = previous or {}, rfc3339(now)
    reports = told(observed.counted)
    wanted = spec.get("replicas", _DEFAULT_REPLICAS)
    state = _state(observed, reports)
    findings = _findings(observed, reports, state, now, zero=wanted == 0)
    deployment_status = (observed.deployment or {}).get("status") or {}
    generation = metadata.get("generation", 0)
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "replicas": int(deployment_status.get("replicas") or 0),
        "selector": selector_text(metadata["name"]),
        "endpoint": _endpoint(metadata, spec),
        "state": state,
        "members": _members(reports),
        "conditions": c.next_conditions(
            before.get("conditions") or [], findings, generation=generation, now=time
        ),
    }
    if observed.config_hash is not None:
        status["configHash"] = observed.config_hash
    # A list that becomes empty by an apply is not there any more.
    if rows := _rows(observed.pods, before.get("gateways") or [], time):
        status["gateways"] = rows
    return status


def rfc3339(unix_time: float) -> str:
    """`2026-11-30T12:00:00Z`: whole seconds, as Kubernetes writes times."""
    return datetime.fromtimestamp(int(unix_time), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- conditions


def _findings(
    observed: Observed, reports: Sequence[Told], state: str, now: float, *, zero: bool
) -> dict[str, Finding]:
    accepted = with_secrets(observed.accepted, reports, observed.config_hash)
    applied = config_applied(observed)
    if zero and not observed.counted and observed.config_hash is not None:
        # Nobody is left who could have another one; the next pod starts with it.
        applied = yes(Reason.SCALED_TO_ZERO)
    available = _available(observed, reports, zero=zero)
    return {
        c.ACCEPTED: accepted,
        c.CONFIG_APPLIED: applied,
        c.AVAILABLE: available,
        c.REPLICAS_AGREE: replicas_agree(observed, now),
        c.MEMBERS_CONSISTENT: members_consistent(observed, now),
        c.PROGRESSING: progressing(observed),
        c.HEALTHY: _healthy(state, available),
        c.READY: _ready(accepted, applied, available),
    }


def _available(observed: Observed, reports: Sequence[Told], *, zero: bool) -> Finding:
    if zero:
        return no(Reason.SCALED_TO_ZERO, "no replica is wanted")
    pods = observed.counted
    able = sum(each.report.available for each in reports)
    if able:
        return yes(Reason.REPLICA_AVAILABLE, f"{able} of {len(pods)} ready replicas are available")
    if not pods:
        if observed.deployment is None:
            return unknown(Reason.NOT_DEPLOYED, "there is no Deployment")
        return no(Reason.NO_READY_REPLICAS, "no replica is ready")
    if len(reports) == len(pods):
        return no(Reason.NO_MEMBER_AVAILABLE, listed([_why_not(each) for each in reports], "; "))
    if lost := [pod for pod in pods if pod.unreachable]:
        return unreachable(lost)
    return unknown(Reason.NOT_ASKED_YET, "not all ready replicas were asked yet")


def _why_not(each: Told) -> str:
    if each.report.circuit_open:
        return f"{each.pod}: circuit open"
    return f"{each.pod}: no member that works is in rotation"


def _healthy(state: str, available: Finding) -> Finding:
    if state == "Healthy":
        return yes(state)
    if state == UNKNOWN_STATE:
        return unknown(available.reason, available.message)
    if state == "Inactive" and available.status != "True":
        return Finding("False", available.reason, available.message)
    return no(state, f"the worst replica is {state}")


def _ready(accepted: Finding, applied: Finding, available: Finding) -> Finding:
    parts = {c.ACCEPTED: accepted, c.CONFIG_APPLIED: applied, c.AVAILABLE: available}
    for status in ("False", "Unknown"):
        for name, part in parts.items():
            if part.status == status:
                text = f"{name} is {status}: {part.message or part.reason}"
                return Finding(part.status, part.reason, text)
    return yes(Reason.READY)


# --- the other fields


def _state(observed: Observed, reports: Sequence[Told]) -> str:
    if not observed.counted:
        return STATES[0]
    return min((each.report.state for each in reports), key=STATES.index, default=UNKNOWN_STATE)


def _members(reports: Sequence[Told]) -> str:
    """The lowest share in rotation; of two equal shares, that of fewer members."""
    counts = ((each.report.in_rotation, each.report.total) for each in reports)
    lowest = min(counts, key=lambda n: (n[0] / n[1] if n[1] else 0.0, n[1]), default=(0, 0))
    return f"{lowest[0]}/{lowest[1]}"


def _endpoint(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    port = (spec.get("service") or {}).get("port", _DEFAULT_PORT)
    suffix = "" if port == _DEFAULT_PORT else f":{port}"
    return f"http://{child(metadata['name'])}.{metadata['namespace']}.svc{suffix}/mcp"


def _rows(
    pods: Sequence[ObservedPod], previous: Sequence[Mapping[str, Any]], now: str
) -> list[dict[str, Any]]:
    """One for each pod that is not terminating, by name; `since` says when it last changed."""
    known = {row.get("pod"): row for row in previous}
    rows = []
    for pod in sorted((pod for pod in pods if not pod.terminating), key=lambda pod: pod.name):
        row = _row(pod)
        before = dict(known.get(pod.name) or {})
        since = before.pop("since", None)
        row["since"] = since if since and before == row else now
        rows.append(row)
    return rows[:MAX_ROWS]


def _row(pod: ObservedPod) -> dict[str, Any]:
    row: dict[str, Any] = {"pod": pod.name, "ready": pod.ready, "state": UNKNOWN_STATE}
    if pod.report is not None:
        row |= {
            "state": pod.report.state,
            "configHash": pod.report.config_hash,
            "circuitOpen": pod.report.circuit_open,
            "inRotation": pod.report.in_rotation,
            "healthy": pod.report.healthy,
            "selectable": pod.report.selectable,
        }
    return row
