"""What is taken out of a live object so that the desired one can be applied."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.unit.operator.groups import SPECS
from tests.unit.operator.recorded import LIVE, children_of, read

from mcpgroup_operator.repairs import repairs

Manifest = dict[str, Any]
UID = {"op": "test", "path": "/metadata/uid", "value": "of-the-child"}


def child(kind: str, name: str = "smallest") -> Manifest:
    found = [c.manifest for c in children_of(name).desired]
    return next(m for m in found if m["kind"] == kind)


def live_of(manifest: Manifest) -> Manifest:
    live = copy.deepcopy(manifest)
    live["metadata"] |= {"uid": "of-the-child", "resourceVersion": "7"}
    return live


@pytest.mark.parametrize("name", SPECS)
def test_what_an_api_server_made_of_a_manifest_needs_no_repair(name: str) -> None:
    documents = read(LIVE / f"{name}.yaml")
    for desired, live in zip(documents[::2], documents[1::2], strict=True):
        assert repairs(desired, live) == []


def test_a_port_that_was_moved_is_put_back_and_keeps_its_port_of_the_nodes() -> None:
    desired = child("Service")
    live = live_of(desired)
    (port,) = desired["spec"]["ports"]
    seen = [{**port, "port": 8000, "nodePort": 31000}]
    live["spec"]["ports"] = seen
    assert repairs(desired, live) == [
        UID,
        {"op": "test", "path": "/spec/ports", "value": seen},
        {"op": "replace", "path": "/spec/ports", "value": [{**port, "nodePort": 31000}]},
    ]


def test_ports_that_others_added_stay_unless_they_are_in_the_way() -> None:
    desired = child("Service")
    live = live_of(desired)
    (port,) = desired["spec"]["ports"]
    moved = {**port, "port": 8000}
    added = {"name": "other", "port": 81, "protocol": "TCP"}
    in_the_way = {"name": "mine", "port": 80, "protocol": "TCP"}
    live["spec"]["ports"] = [moved, added, in_the_way]
    assert repairs(desired, live)[-1]["value"] == [port, added]
    live["spec"]["ports"] = [port, added]
    assert repairs(desired, live) == []


def test_a_port_of_the_container_is_put_back_where_the_container_stands() -> None:
    desired = child("Deployment")
    live = live_of(desired)
    containers = live["spec"]["template"]["spec"]["containers"]
    containers[0]["ports"][0]["containerPort"] = 8000
    containers.insert(0, {"name": "sidecar", "ports": [{"name": "mcp", "containerPort": 1}]})
    path = "/spec/template/spec/containers/1/ports"
    seen = containers[1]["ports"]
    wanted = desired["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert repairs(desired, live) == [
        UID,
        {"op": "test", "path": path, "value": seen},
        {"op": "replace", "path": path, "value": wanted},
    ]


def test_of_two_ways_to_probe_ours_is_put_back_with_the_rest_of_the_probe() -> None:
    desired = child("Deployment")
    live = live_of(desired)
    (gateway,) = live["spec"]["template"]["spec"]["containers"]
    probe = gateway["livenessProbe"]
    http = probe.pop("httpGet")
    probe["tcpSocket"] = {"port": 1}
    operations = repairs(desired, live)
    assert operations[1:] == [
        {"op": "test", "path": "/spec/template/spec/containers/0/livenessProbe", "value": probe},
        {
            "op": "replace",
            "path": "/spec/template/spec/containers/0/livenessProbe",
            "value": {
                "httpGet": http,
                "periodSeconds": 10,
                "timeoutSeconds": 5,
                "failureThreshold": 6,
            },
        },
    ]


def test_a_variable_a_volume_and_a_hook_have_one_source() -> None:
    desired = child("Deployment")
    live = live_of(desired)
    pod = live["spec"]["template"]["spec"]
    pod["volumes"][0]["emptyDir"] = {}
    (gateway,) = pod["containers"]
    gateway["env"][0]["value"] = "by hand"
    gateway["lifecycle"]["preStop"] = {"exec": {"command": ["x"]}}
    replaced = {o["path"]: o["value"] for o in repairs(desired, live) if o["op"] == "replace"}
    (ours,) = desired["spec"]["template"]["spec"]["containers"]
    assert replaced == {
        "/spec/template/spec/volumes/0": {"name": "config", "configMap": {"name": "smallest"}},
        "/spec/template/spec/containers/0/env/0": ours["env"][0],
        "/spec/template/spec/containers/0/lifecycle/preStop": {"sleep": {"seconds": 10}},
    }


def test_a_budget_counts_what_may_be_missing_or_what_must_be_there() -> None:
    desired = child("PodDisruptionBudget")
    live = live_of(desired)
    del live["spec"]["maxUnavailable"]
    live["spec"]["minAvailable"] = "50%"
    assert repairs(desired, live)[-1] == {
        "op": "replace",
        "path": "/spec",
        "value": desired["spec"],
    }


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret", "ServiceAccount"])
def test_there_is_nothing_to_repair_in_a_kind_without_lists_or_choices(kind: str) -> None:
    desired = child(kind)
    assert repairs(desired, live_of(desired)) == []


def test_an_object_that_lost_everything_needs_an_apply_and_no_repair() -> None:
    desired = child("Deployment")
    live = live_of(desired)
    live["spec"] = {"template": {"spec": {"containers": []}}}
    assert repairs(desired, live) == []
