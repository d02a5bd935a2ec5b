"""`requestState` opens only for the caller, the request and the time that it was made for."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.core.request_state import (
    InvalidState,
    RequestState,
    StateSealer,
    digest_of,
)

SEALER = StateSealer("search", [b"k" * 32])
STATE = RequestState("a", state="theirs", pending=None)


def sealed(**changes: object) -> str:
    given_: dict[str, object] = {"caller": "t", "request": "r", "expires": 100.0, **changes}
    return SEALER.seal(STATE, **given_)  # type: ignore[arg-type]


@given(
    member=st.text(),
    state=st.none() | st.text(),
    pending=st.none() | st.text(),
    caller=st.text(),
    request=st.text(),
)
def test_what_was_sealed_is_opened_unchanged(
    member: str, state: str | None, pending: str | None, caller: str, request: str
) -> None:
    whole = RequestState(member, state, pending)
    token = SEALER.seal(whole, caller=caller, request=request, expires=10)
    assert SEALER.open(token, caller=caller, request=request, now=10) == whole


def test_another_caller_is_refused() -> None:
    with pytest.raises(InvalidState, match="not one that was given to this caller"):
        SEALER.open(sealed(), caller="u", request="r", now=1)


def test_another_request_is_refused() -> None:
    with pytest.raises(InvalidState, match="another request"):
        SEALER.open(sealed(), caller="t", request="q", now=1)


def test_another_group_is_refused() -> None:
    other = StateSealer("other", [b"k" * 32])
    with pytest.raises(InvalidState):
        other.open(sealed(), caller="t", request="r", now=1)


def test_after_its_time_it_is_refused() -> None:
    with pytest.raises(InvalidState, match="expired"):
        SEALER.open(sealed(), caller="t", request="r", now=101)


@given(st.text() | st.binary().map(lambda raw: base64.urlsafe_b64encode(raw).decode() + ".AA"))
def test_what_we_did_not_make_is_refused(token: str) -> None:
    with pytest.raises(InvalidState):
        SEALER.open(token, caller="t", request="r", now=1)


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=127))
def test_one_changed_character_is_refused(place: int, change: int) -> None:
    token = sealed()
    place %= len(token)
    changed = token[:place] + chr(ord(token[place]) ^ change) + token[place + 1 :]
    with pytest.raises(InvalidState):
        SEALER.open(changed, caller="t", request="r", now=1)


def test_an_older_key_still_opens_while_both_are_valid() -> None:
    token = sealed()
    rotated = StateSealer("search", [b"n" * 32, b"k" * 32])
    assert rotated.open(token, caller="t", request="r", now=1) == STATE
    with pytest.raises(InvalidState):
        StateSealer("search", [b"n" * 32]).open(token, caller="t", request="r", now=1)


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_the_digest_sees_the_value_and_not_its_spelling(arguments: dict[str, object]) -> None:
    compact = json.dumps(arguments, separators=(",", ":")).encode()
    reversed_ = json.dumps(dict(reversed(arguments.items())), indent=1).encode()
    assert digest_of("tools", "a", compact) == digest_of("tools", "a", reversed_)
    assert digest_of("tools", "a", compact) != digest_of("tools", "b", compact)


def test_a_part_of_a_second_is_not_taken_from_its_time() -> None:
    SEALER.open(sealed(expires=10.9), caller="t", request="r", now=10.8)
