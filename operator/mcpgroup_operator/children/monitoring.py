"""The PodMonitor by which the Prometheus operator finds a group's gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpgroup_operator import names
from mcpgroup_operator.children.manifests import child_manifest
from mcpgroup_operator.kinds import POD_MONITOR

if TYPE_CHECKING:
    from mcpgroup_api import McpServerGroup
    from mcpgroup_operator.children.manifests import ChildSettings, Manifest


def build_pod_monitor(group: McpServerGroup, settings: ChildSettings) -> Manifest:
    """Asks every gateway pod for its metrics, as often as Prometheus does by default."""
    content = {
        "spec": {
            "selector": {"matchLabels": names.selector(group.metadata.name)},
            "podMetricsEndpoints": [{"port": names.ADMIN_PORT_NAME, "path": "/metrics"}],
        }
    }
    name = names.child(group.metadata.name)
    return child_manifest(group, settings, POD_MONITOR, name, content)
