"""The PodDisruptionBudget of a group's gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpgroup_operator import names
from mcpgroup_operator.children.manifests import child_manifest
from mcpgroup_operator.kinds import DISRUPTION_BUDGET

if TYPE_CHECKING:
    from mcpgroup_api import McpServerGroup
    from mcpgroup_operator.children.manifests import ChildSettings, Manifest


def build_disruption_budget(group: McpServerGroup, settings: ChildSettings) -> Manifest:
    """One gateway at a time may be evicted, and one that is not ready whenever it is asked for:
    neither a group of one replica nor a broken one ever holds up the drain of a machine."""
    content = {
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": names.selector(group.metadata.name)},
        }
    }
    name = names.child(group.metadata.name)
    return child_manifest(group, settings, DISRUPTION_BUDGET, name, content)
