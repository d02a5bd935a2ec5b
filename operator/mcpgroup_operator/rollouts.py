"""Whether pods are being replaced, or a new file is on its way into them: `Progressing`.

A pod that falls over later is no rollout. The Deployment controller knows the difference, but tells
it only in the reason of its own condition, which stays `NewReplicaSetAvailable` once complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcpgroup_operator.agreement import told
from mcpgroup_operator.conditions import Reason, bounded, listed, no, unknown, yes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcpgroup_operator.conditions import Finding
    from mcpgroup_operator.observation import Observed

_COMPLETE = "NewReplicaSetAvailable"
_MAX_TOLD = 400


def progressing(observed: Observed) -> Finding:
    """True while a rollout or a reload is under way, False when it is over or stuck."""
    deployment = observed.deployment
    if deployment is None:
        if observed.accepted.status == "True":
            return yes(Reason.DEPLOYING, "there is no Deployment yet")
        return unknown(Reason.NOT_DEPLOYED, "there is no Deployment")
    status = deployment.get("status") or {}
    own = _condition(status, "Progressing")
    current = _number(status, "observedGeneration") >= _number(deployment["metadata"], "generation")
    if current and own.get("reason") == "ProgressDeadlineExceeded":
        return no(
            Reason.PROGRESS_DEADLINE_EXCEEDED,
            _with_failure(bounded(str(own.get("message", "")), _MAX_TOLD), status),
        )
    if waiting := _waiting_for(deployment, status, current=current):
        failing = _condition(status, "ReplicaFailure").get("status") == "True"
        reason = Reason.REPLICA_FAILURE if current and failing else Reason.DEPLOYING
        return yes(reason, _with_failure(waiting, status))
    behind = [
        each.pod
        for each in told(observed.counted)
        if each.report.config_hash != observed.config_hash and not each.report.rejected
    ]
    if behind and observed.config_hash is not None:
        return yes(Reason.RELOADING, f"the new file is on its way to {listed(behind)}")
    return no(Reason.SETTLED)


def _waiting_for(deployment: Mapping[str, Any], status: Mapping[str, Any], *, current: bool) -> str:
    """What a rollout waits for, in the words of `kubectl rollout status`; empty when complete."""
    if not current:
        return "the Deployment was not yet looked at by its controller"
    wanted = (deployment.get("spec") or {}).get("replicas", 1)
    replicas = _number(status, "replicas")
    updated = _number(status, "updatedReplicas")
    available = _number(status, "availableReplicas")
    if updated < wanted:
        return f"{updated} of {wanted} replicas are of the new template"
    if replicas > updated:
        return f"{replicas - updated} replicas of an older template are left"
    if available < updated and _condition(status, "Progressing").get("reason") != _COMPLETE:
        return f"{available} of {updated} replicas are available"
    return ""


def _with_failure(text: str, status: Mapping[str, Any]) -> str:
    """Why pods cannot even be made (a quota, for example), when that is so."""
    failure = _condition(status, "ReplicaFailure")
    if failure.get("status") != "True":
        return text
    return f"{text}: {bounded(str(failure.get('message', '')), _MAX_TOLD)}"


def _condition(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    conditions: list[Mapping[str, Any]] = status.get("conditions") or []
    return next((entry for entry in conditions if entry.get("type") == name), {})


def _number(mapping: Mapping[str, Any], name: str) -> int:
    return int(mapping.get(name) or 0)
