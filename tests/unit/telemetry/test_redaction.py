from __future__ import annotations

import base64
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.telemetry.redaction import MAX_ITEMS, REDACTED, Redactor

CANARY = "c4n4ry-V4lue"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {CANARY}",
        f"authorization: Basic {CANARY}==",
        f"bearer {CANARY}",
        f"{{'Authorization': 'Bearer {CANARY}'}}",
        f'{{"cookie": "sid={CANARY}; theme=dark"}}',
        f"Set-Cookie: a=b; session={CANARY}",
        f"GET /mcp?api_key={CANARY}&x=1",
        f"GET /mcp?x=1&access_token={CANARY}",
        f'{{"apiKey": "{CANARY}"}}',
        f'"{{\\"api_key\\": \\"{CANARY}\\"}}"',
        f"x-api-key: {CANARY}",
        f"Mcp-Session-Id: {CANARY}",
        f"X-Mcpgroup-Admin-Token: {CANARY}",
        f"client_secret={CANARY}",
        f"PASSWORD={CANARY}",
        f"server --api-key {CANARY} --port 80",
        f"server --token={CANARY}",
        f"https://user:{CANARY}@host:8443/mcp failed",
        f"https://{CANARY}@host/mcp",
        f"postgres://u:p%40{CANARY}@db/x",
        f"key sk-{CANARY}",
        "token eyJhbGciOiJIUzI1NiJ9.c4n4ry-V4lue.c4n4ry-V4lue",
        f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{CANARY}",
    ],
)
def test_a_secret_in_a_text_is_hidden_by_its_pattern(text: str) -> None:
    hidden = Redactor().text(text)
    assert CANARY not in hidden
    assert REDACTED in hidden


@pytest.mark.parametrize(
    "text",
    [
        "connection refused by 127.0.0.1:8080",
        "http://host:8080/mcp answered 502",
        "basic functionality is broken",
        "mail me@example.com about https://example.com/path",
        "3 tokens left",
        "Unexpected token < in JSON at position 0",
        "tool 'get_current_time' failed: Unknown timezone Europe/Nowhere",
    ],
)
def test_an_ordinary_text_stays_readable(text: str) -> None:
    redactor = Redactor()
    redactor.register("another-secret")
    assert redactor.text(text) == text


def test_the_rest_of_a_text_around_a_secret_stays() -> None:
    text = Redactor().text("GET https://u:p4ss@host/mcp?api_key=abc123&tool=x -> 401")
    assert text == f"GET https://{REDACTED}@host/mcp?api_key={REDACTED}&tool=x -> 401"


@pytest.mark.parametrize(
    "key",
    [
        *("Authorization", "proxy-authorization", "COOKIE", "access_token", "clientSecret"),
        *("password", "db.passwd", "API-Key", "apikey", "Mcp-Session-Id", "session_id", "auth"),
        *("aws_secret_access_key", "privateKey", "passphrase", "credentials"),
    ],
)
def test_a_value_is_hidden_by_its_key_at_any_depth(key: str) -> None:
    value = Redactor().value({"a": [{"b": {key: {"deep": CANARY}, "plain": 1}}]})
    assert value == {"a": [{"b": {key: REDACTED, "plain": 1}}]}


def test_counts_of_tokens_and_absent_values_stay() -> None:
    value = {"maxTokens": 100, "progressToken": 7, "password": None, "useCookies": True}
    assert Redactor().value(value) == value


def test_a_number_can_be_a_password() -> None:
    assert Redactor().value({"password": 123456}) == {"password": REDACTED}


def test_a_deep_or_wide_value_is_bounded() -> None:
    deep: object = CANARY
    for _ in range(1000):
        deep = [deep]
    assert CANARY not in json.dumps(Redactor().value(deep))
    wide = Redactor().value(list(range(100_000)))
    assert isinstance(wide, list)
    assert len(wide) <= MAX_ITEMS + 1
    long = Redactor().value("x" * 1_000_000)
    assert isinstance(long, str)
    assert len(long) < 3000


secrets = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Z"]), min_size=12, max_size=60
)


@given(secrets, st.binary(max_size=5), st.binary(max_size=5))
def test_a_known_value_is_hidden_in_every_encoding(
    secret: str, before: bytes, after: bytes
) -> None:
    redactor = Redactor()
    redactor.register(secret)
    raw = secret.encode()
    assert secret not in redactor.text(f"x {secret} y")
    assert raw.hex() not in redactor.text(raw.hex())
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(raw).decode()
        assert text not in redactor.text(f"key {text} end")
        embedded = encode(before + raw + after).decode()
        hidden = redactor.text(embedded)
        assert REDACTED in hidden
    assert json.dumps(secret) not in redactor.text(json.dumps({"x": secret}))


def test_the_token_behind_the_scheme_of_a_header_is_hidden_alone_too() -> None:
    redactor = Redactor()
    redactor.register("Bearer violet-harbour-83")
    encoded = base64.b64encode(b"me:violet-harbour-83").decode()
    for text in ("you sent violet-harbour-83", f"basic {encoded}", "Bearer violet-harbour-83"):
        hidden = redactor.text(text)
        assert "violet" not in hidden
        assert encoded[8:20] not in hidden


def test_each_line_of_a_key_file_is_hidden() -> None:
    redactor = Redactor()
    redactor.register(
        "-----BEGIN KEY-----\nAAAAfirstlineAAAA\nBBBBsecondlineBB\n-----END KEY-----\n"
    )
    assert redactor.text("got BBBBsecondlineBB") == f"got {REDACTED}"
    assert redactor.text("-----BEGIN CERTIFICATE-----") == "-----BEGIN CERTIFICATE-----"


def test_the_longer_of_two_secrets_leaves_no_rest() -> None:
    redactor = Redactor()
    redactor.register("abcdef")
    redactor.register("abcdefghijkl")
    assert redactor.text("abcdefghijkl") == REDACTED


def test_a_short_value_is_not_searched_for() -> None:
    redactor = Redactor()
    redactor.register("a")
    redactor.register("")
    assert redactor.text("a banana") == "a banana"


def test_old_secrets_are_forgotten_after_a_thousand_new_ones() -> None:
    redactor = Redactor()
    for n in range(1001):
        redactor.register(f"secret-number-{n:05d}")
    assert redactor.text("secret-number-00000") != REDACTED
    assert redactor.text("secret-number-01000") == REDACTED


@pytest.mark.parametrize(
    "text",
    [
        "a" * 65_536,
        "token" * 13_000,
        "://" * 20_000,
        "eyJ." * 16_000,
        "authorization" * 5000,
        "-----BEGIN PRIVATE KEY" * 3000,
    ],
)
def test_no_text_takes_long(text: str) -> None:
    began = time.process_time()
    Redactor().text(text)
    assert time.process_time() - began < 1.0


def test_a_secret_that_is_in_use_is_not_forgotten_for_new_ones() -> None:
    redactor = Redactor()
    redactor.register("the-secret-in-use")
    for n in range(1500):
        redactor.register(f"secret-number-{n:05d}")
        redactor.register("the-secret-in-use")
    assert redactor.text("the-secret-in-use") == REDACTED
