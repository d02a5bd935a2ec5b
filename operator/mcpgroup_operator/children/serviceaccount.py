"""The ServiceAccount that gateway pods run under when the group names none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpgroup_operator import names
from mcpgroup_operator.children.manifests import child_manifest
from mcpgroup_operator.kinds import SERVICE_ACCOUNT

if TYPE_CHECKING:
    from mcpgroup_api import McpServerGroup
    from mcpgroup_operator.children.manifests import ChildSettings, Manifest


def build_service_account(group: McpServerGroup, settings: ChildSettings) -> Manifest:
    """An account without rights, of which no pod gets a token."""
    content = {"automountServiceAccountToken": False}
    name = names.child(group.metadata.name)
    return child_manifest(group, settings, SERVICE_ACCOUNT, name, content)


def service_account_name(group: McpServerGroup) -> str:
    """The account that the group's pods run under: the one it names, else its own."""
    return group.spec.gateway.service_account_name or names.child(group.metadata.name)
