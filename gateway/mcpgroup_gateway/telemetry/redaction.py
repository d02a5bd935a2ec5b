"""Keeps secrets out of logs, events and status: by key, by pattern, and by known value.

Session ids count as secrets (MCP security best practices). Redaction errs on the side of hiding.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Final
from urllib.parse import quote

REDACTED: Final = "[redacted]"

#: Shorter values are not searched for: they would make every text unreadable.
MIN_SECRET_CHARACTERS: Final = 6
#: A base64 fragment or a line of a longer secret must have so many characters to be searched for.
MIN_FRAGMENT_CHARACTERS: Final = 10
#: Known values kept; the oldest go first. Secrets rotate, and what was secret stays so for a while.
MAX_SECRETS: Final = 1000

MAX_DEPTH: Final = 8
MAX_ITEMS: Final = 1000
MAX_TEXT_CHARACTERS: Final = 64 * 1024
MAX_VALUE_CHARACTERS: Final = 2000

_SENSITIVE_KEY: Final = re.compile(
    "authorization|cookie|token|secret|passw|passphrase|apikey|accesskey|privatekey|signingkey"
    "|sessionid|credential|bearer|^auth$|^pwd$|^pin$|^otp$|^jwt$"
)
#: Counts of tokens, and MCP's own progress token, are no secrets.
_HARMLESS_KEY: Final = re.compile("progresstoken|tokens$")
_NOT_IN_KEY: Final = re.compile("[^a-z0-9]")

#: Every pattern below needs one of these, in lower case: a quick search that most texts fail.
_TRIGGER: Final = re.compile(
    "bearer|basic |authorization|cookie|token|secret|passw|passphrase|api[ _-]?key"
    "|access[_-]?key|private[ _-]?key|session[_-]?id|credential"
    "|sk-|gh[pousr]_|github_pat_|glpat-|xox|a[ks]ia|aiza|://|eyj"
)
_NAMES: Final = (
    r"(?:token|secret|passw(?:or)?d|passphrase|api[ _-]?key|access[_-]?key|private[_-]?key"
    r"|session[_-]?id|credentials?)"
)
_PATTERNS: Final = (
    # A header's whole value: schemes and cookies hold spaces.
    (
        re.compile(
            r"(?i)((?:authorization|cookie)\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?)[^\"'\r\n\\]+"
        ),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"(?i)\b(bearer)\s{1,3}[^\s\"',;\\]+"), rf"\1 {REDACTED}"),
    (re.compile(r"\b((?i:basic))\s{1,3}(?=\S{0,80}[A-Z0-9=])[\w+/=-]{8,}"), rf"\1 {REDACTED}"),
    # api_key=…, "token": "…", --password …
    (
        re.compile(
            rf"(?i)({_NAMES}[\w-]{{0,30}}\\?[\"']?\s{{0,3}}[:=]\s{{0,3}}\\?[\"']?)"
            r"(?!\[redacted\])[^\s\"'&,;}\\]+"
        ),
        rf"\1{REDACTED}",
    ),
    (re.compile(rf"(?i)(--[\w-]{{0,30}}{_NAMES}\s{{1,3}})[^\s\"',;]+"), rf"\1{REDACTED}"),
    # user:password@ in a URL
    (re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{1,20}://)[^\s/?#\"'<>]+@"), rf"\1{REDACTED}@"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"), REDACTED),
    (
        re.compile(
            r"\b(?:sk-[\w-]{8,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{12,}"
            r"|xox[abeprs]-[\w-]{8,}|A[KS]IA[0-9A-Z]{12,}|AIza[\w-]{20,})"
        ),
        REDACTED,
    ),
    (
        re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END|\Z)", re.DOTALL),
        REDACTED,
    ),
)


class Redactor:
    """Hides secrets in texts and in JSON values. Known values are added with `register`."""

    def __init__(self) -> None:
        self._forms: dict[str, tuple[str, ...]] = {}
        self._known: re.Pattern[str] | None = None

    def register(self, value: str) -> None:
        """Hide this value wherever it appears, also encoded as base64, hex, URL or JSON text.

        Values of fewer than six characters are not taken.
        """
        value = value.strip()
        if len(value) < MIN_SECRET_CHARACTERS:
            return
        if value in self._forms:
            self._forms[value] = self._forms.pop(value)  # still in use: not the next to go
            return
        forms = set(_forms_of(value))
        # Of `Bearer <token>` a member may repeat the token alone.
        scheme, _, credentials = value.partition(" ")
        credentials = credentials.strip()
        if scheme.isalpha() and len(credentials) >= MIN_SECRET_CHARACTERS:
            forms.update(_forms_of(credentials))
        self._forms[value] = tuple(forms)
        while len(self._forms) > MAX_SECRETS:
            del self._forms[next(iter(self._forms))]
        self._known = None

    def text(self, text: str) -> str:
        """The text with every secret in it replaced; over 64 Ki characters it is cut."""
        if len(text) > MAX_TEXT_CHARACTERS:
            text = text[:MAX_TEXT_CHARACTERS] + "…"
        if self._forms:
            self._known = self._known or self._compile()
            text = self._known.sub(REDACTED, text)
        if _TRIGGER.search(text.lower()):
            for pattern, replacement in _PATTERNS:
                text = pattern.sub(replacement, text)
        return text

    def _compile(self) -> re.Pattern[str]:
        every = {form for forms in self._forms.values() for form in forms}
        longest_first = sorted(every, key=len, reverse=True)
        return re.compile("|".join(re.escape(form) for form in longest_first))

    def value(self, value: object) -> object:
        """A copy of a JSON value without its secrets.

        It is bounded: eight levels, 1000 items in all, 2000 characters a string.
        """
        return _Walk(self).visit(value, 0)


class _Walk:
    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._left = MAX_ITEMS

    def visit(self, value: object, depth: int) -> object:
        self._left -= 1
        if isinstance(value, str):
            text = self._redactor.text(value)
            return text if len(text) <= MAX_VALUE_CHARACTERS else text[:MAX_VALUE_CHARACTERS] + "…"
        if not isinstance(value, dict | list | tuple):
            return value
        if depth >= MAX_DEPTH:
            return "…"
        if isinstance(value, dict):
            copy: dict[str, object] = {}
            for key, item in value.items():
                if self._left <= 0:
                    copy["…"] = "…"
                    break
                name = str(self.visit(str(key), depth))
                hidden = _is_sensitive(str(key), item)
                copy[name] = REDACTED if hidden else self.visit(item, depth + 1)
            return copy
        items: list[object] = []
        for item in value:
            if self._left <= 0:
                items.append("…")
                break
            items.append(self.visit(item, depth + 1))
        return items


def _is_sensitive(key: str, value: object) -> bool:
    if value is None or isinstance(value, bool):
        return False
    word = _NOT_IN_KEY.sub("", key.lower())
    if _SENSITIVE_KEY.search(word) is None:
        return False
    return not (isinstance(value, int | float) and _HARMLESS_KEY.search(word))


def _forms_of(value: str) -> tuple[str, ...]:
    """The value as it may appear in a text."""
    raw = value.encode("utf-8", "surrogatepass")
    forms = {value, quote(value, safe=""), raw.hex(), raw.hex().upper(), json.dumps(value)[1:-1]}
    # Inside a longer base64 text (`user:password`) a value can start at three offsets. The
    # characters at both edges also depend on the neighbours and are left out.
    for offset in range(3):
        padded = base64.b64encode(b"\0" * offset + raw)
        start = (0, 2, 3)[offset]
        end = (len(raw) + offset) * 8 // 6
        fragment = padded[start:end].decode()
        if len(fragment) >= MIN_FRAGMENT_CHARACTERS:
            forms |= {fragment, fragment.replace("+", "-").replace("/", "_")}
    # Members write to stderr line by line, and a key file has many lines.
    forms |= {
        line.strip()
        for line in value.splitlines()
        if len(line.strip()) >= MIN_FRAGMENT_CHARACTERS and "-----" not in line
    }
    return tuple(forms)
