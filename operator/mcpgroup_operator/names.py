"""Every name that other objects, people or a later version may rely on.

Nothing here may ever change in a released version: selectors are immutable in a Deployment, and
labels, annotations and names are how a later operator finds what an earlier one made.
"""

from __future__ import annotations

from typing import Final

FIELD_MANAGER: Final = "mcpgroup-operator"
"""Field manager of every server-side apply, of children and status alike."""

GROUP_LABEL: Final = "mcpgroup.dev/group"
"""On every child and pod: the group's name. Children are listed and watched by it."""
COMPONENT_LABEL: Final = "mcpgroup.dev/component"
APP_NAME_LABEL: Final = "app.kubernetes.io/name"
APP_INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"

OPERATOR_APP: Final = "mcpgroup-operator"
GATEWAY_APP: Final = "mcpgroup-gateway"
GATEWAY_COMPONENT: Final = "gateway"

OPERATOR_ANNOTATION: Final = "mcpgroup.dev/operator"
"""On every child: which operator writes it, `operator_mark`."""
DESIRED_HASH_ANNOTATION: Final = "mcpgroup.dev/desired-hash"
"""On every child: SHA-256 of the manifest as it was asked for, without this annotation."""
CONTENT_HASH_ANNOTATION: Final = "mcpgroup.dev/content-hash"
"""On the ConfigMap: SHA-256 of the file's content without `metadata.generation`."""
CONTENT_GENERATION_ANNOTATION: Final = "mcpgroup.dev/content-generation"
"""On the ConfigMap: the group's generation at which that content was new."""
CONFIG_HASH_ANNOTATION: Final = "mcpgroup.dev/config-hash"
"""On a gateway pod: the hash of the file it should have; its change refreshes the volume."""
CONFIG_REFRESH_ANNOTATION: Final = "mcpgroup.dev/config-refresh"
"""On a gateway pod: how often that was tried for this hash."""
ROTATE_KEYS_ANNOTATION: Final = "mcpgroup.dev/rotate-keys"
"""On a group, by its user: another text than the Secret's makes new keys. On the Secret: the text
its keys were made under."""

GATEWAY_CONTAINER: Final = "gateway"

MCP_PORT: Final = 8080
PEERS_PORT: Final = 8081
ADMIN_PORT: Final = 9090
MCP_PORT_NAME: Final = "mcp"
PEERS_PORT_NAME: Final = "peers"
ADMIN_PORT_NAME: Final = "admin"

CONFIG_KEY: Final = "group.yaml"
"""Key of the ConfigMap, and the name of the file in the pod."""
CONFIG_FOLDER: Final = "/etc/mcpgroup/group"
CONFIG_PATH: Final = f"{CONFIG_FOLDER}/{CONFIG_KEY}"
SECRETS_FOLDER: Final = "/etc/mcpgroup/secrets"
"""In the pod: a folder for each Secret that members refer to, a file for each of its keys."""
KEYS_FOLDER: Final = "/etc/mcpgroup/keys"
"""In the pod: the group's own keys, a file each."""
ADMIN_TOKEN_KEY: Final = "admin-token"  # noqa: S105 - a name
TMP_FOLDER: Final = "/tmp"  # noqa: S108 - a volume of the pod's own

POD_NAME_VARIABLE: Final = "POD_NAME"
POD_NAMESPACE_VARIABLE: Final = "POD_NAMESPACE"


def selector(group: str) -> dict[str, str]:
    """The labels that choose a group's gateway pods. The same in every version, for ever."""
    return {
        APP_NAME_LABEL: GATEWAY_APP,
        APP_INSTANCE_LABEL: group,
        COMPONENT_LABEL: GATEWAY_COMPONENT,
    }


def labels(group: str) -> dict[str, str]:
    """The labels of every child of a group and of its gateway pods."""
    return {**selector(group), MANAGED_BY_LABEL: OPERATOR_APP, GROUP_LABEL: group}


def child(group: str) -> str:
    """Name of all children but those with a function of their own below."""
    return group


def peers_service(group: str) -> str:
    """Name of the headless Service through which replicas find each other."""
    return f"{group}-peers"


def keys_secret(group: str) -> str:
    """Name of the Secret with the group's own keys."""
    return f"{group}-keys"


def operator_mark(namespace: str, release: str) -> str:
    """Names one installation of the operator among several in a cluster."""
    return f"{namespace}.{release}"


def selector_text(group: str) -> str:
    """`selector` as text, for `status.selector` and the `labelSelector` of a request."""
    return ",".join(f"{key}={value}" for key, value in selector(group).items())
