"""What must hold for every field of the API, found by walking the models."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from mcpgroup_api import (
    Affinity,
    IpBlock,
    LabelRequirement,
    LabelSelector,
    McpServerGroup,
    Metadata,
    NetworkPeer,
    PodVariable,
    PullSecret,
    Resources,
    Toleration,
)

SCHEMA: dict[str, Any] = McpServerGroup.model_json_schema()
ROOT = Path(__file__).parents[3]
SOURCES = (ROOT / "gateway" / "mcpgroup_gateway", ROOT / "operator" / "mcpgroup_operator")


def nodes(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema object with its place, references not followed (each is in $defs)."""
    if isinstance(schema, dict):
        yield path, schema
        for key, value in schema.items():
            yield from nodes(value, f"{path}/{key}")
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from nodes(value, f"{path}/{index}")


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        for inner in _models_in(field.annotation):
            yield from models(inner)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


MODELS = sorted(set(models(McpServerGroup)), key=lambda model: model.__name__)
FIELDS = [(model, name) for model in MODELS if model is not Metadata for name in model.model_fields]


def test_no_field_name_and_no_value_is_a_boolean_or_null_in_yaml() -> None:
    words = [word for _, node in nodes(SCHEMA) for word in node.get("enum", [])]
    words += [name for _, node in nodes(SCHEMA) for name in node.get("properties", {})]

    assert len(words) > 100
    for word in words:
        assert yaml.safe_load(str(word)) == word
        assert word.lower() not in {"y", "n", "on", "off", "yes", "no", "true", "false", "null"}


def test_every_list_every_mapping_and_every_text_is_bounded() -> None:
    for place, node in nodes(SCHEMA):
        match node.get("type"):
            case "array":
                assert "maxItems" in node, place
            case "string":
                assert {"maxLength", "enum", "const"} & set(node), place
            case "object" if "properties" not in node:
                assert "maxProperties" in node, place


def test_every_number_of_the_spec_has_a_range() -> None:
    for place, node in nodes(SCHEMA):
        if node.get("type") == "integer" and "/Metadata/" not in place:
            assert {"minimum", "maximum"} <= set(node), place


def test_every_field_is_described() -> None:
    for model in MODELS:
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"


def test_every_object_is_closed_and_camel_case() -> None:
    for place, node in nodes(SCHEMA):
        if "properties" in node and node.get("type") == "object":
            assert node["additionalProperties"] is False, place
            for name in node["properties"]:
                assert re.fullmatch(r"[a-z][A-Za-z]*", name), f"{place}/{name}"


# These know nothing of the models: their attributes of equal names prove nothing.
ELSEWHERE = {"core", "wire", "telemetry", "manifest"}

# Handed to Kubernetes as they are, once the field that holds one is read.
PASSED_ON = {
    Affinity,
    IpBlock,
    LabelRequirement,
    LabelSelector,
    NetworkPeer,
    PodVariable,
    PullSecret,
    Resources,
    Toleration,
}


@pytest.fixture(scope="module")
def attributes_read() -> frozenset[str]:
    """Names of all attributes that are read in source which may see the models."""
    found = set()
    for source in SOURCES:
        for path in source.rglob("*.py"):
            if path.relative_to(source).parts[0] in ELSEWHERE:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    found.add(node.attr)
    return frozenset(found)


def _named(part: Any) -> str:
    return part if isinstance(part, str) else part.__name__


@pytest.mark.parametrize(("model", "name"), FIELDS, ids=_named)
def test_every_field_is_read_by_the_gateway_or_the_operator(
    model: type[BaseModel], name: str, attributes_read: frozenset[str]
) -> None:
    """`metadata` is Kubernetes' own, `status` the operator's; `apiVersion` and `kind` have done
    their work once read."""
    if model is McpServerGroup and name in ("api_version", "kind", "status"):
        return
    if model in PASSED_ON:
        return
    assert {name, f"effective_{name}"} & attributes_read
