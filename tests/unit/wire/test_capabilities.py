"""What a client's declared capabilities allow."""

from __future__ import annotations

import pytest

from mcpgroup_gateway.wire.capabilities import canonical_capabilities, may_be_asked, opens_urls


@pytest.mark.parametrize(
    ("capabilities", "opens"),
    [
        (b"{}", False),
        (b'{"elicitation":{}}', False),
        (b'{"elicitation":{"form":{}}}', False),
        (b'{"elicitation":{"form":{},"url":{}}}', True),
        (b'{"elicitation":7}', False),
        (b"nonsense", False),
    ],
)
def test_a_url_needs_its_own_capability(capabilities: bytes, opens: bool) -> None:
    assert opens_urls(capabilities) is opens


def test_each_capability_is_for_a_method() -> None:
    assert may_be_asked(b'{"elicitation":{},"roots":{"listChanged":true},"x":{}}') == {
        "elicitation/create",
        "roots/list",
    }
    assert may_be_asked(b"nonsense") == frozenset()


def test_the_order_of_keys_makes_no_difference() -> None:
    one = canonical_capabilities(b'{"a":{},"b":{"x":1,"y":2}}')
    assert one == canonical_capabilities(b'{ "b":{"y":2,"x":1}, "a":{} }')
