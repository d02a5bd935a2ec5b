"""What the operator may do, and nothing else: the tests run it with exactly these verbs.

Whoever may create groups may run pods in that namespace and, through them, read its Secrets; the
operator itself reads only the Secrets that it makes, one by one, and never lists any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mcpgroup_operator import kinds, names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mcpgroup_operator.kinds import Kind

Rule = dict[str, list[str]]
"""A rule of a Role: `apiGroups`, `resources`, `verbs` and perhaps `resourceNames`."""
Manifest = dict[str, Any]

_API_GROUP: Final = "rbac.authorization.k8s.io"
_API_VERSION: Final = f"{_API_GROUP}/v1"

_READ: Final = ("get", "list", "watch")
# An apply of what is not there yet needs both.
_APPLY: Final = ("create", "patch")


def operator_rules() -> list[Rule]:
    """What it needs wherever groups are: everywhere, or in each namespace that it watches."""
    return [
        _rule(kinds.GROUP, _READ),
        _rule(kinds.GROUP, ("patch",), "status"),
        # For `blockOwnerDeletion` in what it makes, where OwnerReferencesPermissionEnforcement
        # is on.
        _rule(kinds.GROUP, ("update",), "finalizers"),
        _rule(kinds.CONFIG_MAP, (*_READ, *_APPLY)),
        _rule(kinds.SERVICE, (*_READ, *_APPLY)),
        _rule(kinds.DEPLOYMENT, (*_READ, *_APPLY)),
        _rule(kinds.DISRUPTION_BUDGET, (*_READ, *_APPLY)),
        # A spec can stop to ask for these; everything else goes with its group.
        _rule(kinds.SERVICE_ACCOUNT, (*_READ, *_APPLY, "delete")),
        _rule(kinds.NETWORK_POLICY, (*_READ, *_APPLY, "delete")),
        _rule(kinds.POD_MONITOR, ("get", *_APPLY, "delete")),
        _rule(kinds.SECRET, ("get", *_APPLY)),
        _rule(kinds.POD, ("list", "watch")),
        _rule(kinds.POD, ("patch",), "status"),
        _rule(kinds.EVENT, ("create",)),
    ]


def lease_rules(release: str) -> list[Rule]:
    """What it needs in its own namespace. No rule can restrict `create` to a name."""
    return [
        _rule(kinds.LEASE, ("create",)),
        {**_rule(kinds.LEASE, ("get", "update")), "resourceNames": [release]},
    ]


def operator_roles(
    release: str, namespace: str, service_account: str, watch_namespaces: Sequence[str] = ()
) -> list[Manifest]:
    """Roles and bindings for the service account of an operator in `namespace`.

    Without `watch_namespaces` it may act everywhere, else in those namespaces alone and nothing
    is bound cluster-wide.
    """
    account = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
    # Two installations may have the same release in two namespaces, or watch the same one.
    mark = names.operator_mark(namespace, release)
    labels = _labels(release)
    bound = _bound("Role", f"{release}-lease", labels, lease_rules(release), account, namespace)
    if not watch_namespaces:
        return [*bound, *_bound("ClusterRole", mark, labels, operator_rules(), account)]
    for watched in watch_namespaces:
        bound += _bound("Role", mark, labels, operator_rules(), account, watched)
    return bound


def user_roles(release: str, namespace: str) -> list[Manifest]:
    """ClusterRoles that add groups to what Kubernetes' own roles view, edit and admin may do."""
    mark = names.operator_mark(namespace, release)
    groups, status, scale = (
        _resources(kinds.GROUP, subresource) for subresource in ("", "status", "scale")
    )
    view = [_rule_over([*groups, *status, *scale], _READ)]
    edit = [
        _rule_over(groups, ("create", "update", "patch", "delete", "deletecollection")),
        _rule_over(scale, ("update", "patch")),
    ]
    return [
        _role("ClusterRole", f"{mark}.view", _aggregated(release, ("view",)), view),
        _role("ClusterRole", f"{mark}.edit", _aggregated(release, ("edit", "admin")), edit),
    ]


def _bound(
    kind: str,
    name: str,
    labels: dict[str, str],
    rules: list[Rule],
    account: dict[str, str],
    namespace: str | None = None,
) -> list[Manifest]:
    """A role and the binding of the account to it."""
    role = _role(kind, name, labels, rules, namespace)
    binding = {
        "apiVersion": _API_VERSION,
        "kind": f"{kind}Binding",
        "metadata": dict(role["metadata"]),
        "roleRef": {"apiGroup": _API_GROUP, "kind": kind, "name": name},
        "subjects": [account],
    }
    return [role, binding]


def _role(
    kind: str, name: str, labels: dict[str, str], rules: list[Rule], namespace: str | None = None
) -> Manifest:
    metadata: dict[str, Any] = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    metadata["labels"] = labels
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": metadata, "rules": rules}


def _labels(release: str) -> dict[str, str]:
    return {names.APP_NAME_LABEL: names.OPERATOR_APP, names.APP_INSTANCE_LABEL: release}


def _aggregated(release: str, roles: Iterable[str]) -> dict[str, str]:
    return {
        **_labels(release),
        **{f"{_API_GROUP}/aggregate-to-{role}": "true" for role in roles},
    }


def _rule(kind: Kind, verbs: Iterable[str], subresource: str = "") -> Rule:
    return _rule_over(_resources(kind, subresource), verbs, kind.group)


def _rule_over(
    resources: list[str], verbs: Iterable[str], api_group: str = kinds.GROUP.group
) -> Rule:
    return {"apiGroups": [api_group], "resources": resources, "verbs": list(verbs)}


def _resources(kind: Kind, subresource: str) -> list[str]:
    return [f"{kind.plural}/{subresource}" if subresource else kind.plural]
