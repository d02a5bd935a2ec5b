"""What the regular expressions of the API let through can be used by those who read it."""

import re
from ipaddress import ip_network
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_api import PATTERNS, Resources
from mcpgroup_api.patterns import CIDR, QUANTITY, URL
from mcpgroup_api.pod_rules import amount


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_says_the_same_to_every_engine(pattern: str) -> None:
    """Anchored, and without what Go or Rust lack or read in their own way."""
    assert pattern.startswith("^")
    assert pattern.endswith("$")
    assert not re.search(r"\(\?|\\[bBdDsSwWpPAzZ1-9]|\[\[:", pattern)
    re.compile(pattern)


@given(st.from_regex(URL, fullmatch=True))
def test_a_url_has_a_host_and_perhaps_a_port(url: str) -> None:
    parts = urlsplit(url)

    assert parts.scheme in ("http", "https")
    assert parts.hostname
    assert parts.port is None or 0 <= parts.port <= 65535
    assert not parts.username
    assert not parts.fragment


@given(st.from_regex(CIDR, fullmatch=True))
def test_a_range_of_addresses_is_one(cidr: str) -> None:
    assert ip_network(cidr, strict=False).prefixlen <= 128


@given(st.from_regex(QUANTITY, fullmatch=True))
def test_a_quantity_is_a_number(quantity: str) -> None:
    assert amount(quantity) >= 0


@pytest.mark.parametrize(
    ("quantity", "number"),
    [("250m", "0.25"), ("1Ki", "1024"), ("1.5Gi", "1610612736"), ("1E", "1e18"), ("2e-3", "0.002")],
)
def test_quantities_are_read_as_kubernetes_reads_them(quantity: str, number: str) -> None:
    assert amount(quantity) == amount(number)


def test_a_number_is_a_quantity_too() -> None:
    assert Resources.model_validate({"limits": {"cpu": 2}}).limits == {"cpu": "2"}
