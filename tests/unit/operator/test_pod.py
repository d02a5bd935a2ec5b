"""The template of a gateway pod: what is in it, and what changes it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.groups import SETTINGS, SPECS, group_of

from mcpgroup_operator.children import ConfigTooLargeError
from mcpgroup_operator.children.deployment import build_deployment
from mcpgroup_operator.children.pod import pod_template, secret_names

SMALLEST = SPECS["smallest"]


def template(spec: dict[str, Any]) -> dict[str, Any]:
    return pod_template(group_of(spec), SETTINGS)


def gateway(**fields: Any) -> dict[str, Any]:
    return {**SMALLEST, "gateway": fields}


def container(spec: dict[str, Any]) -> Any:
    (one,) = template(spec)["spec"]["containers"]
    return one


def volume(spec: dict[str, Any], name: str) -> Any:
    return next(v for v in template(spec)["spec"]["volumes"] if v["name"] == name)


def referring(*secrets: str) -> dict[str, Any]:
    headers = [
        {"name": f"H{index}", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}
        for index, name in enumerate(secrets)
    ]
    return {
        "members": [{"name": "a", "http": {"url": "https://a.example.com/mcp", "headers": headers}}]
    }


def test_it_keeps_to_the_restricted_level_and_names_no_user() -> None:
    spec = template(SMALLEST)["spec"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container(SMALLEST)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_it_gets_no_token_of_the_api_and_no_variables_of_services() -> None:
    spec = template(SMALLEST)["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False


def test_it_is_killed_only_after_the_drain_that_begins_after_the_sleep() -> None:
    spec = template({**SMALLEST, "drain": {"timeoutSeconds": 100}})["spec"]
    assert container(SMALLEST)["lifecycle"] == {"preStop": {"sleep": {"seconds": 10}}}
    assert spec["terminationGracePeriodSeconds"] == 10 + 100 + 15


def test_a_rollout_takes_no_pod_away_before_a_new_one_has_served() -> None:
    spec = build_deployment(group_of(SMALLEST), SETTINGS)["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert spec["minReadySeconds"] == 5


def test_without_a_word_it_requests_a_little_and_has_no_limit() -> None:
    assert container(SMALLEST)["resources"] == {"requests": {"cpu": "100m", "memory": "128Mi"}}


def test_what_is_limited_is_not_requested_by_default() -> None:
    resources = {"limits": {"cpu": "50m", "memory": "64Mi"}}
    assert container(gateway(resources=resources))["resources"] == resources
    asked = {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    assert container(gateway(resources=asked))["resources"] == {
        "requests": {"cpu": "100m", "memory": "1Gi"},
        "limits": {"memory": "2Gi"},
    }


def test_the_image_is_the_groups_or_the_charts() -> None:
    assert container(SMALLEST)["image"] == SETTINGS.gateway_image
    assert container(gateway(image="own:1"))["image"] == "own:1"


def test_a_gateway_is_told_where_everything_is() -> None:
    assert " ".join(container(SMALLEST)["args"]) == (
        "run /etc/mcpgroup/group/group.yaml --ignore-unknown-keys"
        " --host 0.0.0.0 --port 8080 --admin-host 0.0.0.0 --admin-port 9090"
        " --keys /etc/mcpgroup/keys --log-format json --log-level Info"
    )


def test_variables_of_the_group_win_over_the_folder_for_packages() -> None:
    env = container(gateway(env=[{"name": "HOME", "value": "/tmp/x"}, {"name": "A"}]))["env"]  # noqa: S108
    assert [v["name"] for v in env] == ["POD_NAME", "POD_NAMESPACE", "HOME", "A"]
    assert env[2]["value"] == "/tmp/x"  # noqa: S108
    assert container(SMALLEST)["env"][2] == {"name": "HOME", "value": "/tmp"}  # noqa: S108


def test_labels_of_the_group_never_change_what_is_selected() -> None:
    labels = template(gateway(podLabels={"team": "search"}))["metadata"]["labels"]
    assert labels == {**template(SMALLEST)["metadata"]["labels"], "team": "search"}


def test_a_request_log_has_room_for_itself_and_its_predecessors() -> None:
    log = {"file": "/tmp/requests", "maxMegabytes": 200}  # noqa: S108
    spec = gateway(requestLog=log)
    assert volume(SMALLEST, "tmp")["emptyDir"] == {"sizeLimit": "1024Mi"}
    assert volume(spec, "tmp")["emptyDir"] == {"sizeLimit": f"{1024 + 4 * 200}Mi"}
    assert " ".join(container(spec)["args"]).endswith(
        "--request-log /tmp/requests --request-log-sample 1.0 --request-log-max-mb 200"
    )


def test_a_request_log_to_standard_error_takes_no_room() -> None:
    assert volume(gateway(requestLog={}), "tmp") == volume(SMALLEST, "tmp")
    assert "--request-log -" in " ".join(container(gateway(requestLog={}))["args"])


def test_each_secret_is_a_folder_of_its_own_that_may_be_missing() -> None:
    spec = referring("b", "a.b", "b", "x" * 253)
    mounts = {m["name"]: m["mountPath"] for m in container(spec)["volumeMounts"]}
    found = {
        mounts[v["name"]]: v["secret"]
        for v in template(spec)["spec"]["volumes"]
        if v["name"].startswith("secret-")
    }
    assert found == {
        f"/etc/mcpgroup/secrets/{name}": {"secretName": name, "optional": True}
        for name in ("a.b", "b", "x" * 253)
    }
    assert "--secrets /etc/mcpgroup/secrets" in " ".join(container(spec)["args"])
    for name in mounts:
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)


def test_secrets_are_found_wherever_a_group_refers_to_one() -> None:
    assert secret_names(group_of(SPECS["secrets"]).spec) == ["ca.of.the.company", "files", "search"]
    assert secret_names(group_of(SMALLEST).spec) == []


def test_a_group_may_refer_to_256_secrets_and_no_more() -> None:
    def members(secrets: int) -> list[dict[str, Any]]:
        names = [f"s{number}" for number in range(secrets)]
        return [
            {**referring(*names[first : first + 32])["members"][0], "name": f"m{first}"}
            for first in range(0, secrets, 32)
        ]

    assert len(template({"members": members(256)})["spec"]["volumes"]) == 256 + 3
    with pytest.raises(ConfigTooLargeError, match="257 Secrets, 256 are allowed"):
        template({"members": members(257)})


def test_no_operator_rolls_the_pods_of_another_one() -> None:
    elsewhere = replace(SETTINGS, operator_mark="other.other", operator_namespace="other")
    for spec in SPECS.values():
        assert pod_template(group_of(spec), elsewhere) == template(spec)


LIVE_CHANGES: dict[str, dict[str, Any]] = {
    "replicas": {"replicas": 7},
    "a description": {"description": "new"},
    "a strategy": {"strategy": "Random"},
    "probes": {"health": {"intervalSeconds": 3}},
    "limits": {"limits": {"requestsInFlight": 7}},
    "sessions": {"sessions": {"max": 7}},
    "hosts": {"allowedHosts": ["mcp.example.com"]},
    "the Service": {"service": {"port": 8080, "type": "NodePort"}},
    "the NetworkPolicy": {"networkPolicy": {"enabled": True, "egress": True}},
    "the PodMonitor": {"monitoring": {"podMonitor": True}},
}
ROLLING_CHANGES: dict[str, dict[str, Any]] = {
    "the drain": {"drain": {"timeoutSeconds": 31}},
    "the image": {"gateway": {"image": "own:1"}},
    "resources": {"gateway": {"resources": {"limits": {"memory": "1Gi"}}}},
    "scheduling": {"gateway": {"nodeSelector": {"a": "b"}}},
    "a variable": {"gateway": {"env": [{"name": "A", "value": "b"}]}},
    "the log level": {"gateway": {"logLevel": "Debug"}},
    "the account": {"gateway": {"serviceAccountName": "own"}},
    "the set of Secrets": referring("a"),
}


@pytest.mark.parametrize("change", LIVE_CHANGES)
def test_it_is_not_changed_by(change: str) -> None:
    assert template({**SMALLEST, **LIVE_CHANGES[change]}) == template(SMALLEST)


@pytest.mark.parametrize("change", ROLLING_CHANGES)
def test_it_is_changed_by(change: str) -> None:
    assert template({**SMALLEST, **ROLLING_CHANGES[change]}) != template(SMALLEST)


NAMES = st.lists(st.from_regex(r"[a-z]{1,6}", fullmatch=True), min_size=1, max_size=5, unique=True)
MEMBERS = NAMES.flatmap(
    lambda names: st.tuples(
        *(
            st.fixed_dictionaries(
                {"name": st.just(name), "weight": st.integers(1, 100)},
                optional={
                    "region": st.sampled_from(["east", "west"]),
                    "callTimeoutSeconds": st.integers(1, 3600),
                },
            ).flatmap(
                lambda member: st.sampled_from(
                    [
                        {**member, "http": {"url": "http://a/mcp"}},
                        {**member, "http": {"url": "https://b.example.com:1/mcp"}},
                        {**member, "stdio": {"command": ["x", "y"], "memoryLimitMiB": 7}},
                    ]
                )
            )
            for name in names
        )
    )
)


@given(
    MEMBERS,
    st.integers(0, 100),
    st.sampled_from(["RoundRobin", "Random", "LeastLatency"]),
    st.integers(1, 100),
)
def test_it_is_changed_by_no_member(
    members: tuple[dict[str, Any], ...], replicas: int, strategy: str, generation: int
) -> None:
    spec = {"members": list(members), "replicas": replicas, "strategy": strategy}
    group = group_of(spec, generation=generation)
    assert pod_template(group, SETTINGS) == template(SMALLEST)


@given(st.permutations(["a", "b", "c.d"]), st.lists(st.sampled_from(["a", "b", "c.d"]), max_size=4))
def test_it_is_changed_by_no_order_or_number_of_references(
    order: list[str], more: list[str]
) -> None:
    assert template(referring(*order, *more)) == template(referring("a", "b", "c.d"))
