"""Text as the value of a header, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound

from mcpgroup_gateway.wire.header_values import decode_header_value, encode_header_value

TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["=?base64?=", "=?base64?eA==?=", "=?base64??=", " x", "x ", "\t", "=?BASE64?eA==?="]
)


@given(TEXT)
def test_what_is_encoded_is_decoded_to_itself(text: str) -> None:
    assert decode_header_value(encode_header_value(text)) == text


@given(TEXT)
def test_a_header_carries_what_was_encoded_as_it_is(text: str) -> None:
    value = encode_header_value(text)
    assert value.isascii()
    assert value.isprintable()
    assert value == value.strip()


@given(TEXT)
def test_other_implementations_read_ours_and_we_theirs(text: str) -> None:
    assert inbound.decode_header_value(encode_header_value(text)) == text
    assert decode_header_value(inbound.encode_header_value(text)) == text


@pytest.mark.parametrize("text", ["", "weather", "a b", "~!#", "=?base64?", "?="])
def test_plain_text_stays_readable(text: str) -> None:
    assert encode_header_value(text) == text


@pytest.mark.parametrize(
    "value",
    [
        "=?base64?e?=",
        "=?base64?eA?=",
        "=?base64?eB==?=",
        "=?base64?e A==?=",
        "=?base64?-_8=?=",
        "=?base64?/w==?=",
        "=?base64?é?=",
        "=?base64?eA==\udcff?=",
    ],
)
def test_malformed_base64_stands_for_no_text(value: str) -> None:
    assert decode_header_value(value) is None


@pytest.mark.parametrize("value", ["=?BASE64?eA==?=", "=?base64?eA==", "=?base64?=", "é", "\udcff"])
def test_what_lacks_the_markers_is_taken_as_it_is(value: str) -> None:
    assert decode_header_value(value) == value


@given(st.text(max_size=200))
def test_no_value_makes_the_decoder_fail(value: str) -> None:
    for each in (value, f"=?base64?{value}?="):
        assert isinstance(decode_header_value(each), str | None)
