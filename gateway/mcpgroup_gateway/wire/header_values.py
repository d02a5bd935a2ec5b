"""Any text as the value of an HTTP header.

Source: MCP 2026-07-28, streamable HTTP, value encoding: text that a header cannot carry as it is
becomes `=?base64?<base64 of its UTF-8>?=`; so does text that looks like that already.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

_OPENING: Final = "=?base64?"
_CLOSING: Final = "?="
_VISIBLE = re.compile(r"[\x20-\x7e]*\Z")


def encode_header_value(text: str) -> str:
    """The value to send. Raises `UnicodeEncodeError` for half a surrogate pair."""
    if _VISIBLE.match(text) and text == text.strip(" ") and _payload(text) is None:
        return text
    return f"{_OPENING}{base64.b64encode(text.encode()).decode()}{_CLOSING}"


def decode_header_value(value: str) -> str | None:
    """The text that a value stands for; None for encoded text that is malformed.

    Only the canonical spelling of base64 is taken: two readers must not differ in what they see.
    """
    payload = _payload(value)
    if payload is None:
        return value
    try:
        decoded = base64.b64decode(payload, validate=True)
        if base64.b64encode(decoded).decode() != payload:
            return None
        return decoded.decode()
    except (binascii.Error, ValueError):
        return None


def _payload(value: str) -> str | None:
    """What stands between the markers, None without them."""
    if not value.startswith(_OPENING) or not value.endswith(_CLOSING):
        return None
    if len(value) < len(_OPENING) + len(_CLOSING):
        return None
    return value[len(_OPENING) : -len(_CLOSING)]
