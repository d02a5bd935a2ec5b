"""The keys of a group: made once, kept, and made anew when somebody asks."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.unit.operator.groups import SETTINGS, SPECS, group_of

from mcpgroup_operator.children.keys import build_keys_secret, current_keys

ROTATE = "mcpgroup.dev/rotate-keys"


class Tokens:
    """New ones each time, and how many were made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        return f"token-number-{self.made}-of-this-test"


def secret(live: dict[str, Any] | None, tokens: Tokens, rotate: str | None = None) -> Any:
    """The Secret for a group with this annotation when `live` is there."""
    annotations = None if rotate is None else {ROTATE: rotate}
    group = group_of(SPECS["smallest"], annotations=annotations)
    return build_keys_secret(group, SETTINGS, current_keys(group, live, tokens))


def token_in(manifest: Any) -> str:
    return base64.b64decode(manifest["data"]["admin-token"]).decode()


def test_a_token_is_made_once_and_kept() -> None:
    tokens = Tokens()
    first = secret(None, tokens)
    assert token_in(first) == "token-number-1-of-this-test"
    assert secret(first, tokens) == first
    assert tokens.made == 1


def test_another_text_in_the_annotation_makes_a_new_token_once() -> None:
    tokens = Tokens()
    first = secret(None, tokens)
    rotated = secret(first, tokens, rotate="monday")
    assert token_in(rotated) != token_in(first)
    assert secret(rotated, tokens, rotate="monday") == rotated
    again = secret(rotated, tokens, rotate="tuesday")
    assert token_in(again) != token_in(rotated)
    assert tokens.made == 3


def test_taking_the_annotation_away_makes_no_new_token_nor_does_setting_it_back() -> None:
    tokens = Tokens()
    rotated = secret(secret(None, tokens), tokens, rotate="monday")
    without = secret(rotated, tokens)
    assert without == rotated
    assert secret(without, tokens, rotate="monday") == rotated


def test_a_first_secret_of_a_group_that_was_rotated_before_has_one_token() -> None:
    tokens = Tokens()
    first = secret(None, tokens, rotate="monday")
    assert secret(first, tokens, rotate="monday") == first
    assert tokens.made == 1


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"admin-token": ""},
        {"admin-token": "!"},
        {"admin-token": base64.b64encode(b"short").decode()},
        {"admin-token": base64.b64encode(b"long enough but with spaces").decode()},
        {"admin-token": base64.b64encode(b"long-enough-and-then\nanother-line").decode()},
        {"admin-token": base64.b64encode(b"\xff" * 32).decode()},
    ],
)
def test_a_token_that_is_no_protection_is_replaced(data: dict[str, str] | None) -> None:
    tokens = Tokens()
    live = {**secret(None, tokens), "data": data}
    assert token_in(secret(live, tokens)) == "token-number-2-of-this-test"


def test_what_others_keep_in_the_secret_is_not_asked_for() -> None:
    tokens = Tokens()
    first = secret(None, tokens)
    live = {**first, "data": {**first["data"], "of-others": "eA=="}}
    assert secret(live, tokens) == first
