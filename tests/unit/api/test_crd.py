"""The CustomResourceDefinition that is made from the models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import V1CustomResourceDefinition
from tests.unit.api.case import Case
from tests.unit.api.longest import longest
from tests.unit.api.structural import not_structural, schemas

from mcpgroup_api.crd import definition, text
from mcpgroup_api.yamltext import to_yaml

FILE = Path(__file__).parents[3] / "crds" / "mcpservergroups.yaml"
CLIENT_SIDE_APPLY = 262_144


@pytest.fixture(scope="module")
def root() -> dict[str, Any]:
    schema: dict[str, Any] = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def test_the_file_is_what_the_models_say() -> None:
    assert FILE.read_text() == text(), "make crd writes it"


def test_the_file_reads_as_the_object_for_every_reader_of_yaml() -> None:
    assert yaml.safe_load(text()) == definition()


@pytest.mark.parametrize(
    "value",
    [
        *("no", "On", "null", "None", "~", "", " a", "-", "--", "---", "...", "_1", "=", "<<"),
        *("1", "1e3", "0x1", ".5", ".inf", "2026-11-30", "12:30"),
        *("'", '"', "\\", "é", "a\nb", "self.a == 'b'"),
        *(
            "a: b",
            "a:",
            "x: y",
            "a #b",
            "- a",
            "a, b",
            "{}",
            "[a]",
            "&a",
            "*a",
            "!a",
            "%a",
            "@a",
            "`a`",
        ),
    ],
)
def test_a_text_stays_a_text(value: str) -> None:
    assert yaml.safe_load(to_yaml({"a": [value, {value: value}]})) == {"a": [value, {value: value}]}


def test_client_side_apply_can_hold_it_in_an_annotation() -> None:
    assert len(text()) < 200 * 1024 < CLIENT_SIDE_APPLY


def test_the_strict_client_knows_every_field_of_it() -> None:
    V1CustomResourceDefinition.model_validate(definition())


def test_names_scope_and_subresources() -> None:
    spec = definition()["spec"]
    version = spec["versions"][0]

    assert definition()["metadata"]["name"] == f"{spec['names']['plural']}.{spec['group']}"
    assert spec["names"]["shortNames"] == ["mcpsg"]
    assert spec["names"]["categories"] == ["mcpgroup"]
    assert spec["scope"] == "Namespaced"
    assert spec["conversion"] == {"strategy": "None"}
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert version["subresources"]["status"] == {}
    assert version["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }


def test_the_columns_that_kubectl_shows() -> None:
    columns = definition()["spec"]["versions"][0]["additionalPrinterColumns"]

    assert [column["name"] for column in columns] == [
        "Ready",
        "State",
        "Members",
        "Replicas",
        "Agree",
        "Endpoint",
        "Age",
    ]


def test_every_schema_is_structural(root: dict[str, Any]) -> None:
    assert list(not_structural(root)) == []


def test_everything_is_described_and_bounded(root: dict[str, Any]) -> None:
    for place, schema in schemas(root):
        if place in ("", ".apiVersion", ".kind", ".metadata"):
            continue
        if schema.get("type") == "string":
            assert {"maxLength", "enum"} & set(schema), place
        if schema.get("type") in ("integer", "number"):
            assert {"minimum", "maximum"} <= set(schema), place
            assert schema["maximum"] <= 2**53, f"{place}: Go reads bounds as floating point"
        if schema.get("type") == "array":
            assert "maxItems" in schema, place
        if schema.get("type") == "object" and "properties" not in schema:
            assert "maxProperties" in schema, place
        if not place.endswith(("[]", "{}")):
            assert schema["description"], place


def test_no_name_and_no_value_is_a_boolean_or_null_in_yaml(root: dict[str, Any]) -> None:
    """But the status of conditions, whose words are Kubernetes' own and which no person writes."""
    words = [name for _, schema in schemas(root) for name in schema.get("properties", {})]
    words += [
        word
        for place, schema in schemas(root)
        if place != ".status.conditions[].status"
        for word in schema.get("enum", [])
    ]

    assert len(words) > 150
    for word in words:
        assert yaml.safe_load(word) == word
        assert word.lower() not in {"y", "n", "on", "off", "yes", "no", "true", "false", "null"}


def test_only_fields_for_which_it_does_not_matter_who_wrote_them_have_a_default(
    root: dict[str, Any],
) -> None:
    """`replicas` always has a value, else the scale subresource answers 500. What a warning asks of
    the author (a weight, a time) is never written by the API server; nor is anything of status."""
    defaults = {place: s["default"] for place, s in schemas(root) if "default" in s}

    assert defaults[".spec.replicas"] == 2
    assert defaults[".spec.members[].transport"] == "Auto"
    assert all(place.startswith(".spec.") for place in defaults)
    assert not {
        ".spec.members[].weight",
        ".spec.members[].priority",
        ".spec.members[].callTimeoutSeconds",
        ".spec.drain.timeoutSeconds",
        ".spec.members[].isolation",
        ".spec.consistentHash",
    } & set(defaults)


def test_rules_have_messages_of_their_own(root: dict[str, Any]) -> None:
    rules = {
        (rule["rule"], rule["message"])
        for _, schema in schemas(root)
        for rule in schema.get("x-kubernetes-validations", [])
    }

    assert len(rules) > 30
    assert len({message for _, message in rules}) == len({rule for rule, _ in rules})


def test_one_accepted_row_has_everything_at_its_longest_at_once(root: dict[str, Any]) -> None:
    """What cannot be long there says why: a member is a process or at a URL, not both."""
    written = list(_lengths(Case("", longest()).data()["spec"], ".spec"))
    limits = {
        place: schema["maxItems"] if "maxItems" in schema else schema["maxProperties"]
        for place, schema in schemas(root["properties"]["spec"], ".spec")
        if {"maxItems", "maxProperties"} & set(schema)
    }

    assert len(limits) >= 60
    for place, limit in limits.items():
        assert limit in [length for at, length in written if at == place], place


def _lengths(value: Any, place: str) -> Iterator[tuple[str, int]]:
    """Of every list and mapping, at the place of its schema."""
    if isinstance(value, list | dict):
        yield place, len(value)
    if isinstance(value, list):
        for item in value:
            yield from _lengths(item, f"{place}[]")
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _lengths(inner, f"{place}.{key}")
