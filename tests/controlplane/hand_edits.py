"""What people do to children by hand, as `kubectl edit` does it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.controlplane.api import Api

_POD: Final = "/spec/template/spec"
_GATEWAY: Final = f"{_POD}/containers/0"


@dataclass(frozen=True)
class Edit:
    """Of the child of this kind that has the group's name. `spec` is what the group must ask for
    besides, so that there is something to edit."""

    plural: str
    operations: tuple[dict[str, Any], ...]
    spec: dict[str, Any] = field(default_factory=dict)

    async def make(self, api: Api, name: str) -> dict[str, Any]:
        """The object as it is then."""
        operations = list(self.operations)
        return await api.patch(
            self.plural, name, operations, kind="json", fieldManager="kubectl-edit"
        )


def _replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def _remove(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": path}


def _deployment(*operations: dict[str, Any]) -> Edit:
    return Edit("deployments", operations)


UNMERGEABLE: Final = {
    "the port of the Service": Edit("services", (_replace("/spec/ports/0/port", 8000),)),
    "the protocol of the Service": Edit("services", (_replace("/spec/ports/0/protocol", "UDP"),)),
    "the port of a Service with a port of the nodes": Edit(
        "services", (_replace("/spec/ports/0/port", 8000),), {"service": {"type": "NodePort"}}
    ),
    "the port of the container": _deployment(_replace(f"{_GATEWAY}/ports/0/containerPort", 8000)),
    "the way to probe": _deployment(
        _replace(f"{_GATEWAY}/livenessProbe", {"tcpSocket": {"port": 8080}})
    ),
    "what a pod does before it stops": _deployment(
        _replace(f"{_GATEWAY}/lifecycle/preStop", {"exec": {"command": ["sleep", "1"]}})
    ),
    "where a variable comes from": _deployment(
        _replace(f"{_GATEWAY}/env/0", {"name": "POD_NAME", "value": "by-hand"})
    ),
    "what a volume is": _deployment(
        _replace(f"{_POD}/volumes/0", {"name": "config", "emptyDir": {}})
    ),
    "what a budget counts": Edit(
        "poddisruptionbudgets",
        (_remove("/spec/maxUnavailable"), _add("/spec/minAvailable", 1)),
    ),
}
"""After these, an apply of the desired object is refused, until something is taken out."""

MERGEABLE: Final = {
    "the image": _deployment(_replace(f"{_GATEWAY}/image", "other:1")),
    "the arguments": _deployment(_add(f"{_GATEWAY}/args/-", "--help")),
    "the replicas": _deployment(_replace("/spec/replicas", 5)),
    "how pods are rolled": _deployment(
        _replace("/spec/strategy", {"type": "Recreate"}),
    ),
    "a permission": _deployment(
        _replace(f"{_GATEWAY}/securityContext/readOnlyRootFilesystem", False)
    ),
    "a mount": _deployment(_remove(f"{_GATEWAY}/volumeMounts/0")),
    "the file": Edit("configmaps", (_replace("/data/group.yaml", "spec: {}"),)),
    "what the Service selects": Edit("services", (_add("/spec/selector/tier", "x"),)),
    "the owner": Edit("services", (_remove("/metadata/ownerReferences"),)),
    "the mark of the operator": Edit(
        "services", (_remove("/metadata/annotations/mcpgroup.dev~1operator"),)
    ),
    "a label": Edit("services", (_remove("/metadata/labels/app.kubernetes.io~1name"),)),
    "the label by which it is watched": Edit(
        "services", (_remove("/metadata/labels/mcpgroup.dev~1group"),)
    ),
    "the token of the account": Edit(
        "serviceaccounts", (_remove("/automountServiceAccountToken"),)
    ),
    "how many may be missing": Edit(
        "poddisruptionbudgets", (_replace("/spec/maxUnavailable", "50%"),)
    ),
    "who may call": Edit(
        "networkpolicies",
        (_add("/spec/ingress/0/from", [{"podSelector": {}}]),),
        {"networkPolicy": {"enabled": True}},
    ),
}
"""An apply of the desired object puts these back."""
