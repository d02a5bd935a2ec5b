"""JSON whose values keep their spelling: what was sent is what comes back, digit by digit."""

from __future__ import annotations

import json
import re

# Numbers stay strings: Python refuses integers of more than 4300 digits.
_decoder = json.JSONDecoder(parse_int=str, parse_float=str)
_SPACE = re.compile(r"[ \t\r\n]*")


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def members(text: str) -> dict[str, str]:
    """The members of a JSON object with the text of their values. Raises `ValueError`."""
    json.loads(text, parse_int=str, parse_float=str)
    found: dict[str, str] = {}
    at = _skip(text, 0)
    if text[at] != "{":
        raise ValueError("not an object")
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = _decoder.raw_decode(text, at)
        begin = _skip(text, _skip(text, at) + 1)  # past the colon
        _, end = _decoder.raw_decode(text, begin)
        found[key] = text[begin:end]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def splice(**texts: str) -> str:
    """A JSON object of values that are JSON text already."""
    return "{" + ",".join(f'"{key}":{text}' for key, text in texts.items()) + "}"


def dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
