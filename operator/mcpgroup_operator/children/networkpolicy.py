"""The NetworkPolicy of a group's gateway pods, when it asks for one."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from mcpgroup_operator import names
from mcpgroup_operator.children.manifests import child_manifest
from mcpgroup_operator.kinds import NETWORK_POLICY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcpgroup_api import McpServerGroup
    from mcpgroup_api.network import NetworkPeer
    from mcpgroup_operator.children.manifests import ChildSettings, Manifest

_NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_SERVICE_HOST: Final = re.compile(
    r"(?!localhost$)[-a-z0-9]+(\.(?P<namespace>[-a-z0-9]+)\.svc(\.[-.a-z0-9]+)?)?"
)
_DNS_PORTS: Final = (53, 5353)  # some name servers listen on 5353 behind their Service's 53

Rule = dict[str, Any]


def build_network_policy(group: McpServerGroup, settings: ChildSettings) -> Manifest:
    """Clients reach the MCP port, replicas each other's peers port, and the operator and those
    whom the group names the admin port. A kubelet always reaches its own pods, for probes.

    With `egress` the pods reach name servers, each other and the addresses of their HTTP
    members, nothing else: stdio members share the pod, and so what it may reach.
    """
    name = names.child(group.metadata.name)
    wanted = group.spec.network_policy
    clients: Rule = {"ports": [_port(names.MCP_PORT)]}
    if wanted.from_:
        clients["from"] = [_plain(peer) for peer in wanted.from_]
    metrics = [_plain(peer) for peer in wanted.metrics_from]
    operator = _namespace(settings.operator_namespace)
    spec: dict[str, Any] = {
        "podSelector": {"matchLabels": names.selector(group.metadata.name)},
        "policyTypes": ["Ingress"],
        "ingress": [
            clients,
            {"from": [_own_pods(group)], "ports": [_port(names.PEERS_PORT)]},
            {"from": [operator, *metrics], "ports": [_port(names.ADMIN_PORT)]},
        ],
    }
    if wanted.egress:
        spec["policyTypes"] = ["Ingress", "Egress"]
        spec["egress"] = [
            {"ports": [_port(port, proto) for port in _DNS_PORTS for proto in ("UDP", "TCP")]},
            {"to": [_own_pods(group)], "ports": [_port(names.PEERS_PORT)]},
            *_to_members(group),
        ]
    return child_manifest(group, settings, NETWORK_POLICY, name, {"spec": spec})


def _to_members(group: McpServerGroup) -> list[Rule]:
    """A policy knows addresses, not names. The name of a Service (`<service>` or
    `<service>.<namespace>.svc`) allows its namespace on every port, because policies see the port
    of the pod behind it; any other name allows its port anywhere. `<service>.<namespace>` looks
    like a domain and is taken for one: it must not open a namespace that is called `dev`.
    """
    namespaces: set[str] = set()
    addresses: set[tuple[str, int]] = set()
    ports: set[int] = set()
    for host, port in _hosts(group):
        address = _address(host)
        service = _SERVICE_HOST.fullmatch(host)
        if address is not None:
            addresses.add((address, port))
        elif service is not None:
            namespaces.add(service["namespace"] or group.metadata.namespace or "")
        else:
            ports.add(port)
    rules: list[Rule] = [{"to": [_namespace(name)]} for name in sorted(namespaces)]
    rules += [
        {"to": [{"ipBlock": {"cidr": cidr}}], "ports": [_port(port)]}
        for cidr, port in sorted(addresses)
    ]
    return rules + [{"ports": [_port(port)]} for port in sorted(ports)]


def _hosts(group: McpServerGroup) -> Iterator[tuple[str, int]]:
    for member in group.spec.members:
        if member.http is None:
            continue
        for url in (member.http.url, *member.http.fallback_urls):
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            yield (parts.hostname or "").lower(), port


def _address(host: str) -> str | None:
    """The host as a range of one address, when it is an address."""
    try:
        return str(ipaddress.ip_network(host))
    except ValueError:
        return None


def _own_pods(group: McpServerGroup) -> Rule:
    return {"podSelector": {"matchLabels": names.selector(group.metadata.name)}}


def _namespace(name: str) -> Rule:
    return {"namespaceSelector": {"matchLabels": {_NAMESPACE_NAME_LABEL: name}}}


def _port(port: int, protocol: str = "TCP") -> Rule:
    return {"port": port, "protocol": protocol}


def _plain(peer: NetworkPeer) -> Rule:
    return peer.model_dump(mode="json", exclude_defaults=True)
