"""Arguments that are repeated in headers: what a schema declares, what is sent, what is checked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound

from mcpgroup_gateway.wire.param_headers import (
    ParamHeader,
    check_param_headers,
    param_headers,
    read_param_headers,
)

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "nested": {
            "type": "object",
            "properties": {"on": {"type": "boolean", "x-mcp-header": "X-On"}},
        },
        "plain": {"type": "string"},
    },
}
DECLARED = (
    ParamHeader(("region",), "Region", "string"),
    ParamHeader(("count",), "Count", "integer"),
    ParamHeader(("nested", "on"), "X-On", "boolean"),
)


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def schema(**properties: Any) -> bytes:
    return encoded({"type": "object", "properties": properties})


def check(arguments: object, *headers: tuple[str, str]) -> str | None:
    raw = arguments if isinstance(arguments, bytes) else encoded(arguments)
    return check_param_headers(DECLARED, raw, headers)


# -- what a schema declares --------------------------------------------------------------


def test_properties_declare_headers_at_any_depth() -> None:
    assert read_param_headers(encoded(SCHEMA)) == DECLARED


def test_an_annotation_may_be_spelled_with_escapes() -> None:
    raw = rb'{"properties":{"a":{"type":"string","x\u002dmcp-header":"A"}}}'
    assert read_param_headers(raw) == (ParamHeader(("a",), "A", "string"),)


@pytest.mark.parametrize(
    "raw",
    [
        schema(a={"type": "string"}),
        schema(a={"type": "object", "default": {"x-mcp-header": 7}}),
        schema(a={"enum": [{"x-mcp-header": ""}], "const": {"x-mcp-header": ""}}),
        encoded({"type": "object", "examples": [{"x-mcp-header": 1}]}),
        encoded({"$ref": "#/x-mcp-header"}),
    ],
)
def test_data_within_a_schema_declares_nothing(raw: bytes) -> None:
    assert read_param_headers(raw) == ()


@pytest.mark.parametrize(
    "raw",
    [
        encoded({"type": "string", "x-mcp-header": "A"}),
        schema(a={"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}),
        schema(a={"type": "array", "prefixItems": [{"type": "string", "x-mcp-header": "A"}]}),
        schema(a={"anyOf": [{"type": "string", "x-mcp-header": "A"}]}),
        encoded({"$defs": {"a": {"type": "string", "x-mcp-header": "A"}}}),
        encoded({"if": {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}}),
        encoded({"patternProperties": {"a": {"type": "string", "x-mcp-header": "A"}}}),
        schema(a={"type": "number", "x-mcp-header": "A"}),
        schema(a={"type": "object", "x-mcp-header": "A"}),
        schema(a={"type": ["string", "null"], "x-mcp-header": "A"}),
        schema(a={"x-mcp-header": "A"}),
        schema(a={"type": "string", "x-mcp-header": ""}),
        schema(a={"type": "string", "x-mcp-header": "A B"}),
        schema(a={"type": "string", "x-mcp-header": "A:B"}),
        schema(a={"type": "string", "x-mcp-header": "Ä"}),
        schema(a={"type": "string", "x-mcp-header": "A\n"}),
        schema(a={"type": "string", "x-mcp-header": 7}),
        schema(a={"type": "string", "x-mcp-header": None}),
        schema(
            a={"type": "string", "x-mcp-header": "Same"},
            b={"type": "string", "x-mcp-header": "sAME"},
        ),
    ],
)
def test_an_invalid_annotation_is_refused_here_and_elsewhere(raw: bytes) -> None:
    with pytest.raises(ValueError, match="x-mcp-header"):
        read_param_headers(raw)
    assert inbound.find_invalid_x_mcp_header(json.loads(raw)) is not None


def test_a_schema_nested_beyond_reason_ends_in_an_error_and_not_in_a_crash() -> None:
    raw = b'{"properties":' * 100_000 + b'"x-mcp-header"' + b"}" * 100_000
    with pytest.raises((ValueError, RecursionError)):
        read_param_headers(raw)


# -- what a client sends -----------------------------------------------------------------


def test_a_client_repeats_what_is_there() -> None:
    arguments = encoded({"region": "eu west", "count": 7, "nested": {"on": False}, "plain": "x"})
    assert param_headers(DECLARED, arguments) == (
        ("Mcp-Param-Region", "eu west"),
        ("Mcp-Param-Count", "7"),
        ("Mcp-Param-X-On", "false"),
    )


@pytest.mark.parametrize(
    "arguments",
    [
        b"",
        b"{}",
        b"[]",
        b'{"region":null,"count":{},"nested":7}',
        b'{"region":[1],"nested":{"off":true}}',
        b'{"count":%b}' % (b"9" * 5000),
        b'{"region":"\\ud83d"}',
    ],
)
def test_what_no_header_can_carry_has_none(arguments: bytes) -> None:
    assert param_headers(DECLARED, arguments) == ()
    assert check(arguments) is None


def test_text_beyond_ascii_is_encoded() -> None:
    ((_, value),) = param_headers(DECLARED, encoded({"region": "Zürich"}))
    assert value == "=?base64?WsO8cmljaA==?="


# -- what a server checks ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "headers", "word"),
    [
        ({"region": "eu"}, [], "missing"),
        ({"region": "eu"}, [("Mcp-Param-Region", "us")], "differs"),
        ({"region": "eu"}, [("Mcp-Param-Region", "EU")], "differs"),
        ({"region": "eu"}, [("mcp-param-region", "eu"), ("Mcp-Param-Region", "eu")], "2 times"),
        ({"region": "eu"}, [("Mcp-Param-Region", "=?base64?ZX?=")], "base64"),
        ({"count": 1}, [("Mcp-Param-Count", "2")], "differs"),
        ({"count": 1}, [("Mcp-Param-Count", "1.5")], "differs"),
        ({"count": True}, [("Mcp-Param-Count", "1")], "differs"),
        ({"count": 2**53}, [("Mcp-Param-Count", str(2**53 + 1))], "differs"),
        ({"nested": {"on": True}}, [("Mcp-Param-X-On", "True")], "differs"),
        ({}, [("Mcp-Param-Region", "eu")], "no such value"),
        ({"region": None}, [("Mcp-Param-Region", "null")], "no such value"),
        ({"region": ["eu"]}, [("Mcp-Param-Region", "eu")], "no such value"),
    ],
)
def test_a_header_that_does_not_agree_is_named(
    arguments: dict[str, Any], headers: list[tuple[str, str]], word: str
) -> None:
    fault = check(arguments, *headers)
    assert fault is not None
    assert word in fault
    assert inbound.validate_mcp_param_headers(SCHEMA, arguments, Pairs(headers)) is not None


@pytest.mark.parametrize("spelling", ["42", "42.0", "042", "42.00"])
@pytest.mark.parametrize("count", [b"42", b"42.0", b"4.2e1"])
def test_integers_compare_as_numbers(spelling: str, count: bytes) -> None:
    assert check(b'{"count":%b}' % count, ("Mcp-Param-Count", spelling)) is None


def test_an_integer_beyond_a_float_compares_exactly() -> None:
    count = str(10**40 + 1)
    assert check(b'{"count":%b}' % count.encode(), ("Mcp-Param-Count", count)) is None


def test_an_absurd_exponent_costs_nothing() -> None:
    assert check(b'{"count":1e999999999999999999999}', ("Mcp-Param-Count", "7"))
    assert check(b'{"count":1e99999999}', ("Mcp-Param-Count", "9" * 5000))


def test_names_compare_without_case_and_other_headers_are_nobodys_business() -> None:
    headers = [("mcp-pARAM-region", "eu"), ("Mcp-Param-Other", "x"), ("Mcp-Param-Other", "y")]
    assert check({"region": "eu"}, *headers) is None
    assert check_param_headers((), b"{}", headers) is None


class Pairs(dict[str, str]):
    """Headers for the SDK, whose check wants a mapping but reads repeated ones from `items`."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs

    def items(self) -> Any:
        return self.pairs


SCALARS = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.integers()
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "region": SCALARS | st.lists(SCALARS),
        "count": SCALARS,
        "nested": st.fixed_dictionaries({}, optional={"on": SCALARS}) | SCALARS,
    },
)


@given(ARGUMENTS)
def test_what_we_send_passes_our_own_check_and_that_of_others(arguments: dict[str, Any]) -> None:
    headers = param_headers(DECLARED, encoded(arguments))
    assert check(arguments, *headers) is None
    assert inbound.validate_mcp_param_headers(SCHEMA, arguments, dict(headers)) is None


@given(ARGUMENTS)
def test_what_others_send_passes_our_check(arguments: dict[str, Any]) -> None:
    headers = inbound.mcp_param_headers(inbound.x_mcp_header_map(SCHEMA), arguments)
    assert check(arguments, *headers.items()) is None


@given(ARGUMENTS, ARGUMENTS)
def test_headers_of_one_call_fit_no_other(
    arguments: dict[str, Any], others: dict[str, Any]
) -> None:
    """Our verdict and that of the SDK are one."""
    headers = param_headers(DECLARED, encoded(others))
    theirs = inbound.validate_mcp_param_headers(SCHEMA, arguments, dict(headers))
    assert (check(arguments, *headers) is None) == (theirs is None)
