"""Headers, judged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.front.checks import (
    Accepts,
    AccessPolicy,
    is_json,
    is_loopback,
    is_text,
    negotiate,
    read_accept,
    split_host,
)

LOOPBACK = AccessPolicy(loopback=True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", Accepts(json=True, events=True, names_events=False)),
        ("*/*", Accepts(json=True, events=True, names_events=False)),
        ("*", Accepts(json=True, events=True, names_events=False)),
        ("application/json", Accepts(json=True, events=False, names_events=False)),
        ("text/*;q=0.1", Accepts(json=False, events=True, names_events=False)),
        ("application/json,text/event-stream", Accepts(json=True, events=True, names_events=True)),
        (
            "*/*, text/event-stream ; q=0.000",
            Accepts(json=True, events=False, names_events=False),
        ),
        (
            "*/*;q=0, text/EVENT-stream;x=1; Q=1",
            Accepts(json=False, events=True, names_events=True),
        ),
        ("text/event-stream;q=banana", Accepts(json=False, events=True, names_events=True)),
        (",,;,", Accepts(json=False, events=False, names_events=False)),
    ],
)
def test_the_most_specific_range_of_accept_decides(value: str, expected: Accepts) -> None:
    assert read_accept(value) == expected


@given(st.text(max_size=400))
def test_no_header_makes_a_check_fail(value: str) -> None:
    assert isinstance(read_accept(value), Accepts)
    assert is_json(value) in (True, False)
    assert LOOPBACK.allows_host(value) in (True, False)
    assert LOOPBACK.allows_origin(value) in (True, False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("localhost", ("localhost", "")),
        ("LocalHost.:80", ("localhost", "80")),
        ("[::1]:8080", ("::1", "8080")),
        ("[::1]", ("::1", "")),
        ("", None),
        (":80", None),
        ("a:b", None),
        ("[::1", None),
        ("[::1]x", None),
        ("a:٣", None),
    ],
)
def test_a_host_is_split_into_name_and_port(value: str, expected: tuple[str, str] | None) -> None:
    assert split_host(value) == expected


@pytest.mark.parametrize(
    ("name", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.8.7", True),
        ("::1", True),
        ("::ffff:127.0.0.1", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("128.0.0.1", False),
        ("2130706433", False),
    ],
)
def test_loopback_names_are_few(name: str, loopback: bool) -> None:
    assert is_loopback(name) == loopback


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost:6274", True),
        ("https://127.0.0.1", True),
        ("http://[::1]:1", True),
        ("null", False),
        ("http://evil.example", False),
        ("http://localhost.evil.example", False),
        ("http://localhost@evil.example", False),
        ("http://localhost:99999", False),
        ("file://localhost", False),
        ("http://localhost/x", False),
    ],
)
def test_bound_to_loopback_an_origin_must_be_loopback(origin: str, allowed: bool) -> None:
    assert LOOPBACK.allows_origin(origin) == allowed


def test_elsewhere_any_host_is_fine_and_no_origin_is() -> None:
    policy = AccessPolicy(loopback=False)
    assert policy.allows_host("whatever.example:1")
    assert not policy.allows_origin("http://localhost")


def test_lists_say_more() -> None:
    policy = AccessPolicy(
        loopback=False,
        hosts=["mcp.example", "other.example:8443"],
        origins=["https://App.example", "http://dev.example:3000"],
    )
    assert policy.allows_host("MCP.example:1234")
    assert policy.allows_host("other.example:8443")
    assert not policy.allows_host("other.example")
    assert not policy.allows_host("localhost")
    assert policy.allows_origin("https://app.example:443")
    assert policy.allows_origin("http://dev.example:3000")
    assert not policy.allows_origin("http://dev.example")
    assert not policy.allows_origin("http://app.example")


def test_a_list_of_hosts_that_are_none_does_not_allow_all() -> None:
    assert not AccessPolicy(loopback=False, hosts=[":"]).allows_host("evil.example")


def test_versions_are_negotiated_down_to_nothing_older_than_2025_03_26() -> None:
    assert negotiate("2025-03-26") == "2025-03-26"
    assert negotiate("2024-11-05") == negotiate("2026-07-28") == "2025-11-25"


def test_header_bytes_that_are_no_text_are_seen() -> None:
    assert is_text("é")
    assert not is_text(b"\xff".decode("utf-8", "surrogateescape"))
