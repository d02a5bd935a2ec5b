"""The command line of the operator."""

from typing import Any

import pytest
import yaml

from mcpgroup_operator.__main__ import main
from mcpgroup_operator.settings import parse


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "POD_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


def test_in_a_pod_pods_are_asked_directly_and_from_a_laptop_through_the_api_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert parse([]).pods == "direct"
    assert parse(["--kubeconfig", "config"]).pods == "proxy"
    assert parse(["--kubeconfig", "config", "--pods", "direct"]).pods == "direct"
    monkeypatch.setenv("KUBECONFIG", "config")
    assert parse([]).pods == "proxy"


def test_the_namespaces_to_watch_are_named_once_each() -> None:
    assert parse(["--watch-namespaces", "a,b,a,"]).watch_namespaces == ("a", "b")
    assert parse([]).watch_namespaces == ()


def test_two_processes_never_have_one_identity() -> None:
    assert parse([]).identity != parse([]).identity


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--watch-namespaces", "Not_A_Name"], "'Not_A_Name' is not a name"),
        (["--release", "a.b"], "'a.b' is not a name"),
        (["--admin-port", "70000"], "must be a port"),
        (["--poll-seconds", "0"], "must be a number of seconds"),
        (["--poll-seconds", "often"], "must be a number of seconds"),
        (["--pods", "somehow"], "invalid choice"),
        (["--print-crds", "--print-rbac"], "not allowed with"),
    ],
)
def test_wrong_use_is_told_and_ends_with_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)

    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    main(arguments)
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_the_kinds_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    (crd,) = printed(capsys, "--print-crds")

    assert crd["metadata"]["name"] == "mcpservergroups.mcpgroup.dev"


def test_the_rights_of_an_operator_for_some_namespaces_are_bound_there_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    manifests = printed(capsys, "--print-rbac", "--namespace", "ops", "--watch-namespaces", "a,b")

    bindings = [m for m in manifests if m["kind"].endswith("Binding")]
    assert {m["metadata"]["namespace"] for m in bindings} == {"ops", "a", "b"}
    assert {(s["name"], s["namespace"]) for m in bindings for s in m["subjects"]} == {
        ("mcpgroup", "ops")
    }
    assert manifests[0]["kind"] == "ServiceAccount"
