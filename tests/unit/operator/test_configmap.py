"""The file that gateways read, and when it changes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.groups import SETTINGS, SPECS, group_of

from mcpgroup_api import McpServerGroup, config_hash, gateway_view
from mcpgroup_operator.children import ConfigTooLargeError
from mcpgroup_operator.children.configmap import (
    MAX_BYTES,
    build_config_map,
    config_file,
)

SMALLEST = SPECS["smallest"]
EVERY_GROUP = pytest.mark.parametrize("name", SPECS)


def kept(spec: dict[str, Any], generation: int, live: dict[str, Any] | None) -> dict[str, Any]:
    """The ConfigMap for this spec when `live` is there."""
    group = group_of(spec, generation=generation)
    return build_config_map(group, SETTINGS, config_file(group, live))


def generation_in(config_map: dict[str, Any]) -> int:
    generation: int = yaml.safe_load(config_map["data"]["group.yaml"])["metadata"]["generation"]
    return generation


@EVERY_GROUP
def test_a_gateway_reads_the_group_that_was_written(name: str) -> None:
    group = group_of(SPECS[name], generation=7)
    document = yaml.safe_load(config_file(group, None).text)
    read = McpServerGroup.model_validate(document)
    assert gateway_view(read) == gateway_view(group)
    assert (read.metadata.name, read.metadata.namespace) == ("search", "tools")
    assert read.metadata.generation == 7


@EVERY_GROUP
def test_the_file_has_nothing_that_only_the_operator_acts_on(name: str) -> None:
    document = yaml.safe_load(config_file(group_of(SPECS[name]), None).text)
    assert set(document["metadata"]) == {"name", "namespace", "generation"}
    operators = {"replicas", "gateway", "service", "networkPolicy", "monitoring"}
    assert not operators & set(document["spec"])


def test_the_hash_is_that_of_the_bytes_a_gateway_reads() -> None:
    file = config_file(group_of(SPECS["everything"]), None)
    assert file.hash == config_hash(file.text.encode("utf-8"))


def test_the_generation_stays_when_only_the_operator_has_something_to_do() -> None:
    first = kept(SMALLEST, 3, None)
    scaled = kept({**SMALLEST, "replicas": 9, "service": {"port": 81}}, 4, first)
    assert generation_in(first) == generation_in(scaled) == 3
    assert scaled == first


def test_a_default_that_is_written_out_changes_nothing() -> None:
    first = kept(SMALLEST, 3, None)
    assert kept({**SMALLEST, "strategy": "RoundRobin", "drain": {}}, 4, first) == first


def test_the_generation_is_the_one_at_which_the_content_changed_last() -> None:
    first = kept(SMALLEST, 3, None)
    changed = kept({**SMALLEST, "description": "new"}, 5, first)
    later = kept({**SMALLEST, "description": "new", "replicas": 1}, 6, changed)
    back = kept(SMALLEST, 7, later)
    assert [generation_in(each) for each in (first, changed, later, back)] == [3, 5, 5, 7]


def test_a_group_that_is_made_anew_takes_the_file_of_its_predecessor_as_it_is() -> None:
    first = kept(SMALLEST, 9, None)
    assert kept(SMALLEST, 1, first)["data"] == first["data"]


def test_an_edit_of_the_file_by_hand_is_taken_back_to_the_byte() -> None:
    first = kept(SMALLEST, 3, None)
    edited = {**first, "data": {"group.yaml": "spec: {}"}}
    assert kept(SMALLEST, 8, edited) == first


@pytest.mark.parametrize("generation", ["", "x", "-1", "1.5", "²"])
def test_an_annotation_that_is_no_number_is_as_none(generation: str) -> None:
    first = kept(SMALLEST, 3, None)
    first["metadata"]["annotations"]["mcpgroup.dev/content-generation"] = generation
    assert generation_in(kept(SMALLEST, 4, first)) == 4


def test_a_file_may_have_900_kib_and_no_byte_more() -> None:
    def group(last: int) -> McpServerGroup:
        values = ["x" * 32768] * 28 + ["x" * last]
        env = [{"name": f"V{index:03}", "value": value} for index, value in enumerate(values)]
        return group_of({"members": [{"name": "a", "stdio": {"command": ["x"], "env": env}}]})

    most = MAX_BYTES - len(config_file(group(1), None).text) + 1
    assert len(config_file(group(most), None).text) == MAX_BYTES
    with pytest.raises(ConfigTooLargeError, match="921601 bytes, 921600 are allowed"):
        config_file(group(most + 1), None)


LINES = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"]) | st.sampled_from("\n\t:#'\"-|>%@`&*!{}[], ")
)


@given(LINES)
def test_every_text_that_a_group_may_hold_survives_the_file(text: str) -> None:
    group = group_of({**SMALLEST, "description": text[:4096]})
    document = yaml.safe_load(config_file(group, None).text)
    assert document["spec"].get("description", "") == group.spec.description
