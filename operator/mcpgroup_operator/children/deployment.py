"""The Deployment of a group's gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcpgroup_operator import names
from mcpgroup_operator.children.manifests import child_manifest
from mcpgroup_operator.children.pod import pod_template
from mcpgroup_operator.kinds import DEPLOYMENT

if TYPE_CHECKING:
    from mcpgroup_api import McpServerGroup
    from mcpgroup_operator.children.manifests import ChildSettings, Manifest

MIN_READY_SECONDS: Final = 5
"""A new pod must stay ready for so long before the rollout takes an old one away."""
_KEPT_REVISIONS: Final = 3


def build_deployment(group: McpServerGroup, settings: ChildSettings) -> Manifest:
    """One new pod at a time, and an old one goes only when the new one serves."""
    name = names.child(group.metadata.name)
    spec = {
        "replicas": group.spec.replicas,
        "minReadySeconds": MIN_READY_SECONDS,
        "revisionHistoryLimit": _KEPT_REVISIONS,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
        },
        "selector": {"matchLabels": names.selector(group.metadata.name)},
        "template": pod_template(group, settings),
    }
    return child_manifest(group, settings, DEPLOYMENT, name, {"spec": spec})
