"""The kinds of Kubernetes objects that the operator reads and writes, and their paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind. `group` is empty for the core API; `namespaced` kinds only."""

    name: str
    group: str
    version: str
    plural: str

    @property
    def api_version(self) -> str:
        """As it stands in a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """As it stands in rules of RBAC and in messages: `apps/deployments`, `pods`."""
        return f"{self.group}/{self.plural}" if self.group else self.plural

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """The path on the API server of one object, or of all in a namespace or everywhere."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)


GROUP: Final = Kind("McpServerGroup", "mcpgroup.dev", "v1alpha1", "mcpservergroups")
CONFIG_MAP: Final = Kind("ConfigMap", "", "v1", "configmaps")
SECRET: Final = Kind("Secret", "", "v1", "secrets")
SERVICE: Final = Kind("Service", "", "v1", "services")
SERVICE_ACCOUNT: Final = Kind("ServiceAccount", "", "v1", "serviceaccounts")
POD: Final = Kind("Pod", "", "v1", "pods")
EVENT: Final = Kind("Event", "", "v1", "events")
DEPLOYMENT: Final = Kind("Deployment", "apps", "v1", "deployments")
DISRUPTION_BUDGET: Final = Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets")
NETWORK_POLICY: Final = Kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies")
POD_MONITOR: Final = Kind("PodMonitor", "monitoring.coreos.com", "v1", "podmonitors")
LEASE: Final = Kind("Lease", "coordination.k8s.io", "v1", "leases")

OWNED_AND_WATCHED: Final = (
    CONFIG_MAP,
    SERVICE,
    SERVICE_ACCOUNT,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    POD,
)
"""What belongs to groups and is watched by label. Secrets are read one by one, so that nobody
needs to give the operator the right to list them; PodMonitors may not exist as a kind."""

WATCHED: Final = (GROUP, *OWNED_AND_WATCHED)

_BY_NAME: Final = {
    (kind.api_version, kind.name): kind for kind in (*WATCHED, SECRET, EVENT, POD_MONITOR, LEASE)
}


def kind_of(manifest: dict[str, object]) -> Kind:
    """The kind that a manifest is of. Raises `KeyError` for one the operator does not know."""
    return _BY_NAME[str(manifest["apiVersion"]), str(manifest["kind"])]
