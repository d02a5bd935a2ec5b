"""What the operator writes for a gateway, and how a gateway reads it."""

import copy
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.unit.api.cases import ACCEPTED, REJECTED, Case

from mcpgroup_api import McpServerGroup, config_hash, gateway_view, parse_rendered

OF_THE_OPERATOR = ("replicas", "service", "gateway", "networkPolicy", "monitoring")


def without_what_the_operator_acts_on(data: dict[str, Any]) -> McpServerGroup:
    spec = {name: value for name, value in data["spec"].items() if name not in OF_THE_OPERATOR}
    metadata = {k: v for k, v in data["metadata"].items() if k in ("name", "namespace")}
    return McpServerGroup.model_validate({**data, "metadata": metadata, "spec": spec})


def by_name(case: Case) -> str:
    return case.name


def test_the_hash_is_that_of_the_bytes() -> None:
    assert config_hash(b"abc") == "sha256:" + hashlib.sha256(b"abc").hexdigest()


@pytest.mark.parametrize("case", ACCEPTED, ids=by_name)
def test_a_gateway_reads_the_group_that_was_written_for_it(case: Case) -> None:
    view = gateway_view(McpServerGroup.model_validate(case.data()))

    group = McpServerGroup.model_validate(json.loads(json.dumps(view)))
    assert group == without_what_the_operator_acts_on(case.data())
    assert gateway_view(group) == view


@pytest.mark.parametrize("case", ACCEPTED, ids=by_name)
def test_a_default_that_is_written_out_changes_nothing(case: Case) -> None:
    group = McpServerGroup.model_validate(case.data())
    written_out = McpServerGroup.model_validate(group.model_dump(exclude_none=True))

    assert gateway_view(written_out) == gateway_view(group)


def test_only_what_is_no_default_is_written_in_the_order_of_the_models() -> None:
    data = Case(
        "",
        {
            "minHealthy": 2,
            "strategy": "RoundRobin",
            "description": "x",
            "replicas": 5,
            "health": {"intervalSeconds": 10, "timeoutSeconds": 4},
            "drain": {},
        },
        {"metadata": {"name": "time", "namespace": "tools", "labels": {"a": "b"}, "uid": "1"}},
    ).data()

    view = gateway_view(McpServerGroup.model_validate(data))

    assert json.dumps(view["metadata"]) == '{"name": "time", "namespace": "tools"}'
    assert list(view) == ["apiVersion", "kind", "metadata", "spec"]
    assert list(view["spec"]) == ["description", "minHealthy", "members", "health"]
    assert view["spec"]["health"] == {"timeoutSeconds": 4}
    assert view["spec"]["members"] == data["spec"]["members"]


@pytest.mark.parametrize("case", ACCEPTED, ids=by_name)
def test_nothing_is_ignored_in_a_group_that_is_known(case: Case) -> None:
    assert parse_rendered(case.data()) == (McpServerGroup.model_validate(case.data()), ())


def test_unknown_fields_at_any_depth_are_ignored_and_listed() -> None:
    data = Case("").data()
    newer = copy.deepcopy(data)
    newer["new"] = 1
    newer["metadata"]["new"] = {"a": 1}
    newer["spec"]["authentication"] = {"jwt": [{"issuer": "x"}]}
    newer["spec"]["health"] = {"new": None}
    newer["spec"]["members"][1]["http"]["tls"] = {"new": []}
    newer["spec"]["members"][2]["new"] = ""
    before = copy.deepcopy(newer)

    group, ignored = parse_rendered(newer)

    assert group == McpServerGroup.model_validate(data)
    assert sorted(ignored) == [
        "metadata.new",
        "new",
        "spec.authentication",
        "spec.health.new",
        "spec.members[1].http.tls.new",
        "spec.members[2].new",
    ]
    assert newer == before


def faults(case: Case) -> set[str]:
    """The types of pydantic's errors; none for what only files refuse."""
    try:
        McpServerGroup.model_validate(case.data())
    except ValidationError as error:
        return {details["type"] for details in error.errors()}
    return set()


KNOWN_AND_BAD = [c for c in REJECTED if faults(c) and "extra_forbidden" not in faults(c)]


@pytest.mark.parametrize("case", KNOWN_AND_BAD, ids=by_name)
def test_everything_else_is_as_strict_as_in_files(case: Case) -> None:
    with pytest.raises(ValidationError):
        parse_rendered({**case.data(), "new": 1})


@given(st.data())
def test_unknown_fields_anywhere_change_nothing(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from([c for c in ACCEPTED if "longest" not in c.name])).data()
    newer = copy.deepcopy(case)
    places = _closed(newer)
    chosen = data.draw(st.lists(st.sampled_from(range(len(places))), max_size=5, unique=True))
    for index in chosen:
        places[index]["newInALaterVersion"] = data.draw(st.sampled_from([None, 1, "x", [], {}]))

    group, ignored = parse_rendered(newer)

    assert group == McpServerGroup.model_validate(case)
    assert len(ignored) == len(chosen)


def _closed(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects of the API in a manifest: mappings whose keys are not the user's own."""
    spec = data["spec"]
    return [data, data["metadata"], spec, *spec["members"], *spec.get("routes", [])]
