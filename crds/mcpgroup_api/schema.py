"""Models as structural OpenAPI schemas, the kind that a CustomResourceDefinition takes.

What pydantic writes is JSON schema of 2020. Kubernetes knows neither references, nor null as a
type, nor constraints on keys; it adds list types and rules in CEL. Unknown fields need no word: the
API server drops them, and refuses them when it is asked to be strict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mcpgroup_api.cel import CEL, CEL_OF_TEXTS, Rule
from mcpgroup_api.patterns import PATTERNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpgroup_api.fields import Model

_WRITTEN: Final = frozenset(
    {
        ("Member", "weight"),
        ("Member", "priority"),
        ("Member", "callTimeoutSeconds"),
        ("Drain", "timeoutSeconds"),
    }
)
"""Fields for which it matters whether their default was written (`advice`): the API server must not
write it. The description has it instead."""

_KEPT: Final = (
    "type",
    "format",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-int-or-string",
)

_RULES_BY_NAME: Final = {model.__name__: rules for model, rules in CEL.items()}

Schema = dict[str, Any]


def structural(model: type[Model]) -> Schema:
    """The schema of a model, references resolved, with its defaults and rules."""
    document = model.model_json_schema()
    return _Converter(document.get("$defs", {})).object(document, model.__name__)


def rules_of(model: type[Model]) -> list[dict[str, str]]:
    """What `x-kubernetes-validations` says at the objects of a model."""
    return [rule.schema() for rule in CEL.get(model, ())]


class _Converter:
    def __init__(self, definitions: dict[str, Schema]) -> None:
        self._definitions = definitions

    def object(self, node: Schema, name: str) -> Schema:
        """A model: its fields in their order, and its rules."""
        converted = self._plain(node)
        converted["properties"] = {
            field: self._field(inner, name, field) for field, inner in node["properties"].items()
        }
        return _with_rules(converted, _RULES_BY_NAME.get(name, ()))

    def _field(self, node: Schema, model: str, field: str) -> Schema:
        converted = self._any(node)
        default = node.get("default")
        if isinstance(default, bool | int | float) or (isinstance(default, str) and default):
            if (model, field) in _WRITTEN:
                converted["description"] += f" Default {default}."
            else:
                converted["default"] = default
        return converted

    def _any(self, node: Schema) -> Schema:
        """Any value: what stands beside a reference or a union wins over what is in it."""
        beside = {key: value for key, value in node.items() if key not in ("$ref", "anyOf")}
        if "$ref" in node:
            name = node["$ref"].rsplit("/", 1)[1]
            merged = {**self._definitions[name], **beside}
            return self.object(merged, name) if "properties" in merged else self._plain(merged)
        if "anyOf" in node:
            (part,) = [part for part in node["anyOf"] if part.get("type") != "null"]
            return self._any({**part, **beside})
        if node["type"] == "array":
            return self._list(node)
        if node["type"] == "object":
            return self._mapping(node)
        return self._plain(node)

    def _list(self, node: Schema) -> Schema:
        converted = {"x-kubernetes-list-type": "atomic", **self._plain(node)}
        return {**converted, "items": self._any(node["items"])}

    def _mapping(self, node: Schema) -> Schema:
        """Constraints on keys become a rule, and a pattern of keys stands before the values."""
        converted, keys = self._plain(node), dict(node.get("propertyNames", {}))
        values: Any = node.get("additionalProperties")
        if "patternProperties" in node:
            ((keys["pattern"], values),) = node["patternProperties"].items()
        if values is True:
            return {**converted, "x-kubernetes-preserve-unknown-fields": True}
        converted["additionalProperties"] = self._any(values)
        return _with_rules(converted, [_rule_over_keys(keys)] if keys else [])

    def _plain(self, node: Schema) -> Schema:
        converted: Schema = {}
        if "description" in node:
            converted["description"] = " ".join(node["description"].split())
        converted |= {key: node[key] for key in _KEPT if key in node}
        if converted.pop("x-kubernetes-int-or-string", False):
            del converted["type"]
            converted["x-kubernetes-int-or-string"] = True
            converted["anyOf"] = [{"type": "integer"}, {"type": "string"}]
            converted["minimum"] = 0
        return _with_rules(converted, CEL_OF_TEXTS.get(node.get("pattern", ""), ()))


def _with_rules(converted: Schema, rules: Sequence[Rule]) -> Schema:
    if rules:
        converted["x-kubernetes-validations"] = [rule.schema() for rule in rules]
    return converted


def _rule_over_keys(keys: Schema) -> Rule:
    if "enum" in keys:
        words = ", ".join(f"'{word}'" for word in keys["enum"])
        return Rule(f"self.all(k, k in [{words}])", f"keys must be {', '.join(keys['enum'])}")
    lower, upper, pattern = keys["minLength"], keys["maxLength"], keys["pattern"]
    return Rule(
        f"self.all(k, k.size() >= {lower} && k.size() <= {upper} && k.matches(r'{pattern}'))",
        f"keys must be {PATTERNS[pattern]} ({lower} to {upper} characters)",
    )
