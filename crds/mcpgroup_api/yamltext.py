"""Plain data as YAML that people can read, the same bytes each time, without a YAML library."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*( [A-Za-z0-9_./(-][A-Za-z0-9_./(),;-]*)*")
_TAKEN: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def to_yaml(data: Any) -> str:
    """Block style. Texts stand bare where every YAML reader sees a text, else as in JSON."""
    return "\n".join(_lines(data, 0)) + "\n"


def _lines(data: Any, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(data, dict) and data:
        for key, value in data.items():
            if isinstance(value, dict | list) and value:
                yield f"{indent}{_scalar(key)}:"
                yield from _lines(value, depth if isinstance(value, list) else depth + 1)
            else:
                yield f"{indent}{_scalar(key)}: {_scalar(value)}"
    elif isinstance(data, list) and data:
        for value in data:
            first, *others = _lines(value, depth + 1)
            yield f"{indent}- {first.lstrip()}"
            yield from others
    else:
        yield f"{indent}{_scalar(data)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _TAKEN:
        return value
    return json.dumps(value, ensure_ascii=False)
