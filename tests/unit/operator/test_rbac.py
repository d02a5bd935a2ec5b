"""What the operator may do: what it needs, and what it must never be given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubernetes import client
from tests.unit.operator.groups import SPECS
from tests.unit.operator.recorded import children_of

from mcpgroup_operator import kinds
from mcpgroup_operator.rbac import lease_rules, operator_roles, operator_rules, user_roles

if TYPE_CHECKING:
    from mcpgroup_operator.rbac import Rule


def allowed(rules: list[Rule]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


OPERATOR = allowed(operator_rules())


def operators(*watch_namespaces: str, release: str = "mcpgroup") -> list[dict[str, Any]]:
    return operator_roles(release, "system", "operator", watch_namespaces)


def test_it_may_make_all_children_and_delete_those_that_a_spec_can_stop_to_ask_for() -> None:
    for name in SPECS:
        children = children_of(name)
        for child in children.desired:
            for verb in ("get", "create", "patch"):
                assert (child.kind.group, child.kind.plural, verb) in OPERATOR
        for unwanted in children.unwanted:
            assert (unwanted.kind.group, unwanted.kind.plural, "delete") in OPERATOR
    deletable = {resource for _, resource, verb in OPERATOR if verb == "delete"}
    assert deletable == {"networkpolicies", "podmonitors", "serviceaccounts"}


def test_it_may_list_and_watch_what_it_watches_and_nothing_else() -> None:
    watched = {(kind.group, kind.plural) for kind in kinds.WATCHED}
    for verb in ("list", "watch"):
        assert {(group, resource) for group, resource, v in OPERATOR if v == verb} == watched


def test_it_may_neither_list_secrets_nor_touch_pods_nor_anything_of_unknown_name() -> None:
    assert {verb for _, resource, verb in OPERATOR if resource == "secrets"} == {
        "get",
        "create",
        "patch",
    }
    of_pods = {(resource, verb) for _, resource, verb in OPERATOR if resource.startswith("pods")}
    assert of_pods == {("pods", "list"), ("pods", "watch"), ("pods/status", "patch")}
    for rights in OPERATOR | allowed(lease_rules("mcpgroup")):
        assert "*" not in rights
        assert rights[2] not in ("escalate", "bind", "impersonate", "deletecollection")


def test_it_writes_no_lease_but_its_own() -> None:
    for rule in lease_rules("mcpgroup"):
        assert rule["verbs"] == ["create"] or rule["resourceNames"] == ["mcpgroup"]


def test_cluster_wide_one_role_is_bound_everywhere_and_the_lease_stays_at_home() -> None:
    assert [(m["kind"], m["metadata"].get("namespace")) for m in operators()] == [
        ("Role", "system"),
        ("RoleBinding", "system"),
        ("ClusterRole", None),
        ("ClusterRoleBinding", None),
    ]


def test_with_a_list_of_namespaces_nothing_is_bound_cluster_wide() -> None:
    assert [(m["kind"], m["metadata"].get("namespace")) for m in operators("a", "b")] == [
        ("Role", "system"),
        ("RoleBinding", "system"),
        ("Role", "a"),
        ("RoleBinding", "a"),
        ("Role", "b"),
        ("RoleBinding", "b"),
    ]


def test_the_same_verbs_count_in_a_namespace_as_everywhere() -> None:
    wide = next(m for m in operators() if m["kind"] == "ClusterRole")
    narrow = next(m for m in operators("a") if m["metadata"].get("namespace") == "a")
    assert wide["rules"] == narrow["rules"] == operator_rules()


def test_every_role_is_bound_to_the_account_of_the_operator() -> None:
    manifests = operators("a")
    roles = [(m["kind"], m["metadata"]) for m in manifests if "rules" in m]
    bindings = [m for m in manifests if "roleRef" in m]
    assert [(b["roleRef"]["kind"], b["metadata"]) for b in bindings] == roles
    for binding in bindings:
        assert binding["roleRef"]["name"] == binding["metadata"]["name"]
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "operator", "namespace": "system"}
        ]


def test_two_installations_share_no_object() -> None:
    def places(manifests: list[dict[str, Any]]) -> set[tuple[str, Any, str]]:
        return {
            (m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in manifests
        }

    one = operators("a") + operators() + user_roles("mcpgroup", "system")
    elsewhere = operator_roles("mcpgroup", "other", "operator", ["a"])
    elsewhere += operator_roles("mcpgroup", "other", "operator")
    beside = operators("a", release="second") + operators(release="second")
    assert not places(one) & places(elsewhere + user_roles("mcpgroup", "other"))
    assert not places(one) & places(beside + user_roles("second", "system"))


def test_users_get_groups_with_the_roles_that_kubernetes_has() -> None:
    view, edit = user_roles("mcpgroup", "system")
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    assert {k for k in view["metadata"]["labels"] if k.startswith(prefix)} == {f"{prefix}view"}
    assert {k for k in edit["metadata"]["labels"] if k.startswith(prefix)} == {
        f"{prefix}edit",
        f"{prefix}admin",
    }
    assert {verb for _, _, verb in allowed(view["rules"])} == {"get", "list", "watch"}
    assert ("mcpgroup.dev", "mcpservergroups/scale", "patch") in allowed(edit["rules"])
    assert not {r for _, r, _ in allowed(edit["rules"])} & {"mcpservergroups/status"}


def test_no_field_of_a_role_is_unknown_to_kubernetes() -> None:
    for manifest in operators() + operators("a") + user_roles("mcpgroup", "system"):
        getattr(client, f"V1{manifest['kind']}").model_validate(manifest)
