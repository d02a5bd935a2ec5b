"""The Services of a group: one for its clients, one by which its replicas find each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcpgroup_operator import names
from mcpgroup_operator.children.manifests import child_manifest
from mcpgroup_operator.kinds import SERVICE

if TYPE_CHECKING:
    from mcpgroup_api import McpServerGroup
    from mcpgroup_operator.children.manifests import ChildSettings, Manifest


def build_service(group: McpServerGroup, settings: ChildSettings) -> Manifest:
    """The group's endpoint. The ports of nodes are the API server's choice and stay as they are."""
    wanted = group.spec.service
    spec = {
        "type": wanted.type.value,
        "selector": names.selector(group.metadata.name),
        "sessionAffinity": wanted.session_affinity.value,
        "ports": [_port(names.MCP_PORT_NAME, wanted.port)],
    }
    name = names.child(group.metadata.name)
    return child_manifest(
        group, settings, SERVICE, name, {"spec": spec}, annotations=wanted.annotations
    )


def build_peers_service(group: McpServerGroup, settings: ChildSettings) -> Manifest:
    """A name that resolves to every replica, ready or not: one that is draining still owns
    sessions that others must reach."""
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": names.selector(group.metadata.name),
        "ports": [_port(names.PEERS_PORT_NAME, names.PEERS_PORT)],
    }
    name = names.peers_service(group.metadata.name)
    return child_manifest(group, settings, SERVICE, name, {"spec": spec})


def _port(name: str, port: int) -> dict[str, Any]:
    return {
        "name": name,
        "port": port,
        "protocol": "TCP",
        "appProtocol": "http",
        "targetPort": name,
    }
