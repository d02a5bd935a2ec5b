"""What a schema of a CustomResourceDefinition must be: `structural`, in Kubernetes' words.

Source: kubernetes.io, "Extend the Kubernetes API with CustomResourceDefinitions", section
"Specifying a structural schema".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_FORBIDDEN: Final = frozenset(
    {
        "$ref",
        "$defs",
        "const",
        "definitions",
        "dependencies",
        "deprecated",
        "discriminator",
        "examples",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "id",
        "patternProperties",
        "prefixItems",
        "propertyNames",
        "readOnly",
        "title",
        "uniqueItems",
        "writeOnly",
        "xml",
    }
)
_NOT_IN_JUNCTIONS: Final = frozenset(
    {"description", "type", "default", "additionalProperties", "nullable"}
)
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]


def schemas(schema: dict[str, Any], place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of a value with its place: `.spec.members[].name`, `{}` for values of maps."""
    yield place, schema
    for name, inner in schema.get("properties", {}).items():
        yield from schemas(inner, f"{place}.{name}")
    if "items" in schema:
        yield from schemas(schema["items"], f"{place}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from schemas(schema["additionalProperties"], f"{place}{{}}")


def not_structural(root: dict[str, Any]) -> Iterator[str]:
    """What is wrong, with its place."""
    for place, schema in schemas(root):
        for problem in _problems(schema):
            yield f"{place}: {problem}"
    for name in ("apiVersion", "kind", "metadata"):
        if set(root["properties"][name]) != {"type"}:
            yield f".{name}: belongs to the API server"


def _problems(schema: dict[str, Any]) -> Iterator[str]:
    free = schema.get("x-kubernetes-preserve-unknown-fields", False)
    either = schema.get("x-kubernetes-int-or-string", False)
    if either == ("type" in schema):
        yield "must have a type, or be x-kubernetes-int-or-string"
    if either and schema.get("anyOf") != _INT_OR_STRING:
        yield "x-kubernetes-int-or-string needs its anyOf"
    yield from (f"{word} is not allowed" for word in sorted(_FORBIDDEN & set(schema)))
    if "properties" in schema and "additionalProperties" in schema:
        yield "properties and additionalProperties exclude each other"
    if schema.get("additionalProperties") in (True, False):
        yield "additionalProperties must be a schema"
    says = free or {"properties", "additionalProperties"} & set(schema)
    if schema.get("type") == "object" and not says and set(schema) != {"type"}:
        yield "an object must say what is in it"
    yield from _problems_of_lists(schema)
    for junction in ("allOf", "anyOf", "oneOf", "not"):
        parts = schema.get(junction, []) if not either else []
        if any(_NOT_IN_JUNCTIONS & set(part) for part in parts):
            yield f"{junction} must only hold constraints of values"
    if "default" in schema and not _fits(schema["default"], schema):
        yield "the default does not fit"


def _problems_of_lists(schema: dict[str, Any]) -> Iterator[str]:
    if schema.get("type") != "array":
        return
    kind, items = schema.get("x-kubernetes-list-type"), schema["items"]
    if kind not in ("atomic", "set", "map"):
        yield "must have a list type"
    if kind == "set" and items["type"] in ("object", "array"):
        yield "a set is of scalars"
    if kind == "map":
        for key in schema["x-kubernetes-list-map-keys"]:
            if key not in items["required"] and "default" not in items["properties"][key]:
                yield f"key {key} must be required or have a default"


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    kinds: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}
    bounds = (schema.get("minimum", float("-inf")), schema.get("maximum", float("inf")))
    return (
        isinstance(value, kinds[schema["type"]])
        and (schema["type"] == "boolean" or not isinstance(value, bool))
        and value in schema.get("enum", [value])
        and (isinstance(value, str | bool) or bounds[0] <= value <= bounds[1])
    )
