"""Where the API server keeps each kind that tests touch."""

from __future__ import annotations

from typing import Final

_GROUPS: Final = {
    "v1": (
        "configmaps events endpoints pods secrets serviceaccounts services resourcequotas"
        " *namespaces *nodes"
    ),
    "apps/v1": "deployments replicasets",
    "policy/v1": "poddisruptionbudgets",
    "networking.k8s.io/v1": "networkpolicies",
    "discovery.k8s.io/v1": "endpointslices",
    "autoscaling/v2": "horizontalpodautoscalers",
    "coordination.k8s.io/v1": "leases",
    "monitoring.coreos.com/v1": "podmonitors",
    "rbac.authorization.k8s.io/v1": "roles rolebindings *clusterroles *clusterrolebindings",
    "apiextensions.k8s.io/v1": "*customresourcedefinitions",
    "mcpgroup.dev/v1alpha1": "mcpservergroups",
}
VERSIONS: Final = {
    plural.removeprefix("*"): version
    for version, plurals in _GROUPS.items()
    for plural in plurals.split()
}
CLUSTER_WIDE: Final = frozenset(
    plural.removeprefix("*")
    for plurals in _GROUPS.values()
    for plural in plurals.split()
    if plural.startswith("*")
)


def path(plural: str, namespace: str | None = None, *rest: str) -> str:
    """The URL path of a collection; of an object or subresource with `rest`.

    Without a namespace, or for a kind that has none, the collection is that of the whole cluster.
    """
    version = VERSIONS[plural]
    parts = ["api" if "/" not in version else "apis", version]
    if namespace is not None and plural not in CLUSTER_WIDE:
        parts += ["namespaces", namespace]
    return "/" + "/".join([*parts, plural, *rest])
