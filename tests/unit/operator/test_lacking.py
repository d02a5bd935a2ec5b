"""What a live object lacks of the desired one: everything that differs, and nothing else.

The pairs in live/*.yaml are manifests and what a real API server made of them.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.groups import SPECS
from tests.unit.operator.recorded import LIVE, children_of, read

from mcpgroup_operator.lacking import KEYS_OF_LISTS, key_of, lacks

if TYPE_CHECKING:
    from collections.abc import Iterator

Pair = tuple[dict[str, Any], dict[str, Any]]


def pairs() -> Iterator[Pair]:
    for name in SPECS:
        documents = read(LIVE / f"{name}.yaml")
        yield from zip(documents[::2], documents[1::2], strict=True)


PAIRS = list(pairs())
EVERY_PAIR = pytest.mark.parametrize(
    "pair", PAIRS, ids=[f"{d['kind']} {d['metadata']['name']}" for d, _ in PAIRS]
)


def held(desired: Any, live: Any, place: tuple[str, str] = ("", "")) -> Iterator[tuple[Any, Any]]:
    """Where in a live object everything desired is: the map or list around it, and its key.
    What tells entries of a list apart is left out."""
    if isinstance(desired, dict):
        for name, value in desired.items():
            if name in live:
                yield live, name
                yield from held(value, live[name], (place[1], name))
    elif isinstance(desired, list):
        keys = KEYS_OF_LISTS.get(place)
        for index, entry in enumerate(desired):
            if keys is not None:
                index = [key_of(e, keys) for e in live].index(key_of(entry, keys))
            yield live, index
            yield from held(entry, live[index], place)


@pytest.mark.parametrize("name", SPECS)
def test_a_manifest_lacks_nothing_of_itself(name: str) -> None:
    for child in children_of(name).desired:
        assert lacks(child.manifest, child.manifest) == []


@EVERY_PAIR
def test_an_api_server_has_all_of_what_it_accepted(pair: Pair) -> None:
    assert lacks(*pair) == []


@EVERY_PAIR
def test_whatever_is_taken_out_is_lacking(pair: Pair) -> None:
    desired, live = copy.deepcopy(pair)
    for holder, key in list(held(desired, live)):
        before = copy.copy(holder)
        del holder[key]
        assert lacks(desired, live), key
        put_back(holder, before)
    assert live == pair[1]


@EVERY_PAIR
def test_whatever_is_changed_is_lacking(pair: Pair) -> None:
    desired, live = copy.deepcopy(pair)
    for holder, key in list(held(desired, live)):
        before = holder[key]
        match before:
            case bool():
                holder[key] = not before
            case int():
                holder[key] = before + 1
            case str():
                holder[key] = f"{before}x"
            case _:
                continue
        assert lacks(desired, live), key
        holder[key] = before
    assert live == pair[1]


def put_back(holder: Any, before: Any) -> None:
    holder.clear()
    if isinstance(holder, dict):
        holder.update(before)
    else:
        holder.extend(before)


@EVERY_PAIR
def test_what_others_add_is_not_lacking(pair: Pair) -> None:
    desired, live = copy.deepcopy(pair)
    live["metadata"]["labels"]["example.com/of"] = "others"
    live["metadata"]["annotations"]["example.com/of"] = "others"
    live["metadata"]["ownerReferences"].insert(0, {"uid": "of others"})
    live["metadata"]["finalizers"] = ["example.com/others"]
    live["of-a-later-version"] = {"a": 1}
    if desired["kind"] == "Service":
        live["spec"]["ports"].insert(0, {"name": "x", "port": 1, "protocol": "TCP"})
        live["spec"]["externalTrafficPolicy"] = "Local"
    if desired["kind"] == "Deployment":
        template = live["spec"]["template"]
        template["metadata"].setdefault("annotations", {})["restartedAt"] = "now"
        (gateway,) = template["spec"]["containers"]
        gateway["env"].insert(0, {"name": "INJECTED", "value": "1"})
        gateway["ports"].insert(0, {"containerPort": 1, "protocol": "TCP"})
        gateway["volumeMounts"].insert(0, {"name": "x", "mountPath": "/x"})
        gateway["resources"].setdefault("limits", {})["cpu"] = "1"
        template["spec"]["containers"].insert(0, {"name": "sidecar"})
        template["spec"]["initContainers"] = [{"name": "before"}]
        template["spec"]["volumes"].insert(0, {"name": "x", "emptyDir": {}})
        template["spec"]["hostAliases"] = [{"ip": "127.0.0.1"}]
        template["spec"]["topologySpreadConstraints"].insert(
            0, {"topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"}
        )
        template["spec"].setdefault("imagePullSecrets", []).insert(0, {"name": "x"})
    assert lacks(desired, live) == []


def pod(**fields: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": fields}}}


def container(**fields: Any) -> dict[str, Any]:
    return pod(containers=[{"name": "gateway", **fields}])


EQUAL_AMOUNTS = [
    ("1", "1000m"),
    ("0.5", "500m"),
    ("1024Mi", "1Gi"),
    ("1Gi", "1073741824"),
    ("1k", "1000"),
    ("1e3", "1k"),
    ("1.5Gi", "1536Mi"),
    ("0", "0m"),
]
OTHER_AMOUNTS = [("1", "1001m"), ("1Gi", "1G"), ("1", ""), ("1", "many"), ("100m", "100M")]


@pytest.mark.parametrize(("desired", "live"), EQUAL_AMOUNTS)
def test_quantities_are_compared_by_what_they_amount_to(desired: str, live: str) -> None:
    for field in ("requests", "limits"):
        ours = container(resources={field: {"cpu": desired}})
        assert lacks(ours, container(resources={field: {"cpu": live}})) == []
    volume = pod(volumes=[{"name": "tmp", "emptyDir": {"sizeLimit": desired}}])
    assert lacks(volume, pod(volumes=[{"name": "tmp", "emptyDir": {"sizeLimit": live}}])) == []


@pytest.mark.parametrize(("desired", "live"), OTHER_AMOUNTS)
def test_other_quantities_are_lacking(desired: str, live: str) -> None:
    ours = container(resources={"limits": {"cpu": desired}})
    theirs = container(resources={"limits": {"cpu": live}})
    assert lacks(ours, theirs) == ["spec.template.spec.containers[gateway].resources.limits.cpu"]


def test_what_looks_like_a_quantity_elsewhere_is_text() -> None:
    ours, theirs = {"labels": {"size": "1"}}, {"labels": {"size": "1000m"}}
    assert lacks({"metadata": ours}, {"metadata": theirs}) == ["metadata.labels.size"]


@pytest.mark.parametrize(
    ("desired", "live"),
    [
        ({"metadata": {"labels": {}}}, {"metadata": {}}),
        ({"spec": {"tolerations": []}}, {"spec": {}}),
        ({"spec": {"description": ""}}, {"spec": {}}),
        ({"spec": {"anything": None}}, {"spec": {}}),
        (container(env=[{"name": "A", "value": ""}]), container(env=[{"name": "A"}])),
        (container(resources={"limits": {}}), container(resources={})),
    ],
)
def test_what_an_api_server_drops_is_not_lacking(
    desired: dict[str, Any], live: dict[str, Any]
) -> None:
    assert lacks(desired, live) == []


@pytest.mark.parametrize(
    ("desired", "live", "path"),
    [
        ({"metadata": {"labels": {"a": ""}}}, {"metadata": {"labels": {}}}, "metadata.labels.a"),
        ({"spec": {"podSelector": {}}}, {"spec": {}}, "spec.podSelector"),
        ({"automount": False}, {}, "automount"),
        ({"replicas": 0}, {}, "replicas"),
        ({"replicas": 1}, {"replicas": True}, "replicas"),
        ({"a": {"b": 1}}, {"a": None}, "a"),
        ({"a": [1]}, {"a": {"0": 1}}, "a"),
        (
            pod(volumes=[{"name": "tmp", "emptyDir": {}}]),
            pod(volumes=[{"name": "tmp"}]),
            "spec.template.spec.volumes[tmp].emptyDir",
        ),
        (container(), pod(containers=[]), "spec.template.spec.containers[gateway]"),
        (
            container(env=[{"name": "A", "value": "secret"}]),
            container(env=[{"name": "A", "value": "other"}]),
            "spec.template.spec.containers[gateway].env[A].value",
        ),
        (
            {"spec": {"ports": [{"port": 80, "protocol": "TCP"}]}},
            {"spec": {"ports": [{"port": 80, "protocol": "UDP"}]}},
            "spec.ports[80,TCP]",
        ),
    ],
)
def test_what_means_something_is_lacking_and_named(
    desired: dict[str, Any], live: dict[str, Any], path: str
) -> None:
    assert lacks(desired, live) == [path]


@pytest.mark.parametrize(
    "selector",
    ["selector", "podSelector", "namespaceSelector", "labelSelector", "nodeSelector"],
)
def test_another_label_in_a_selector_selects_something_else(selector: str) -> None:
    assert lacks({selector: {"a": "b"}}, {selector: {"a": "b", "c": "d"}}) == [selector]
    narrower = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c"}]}
    assert lacks({selector: {"matchLabels": {"a": "b"}}}, {selector: narrower}) == [selector]


def test_lists_that_are_replaced_as_a_whole_are_compared_as_a_whole() -> None:
    args = container(args=["run", "a"])
    assert lacks(args, container(args=["run", "a"])) == []
    assert lacks(args, container(args=["run", "a", "b"]))
    assert lacks(args, container(args=["a", "run"]))
    rule = {"spec": {"ingress": [{"ports": [{"port": 9090}]}]}}
    opened = {"spec": {"ingress": [{"ports": [{"port": 9090}], "from": [{"podSelector": {}}]}]}}
    assert lacks(rule, opened) == ["spec.ingress[0]"]
    assert lacks(opened, rule) == ["spec.ingress[0].from"]


def test_what_others_fill_in_in_kinds_of_their_own_is_not_lacking() -> None:
    ours = {"spec": {"podMetricsEndpoints": [{"port": "admin"}]}}
    theirs = {"spec": {"podMetricsEndpoints": [{"port": "admin", "scheme": "http"}]}}
    assert lacks(ours, theirs) == []


def test_entries_of_a_merged_list_may_stand_in_any_order() -> None:
    one, two = {"name": "A", "value": "1"}, {"name": "B", "value": "2"}
    assert lacks(container(env=[one, two]), container(env=[two, one])) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "selector", "labels", "x"]), inner)
    ),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "metadata", "spec", "limits"]), JSON)


@given(OBJECTS)
def test_nothing_lacks_of_itself(desired: dict[str, Any]) -> None:
    assert lacks(desired, copy.deepcopy(desired)) == []


@given(OBJECTS, OBJECTS)
def test_paths_are_told_once_and_start_at_the_top(
    desired: dict[str, Any], live: dict[str, Any]
) -> None:
    found = lacks(desired, live)
    assert len(found) == len(set(found))
    for path in found:
        assert path.split(".")[0].split("[")[0] in desired
