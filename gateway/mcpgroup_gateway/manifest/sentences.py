"""Validation errors of the API's models as plain sentences that name what is allowed.

What is allowed at a place is read from the JSON schema of the models, so that an error and the
schema cannot disagree.
"""

from __future__ import annotations

import difflib
import functools
from typing import TYPE_CHECKING, Any, Final

from mcpgroup_api import PATTERNS, RULES, McpServerGroup

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from mcpgroup_gateway.manifest.faults import Path

_KEY: Final = "[key]"
_LEFT_ALONE: Final = frozenset({("metadata",), ("status",)})


def sentences(error: ValidationError, data: Any) -> list[tuple[Path, str]]:
    """Path and text of everything that is wrong; `data` is what was validated."""
    found: list[tuple[Path, str]] = []
    for details in error.errors(include_url=False):
        found += _sentence(details, data)
    return found


def nulls(data: Any, path: Path = ()) -> list[tuple[Path, str]]:
    """Fields that are there without a value: an unfinished line more often than a wish."""
    if data is None:
        schema = _schema_at(path)
        allowed = f"must be {_allowed(schema)}, or left out" if schema else "must have a value"
        return [(path, allowed)]
    if isinstance(data, dict):
        items: Any = data.items()
    elif isinstance(data, list):
        items = enumerate(data)
    else:
        return []
    return [
        entry
        for key, value in items
        if (*path, key) not in _LEFT_ALONE
        for entry in nulls(value, (*path, key))
    ]


def _sentence(details: ErrorDetails, data: Any) -> list[tuple[Path, str]]:
    path: Path = details["loc"]
    kind = details["type"]
    if kind == RULES:
        return [((*path, *v.path), v.text) for v in details["ctx"]["violations"]]
    if kind == "value_error":
        return [(path, str(details["ctx"]["error"]))]
    if kind == "extra_forbidden":
        names = list((_schema_at(path[:-1]) or {}).get("properties", {}))
        return [(path, f"unknown field{_guess(str(path[-1]), names)}; allowed: {_list(names)}")]
    if path and path[-1] == _KEY:
        return [(path[:-1], f"key must be {_allowed(_keys(_schema_at(path[:-2]) or {}))}")]
    schema = _schema_at(path)
    if schema is None:
        return [(path, details["msg"])]
    if kind == "too_short" and len(_value_at(data, path)) >= schema.get("minItems", 0):
        return []  # its entries have faults of their own, the list as it is written is long enough
    if kind == "missing":
        return [(path, f"is required: {_allowed(schema)}")]
    text = f"must be {_allowed(schema)}"
    value = details["input"]
    if "enum" in schema and isinstance(value, str):
        text += _guess(value, schema["enum"])
    elif schema.get("type") == "string" and isinstance(value, int | float):
        text += " (put it in quotes: YAML reads it as a "
        text += "boolean)" if isinstance(value, bool) else "number)"
    return [(path, text)]


def _allowed(schema: dict[str, Any]) -> str:
    """What a schema allows, in words that follow "must be"."""
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return f"one of {_list(schema['enum'])}"
    match schema.get("type"):
        case "boolean":
            return "true or false"
        case "integer":
            return f"a whole number{_range(schema.get('minimum'), schema.get('maximum'))}"
        case "number":
            return f"a number{_range(schema.get('minimum'), schema.get('maximum'))}"
        case "array":
            return f"a list{_count(schema.get('minItems'), schema.get('maxItems'), 'entries')}"
        case "object":
            names = list(schema.get("properties", {}))
            if names:
                return f"a mapping of {_list(names)}"
            return f"a mapping{_count(None, schema.get('maxProperties'), 'entries')}"
        case "string":
            words = PATTERNS.get(schema.get("pattern", ""), "text")
            lower, upper = schema.get("minLength"), schema.get("maxLength")
            return words + _count(lower, upper, "characters")
    return "a value"


def _range(lower: float | None, upper: float | None) -> str:
    if lower is None or upper is None:
        return ""
    return f" from {lower} to {upper}"


def _count(lower: int | None, upper: int | None, of: str) -> str:
    if upper is None:
        return ""
    if lower:
        return f" ({lower} to {upper} {of})"
    return f" (at most {upper} {of})"


def _list(names: list[str]) -> str:
    return ", ".join(map(str, names))


def _guess(word: str, names: list[str]) -> str:
    """The allowed word that was probably meant, case aside."""
    lowered = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.75)
    return f" (did you mean {lowered[close[0]]}?)" if close else ""


@functools.cache
def _schema() -> dict[str, Any]:
    return McpServerGroup.model_json_schema()


def _schema_at(path: Path) -> dict[str, Any] | None:
    """The schema of the value at `path`, None where the models know nothing."""
    schema: dict[str, Any] | None = _resolve(_schema())
    for part in path:
        if schema is None:
            return None
        if isinstance(part, int):
            inner = schema.get("items")
        else:
            inner = schema.get("properties", {}).get(part, _values(schema))
        schema = _resolve(inner) if isinstance(inner, dict) else None
    return schema


def _keys(schema: dict[str, Any]) -> dict[str, Any]:
    """What a mapping allows as keys; pydantic writes a pattern of them as `patternProperties`."""
    pattern = next(iter(schema.get("patternProperties", {})), "")
    return {"type": "string", "pattern": pattern, **schema.get("propertyNames", {})}


def _values(schema: dict[str, Any]) -> Any:
    """What a mapping allows as values."""
    return next(
        iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties")
    )


def _resolve(schema: dict[str, Any]) -> dict[str, Any]:
    """Follows references, and takes the part of a union that is not null."""
    while True:
        if "$ref" in schema:
            schema = _schema()["$defs"][schema["$ref"].rsplit("/", 1)[1]]
        elif "anyOf" in schema:
            schema = next(part for part in schema["anyOf"] if part.get("type") != "null")
        else:
            return schema


def _value_at(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data
