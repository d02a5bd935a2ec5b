"""What a group consists of on Kubernetes: pure builders of plain manifests, one module a kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcpgroup_operator import names
from mcpgroup_operator.children.configmap import (
    ConfigFile,
    build_config_map,
    config_file,
)
from mcpgroup_operator.children.deployment import build_deployment
from mcpgroup_operator.children.disruption import build_disruption_budget
from mcpgroup_operator.children.keys import build_keys_secret, current_keys
from mcpgroup_operator.children.manifests import (
    ChildSettings,
    ConfigTooLargeError,
    Desired,
    Manifest,
    sealed,
)
from mcpgroup_operator.children.monitoring import build_pod_monitor
from mcpgroup_operator.children.networkpolicy import build_network_policy
from mcpgroup_operator.children.service import build_peers_service, build_service
from mcpgroup_operator.children.serviceaccount import build_service_account
from mcpgroup_operator.kinds import NETWORK_POLICY, POD_MONITOR, SERVICE_ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_api import McpServerGroup
    from mcpgroup_operator.kinds import Kind

__all__ = [
    "ChildSettings",
    "Children",
    "ConfigFile",
    "ConfigTooLargeError",
    "Desired",
    "Manifest",
    "Unwanted",
    "desired",
]


@dataclass(frozen=True, slots=True)
class Unwanted:
    """A child that an earlier spec may have asked for and this one does not."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Children:
    """All children of a group, as they should be."""

    desired: tuple[Desired, ...]
    """In the order in which they are to be applied: what pods need comes before them."""
    unwanted: tuple[Unwanted, ...]
    """To be deleted, after the others were applied, where it is there and the operator's."""
    config: ConfigFile


def desired(
    group: McpServerGroup,
    settings: ChildSettings,
    *,
    config_map: Manifest | None,
    keys: Manifest | None,
    new_token: Callable[[], str],
) -> Children:
    """What `group` consists of. Its `metadata` must be the API server's, with uid and namespace.

    `config_map` and `keys` are the live objects of those names, which hold what is kept from one
    reconcile to the next: the generation of the content, and the keys. `new_token` makes a secret
    text of ASCII letters, digits, `-` and `_`. Raises `ConfigTooLargeError`.
    """
    file = config_file(group, config_map)
    spec = group.spec
    name = names.child(group.metadata.name)
    manifests: list[Manifest] = []
    unwanted: list[Unwanted] = []
    if spec.gateway.service_account_name is None:
        manifests.append(build_service_account(group, settings))
    elif spec.gateway.service_account_name != name:
        unwanted.append(Unwanted(SERVICE_ACCOUNT, name))
    manifests += [
        build_keys_secret(group, settings, current_keys(group, keys, new_token)),
        build_config_map(group, settings, file),
        build_service(group, settings),
        build_peers_service(group, settings),
        build_disruption_budget(group, settings),
    ]
    if spec.network_policy.enabled:
        manifests.append(build_network_policy(group, settings))
    else:
        unwanted.append(Unwanted(NETWORK_POLICY, name))
    manifests.append(build_deployment(group, settings))
    if spec.monitoring.pod_monitor:
        manifests.append(build_pod_monitor(group, settings))
    else:
        unwanted.append(Unwanted(POD_MONITOR, name))
    return Children(tuple(sealed(manifest) for manifest in manifests), tuple(unwanted), file)
