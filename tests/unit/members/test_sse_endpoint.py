"""What an `endpoint` event may say (MCP 2024-11-05, HTTP with SSE)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.members.http_address import Address
from mcpgroup_gateway.members.sse_endpoint import endpoint_address

STREAM = Address.parse("https://user:pass@mcp.example.com/a/sse?k=v")


@pytest.mark.parametrize(
    ("data", "target"),
    [
        (b"/messages?sessionId=1", "/messages?sessionId=1"),
        (b"messages/", "/a/messages/"),
        (b"?s=1", "/a/sse?s=1"),
        (b" /x \r", "/x"),
        (b"/x#fragment", "/x"),
        (b"https://mcp.example.com/x", "/x"),
        (b"HTTPS://MCP.example.com:443/x", "/x"),
        (b"//mcp.example.com/x", "/x"),
        (b"https://mcp.example.com", "/"),
        (b"https:///x", "/x"),
    ],
)
def test_an_endpoint_on_the_same_origin_is_taken(data: bytes, target: str) -> None:
    found = endpoint_address(STREAM, data)
    assert (found.origin, found.target) == (STREAM.origin, target)


@pytest.mark.parametrize(
    "data",
    [
        b"http://mcp.example.com/x",
        b"https://mcp.example.com:8443/x",
        b"https://example.com/x",
        b"https://mcp.example.com.evil.net/x",
        b"https://mcp.example.com@evil.net/x",
        b"//evil.net/x",
        b"https://[/x",
        b"https://mcp.example.com:port/x",
        b"ftp://mcp.example.com/x",
        b"/with space",
        "/café".encode(),
        b"\xff",
        b"",
        b"  ",
    ],
)
def test_any_other_endpoint_is_refused_in_words_of_our_own(data: bytes) -> None:
    with pytest.raises(ValueError, match="the member's endpoint event") as caught:
        endpoint_address(STREAM, data)
    assert "evil" not in str(caught.value)


def test_credentials_are_those_of_the_stream() -> None:
    found = endpoint_address(STREAM, b"https://other:word@mcp.example.com/x")
    assert found.authorization == STREAM.authorization


@given(data=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
def test_whatever_it_says_the_origin_stays(data: bytes) -> None:
    try:
        found = endpoint_address(STREAM, data)
    except ValueError:
        return
    assert (found.origin, found.authorization) == (STREAM.origin, STREAM.authorization)
