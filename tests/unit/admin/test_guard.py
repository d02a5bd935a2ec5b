from __future__ import annotations

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from mcpgroup_gateway.admin.guard import is_loopback_host, presents_token


def headers(own: str | None = None, **values: str) -> CIMultiDictProxy[str]:
    if own is not None:
        values["X-Mcpgroup-Admin-Token"] = own
    return CIMultiDictProxy(CIMultiDict(values))


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:9090",
        "127.0.0.1",
        "127.0.0.1:9090",
        "127.8.7.6:1",
        "[::1]",
        "[::1]:9090",
    ],
)
def test_the_names_of_this_machine_are_loopback(host: str) -> None:
    assert is_loopback_host(host)


@pytest.mark.parametrize(
    "host",
    [
        *(None, "", "evil.example", "evil.example:9090", "localhost.evil.example", "127.0.0.1.nip"),
        *("[::1", "[::2]", "10.0.0.1:9090", "evil@localhost", "::1"),
        *("127.1", "[127.0.0.1]", "0127.0.0.1"),
    ],
)
def test_other_names_are_not_even_when_they_resolve_to_this_machine(host: str | None) -> None:
    assert not is_loopback_host(host)


def test_the_token_is_taken_as_bearer_or_in_its_own_header() -> None:
    assert presents_token(headers(Authorization="Bearer s3cret"), "s3cret")
    assert presents_token(headers(authorization="bearer s3cret"), "s3cret")
    assert presents_token(headers(own="s3cret"), "s3cret")


def test_anything_else_is_not_the_token() -> None:
    assert not presents_token(headers(), "s3cret")
    assert not presents_token(headers(Authorization="s3cret"), "s3cret")
    assert not presents_token(headers(Authorization="Basic s3cret"), "s3cret")
    assert not presents_token(headers(Authorization="Bearer "), "s3cret")
    assert not presents_token(headers(Authorization="Bearer s3cre"), "s3cret")
    assert not presents_token(headers(Authorization="Bearer s3cret2"), "s3cret")
    assert not presents_token(headers(own="ü\udcff"), "s3cret")


def test_a_wrong_header_of_its_own_is_not_saved_by_a_right_bearer() -> None:
    both = headers(own="wrong", Authorization="Bearer s3cret")
    assert not presents_token(both, "s3cret")
