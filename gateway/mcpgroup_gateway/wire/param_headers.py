"""Arguments of tools that are repeated in HTTP headers, for intermediaries that route by them.

A property of a tool's `inputSchema` with `"x-mcp-header": "Region"` travels as
`Mcp-Param-Region` too. The sender makes the header from the argument, the receiver compares both.

    read_param_headers(schema)                     once a catalogue entry
    param_headers(declared, arguments)             what a client sends with a call
    check_param_headers(declared, arguments, …)    what a server finds wrong, None for nothing

Source: MCP 2026-07-28, streamable HTTP, custom headers from tool parameters.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mcpgroup_gateway.wire.envelope import MalformedMessage, parse_object, parse_string
from mcpgroup_gateway.wire.header_values import decode_header_value, encode_header_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PREFIX: Final = "Mcp-Param-"
_ANNOTATION: Final = "x-mcp-header"
_TYPES: Final = ("string", "integer", "boolean")

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?\Z")
_JSON_INTEGER = re.compile(r"-?[0-9]+\Z")
#: Longer numbers fit no header; other implementations cannot even read them.
_MAX_DIGITS: Final = 4300

# Where JSON Schema 2020-12 (and draft 7, which servers still write) keeps further schemas. Data
# (`default`, `const`, `enum`, `examples`) is no schema, and a `$ref` is not followed.
_ONE_SCHEMA: Final = frozenset(
    (
        "additionalProperties",
        "unevaluatedProperties",
        "propertyNames",
        "items",
        "additionalItems",
        "unevaluatedItems",
        "contains",
        "contentSchema",
        "not",
        "if",
        "then",
        "else",
    )
)
_LISTS_OF_SCHEMAS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems", "items"))
_NAMED_SCHEMAS: Final = frozenset(
    ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")
)


class ParamHeader(NamedTuple):
    """`path` leads from the arguments to one value, `token` ends the header's name.

    `type` is the schema's: string, integer or boolean.
    """

    path: tuple[str, ...]
    token: str
    type: str

    @property
    def name(self) -> str:
        return PREFIX + self.token


def read_param_headers(schema: bytes) -> tuple[ParamHeader, ...]:
    """The headers that an `inputSchema` declares.

    Raises `ValueError` with the reason when an annotation is none: clients must leave the tool out.
    """
    if b"mcp-header" not in schema and b"\\u" not in schema:
        return ()
    declared: dict[str, ParamHeader] = {}
    for path, position in _positions(json.loads(schema)):
        if _ANNOTATION not in position:
            continue
        header = _read(path, position)
        if header.token.lower() in declared:
            raise ValueError(f"{_ANNOTATION} {header.token!r} is given twice")
        declared[header.token.lower()] = header
    return tuple(declared.values())


def _read(path: tuple[str, ...] | None, position: dict[str, Any]) -> ParamHeader:
    if not path:
        raise ValueError(f"{_ANNOTATION} is on something that is not simply a property")
    where = ".".join(path)
    token = position[_ANNOTATION]
    if not isinstance(token, str) or not _TOKEN.match(token):
        raise ValueError(f"{_ANNOTATION} of {where!r} cannot be a part of a header's name")
    kind = position.get("type")
    if kind not in _TYPES:
        raise ValueError(f"{_ANNOTATION} of {where!r} needs the type {', '.join(_TYPES)}")
    return ParamHeader(path, token, kind)


def _positions(root: object) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Every schema within `root`, with its path where only `properties` lead to it, else None."""
    waiting: list[tuple[tuple[str, ...] | None, object]] = [((), root)]
    for path, position in waiting:  # grows meanwhile
        if not isinstance(position, dict):
            continue
        yield path, position
        for keyword, value in position.items():
            if isinstance(value, dict) and keyword in _NAMED_SCHEMAS:
                plain = path if keyword == "properties" else None
                waiting += [
                    (None if plain is None else (*plain, name), each)
                    for name, each in value.items()
                ]
            elif isinstance(value, list) and keyword in _LISTS_OF_SCHEMAS:
                waiting += [(None, each) for each in value]
            elif keyword in _ONE_SCHEMA:
                waiting.append((None, value))


def param_headers(declared: Sequence[ParamHeader], arguments: bytes) -> tuple[tuple[str, str], ...]:
    """The headers that go with a call; arguments that are absent or null have none."""
    headers: list[tuple[str, str]] = []
    for header in declared:
        raw = _value(arguments, header.path)
        text = None if raw is None else _text(raw)
        if text is not None:
            headers.append((header.name, encode_header_value(text)))
    return tuple(headers)


def check_param_headers(
    declared: Sequence[ParamHeader], arguments: bytes, headers: Iterable[tuple[str, str]]
) -> str | None:
    """What is wrong with the headers of a call, as a sentence without any value; None for nothing.

    `headers` are all that came, names in any case, repeated ones repeated. A header without its
    argument is wrong as well: something on the way may have acted on it.
    """
    if not declared:
        return None
    received: dict[str, list[str]] = {}
    for name, value in headers:
        received.setdefault(name.lower(), []).append(value)
    for header in declared:
        values = received.get(header.name.lower(), [])
        if len(values) > 1:
            return f"{header.name} is given {len(values)} times"
        raw = _value(arguments, header.path)
        text = None if raw is None else _text(raw)
        where = ".".join(header.path)
        if raw is None or text is None:
            if values:
                return f"{header.name} is given, but the argument {where!r} has no such value"
        elif not values:
            return f"{header.name} is missing, and the argument {where!r} is given"
        else:
            decoded = decode_header_value(values[0])
            if decoded is None:
                return f"{header.name} is not valid base64 of UTF-8"
            if decoded != text and not (header.type == "integer" and _is_same_number(raw, decoded)):
                return f"{header.name} differs from the argument {where!r}"
    return None


def _value(arguments: bytes, path: Sequence[str]) -> bytes | None:
    """The JSON at `path`; None where there is none, or null."""
    raw = arguments
    for name in path:
        if raw[:1] != b"{":
            return None
        try:
            raw = bytes(parse_object(raw).get(name, b""))
        except MalformedMessage:
            return None
    return None if raw in (b"", b"null") else raw


def _text(raw: bytes) -> str | None:
    """A JSON scalar as header text; None for what no header can carry."""
    first = raw[:1]
    if first == b'"':
        return parse_string(raw)
    if first in b"{[":
        return None
    text = raw.decode()
    if text in ("true", "false"):
        return text
    if len(text) > _MAX_DIGITS:
        return None
    if _JSON_INTEGER.match(text):
        return "0" if text == "-0" else text
    return repr(float(text))


def _is_same_number(raw: bytes, decoded: str) -> bool:
    """`42`, `42.0` and `4.2e1` are one number, of any size; text and truth values are none."""
    if raw[:1] not in b"-0123456789" or not _DECIMAL.match(decoded):
        return False
    try:
        return Decimal(raw.decode()) == Decimal(decoded)
    except InvalidOperation:
        return False
