"""The id of an answer that cannot be parsed: it was too long, or is not valid JSON.

Servers write the id before the result or as the last member of the message.
"""

from __future__ import annotations

import re
from typing import Final

#: Ids of answers; a request of the member's own has a method and may have the same id.
_AT_HEAD: Final = re.compile(
    rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d+)\s*,(?!\s*"method")'
)
_AT_TAIL: Final = re.compile(rb',\s*"id"\s*:\s*(\d+)\s*\}\s*\Z')
_HEAD_BYTES: Final = 256


def answered_id(data: bytes) -> bytes | None:
    """The raw id in a message whose middle may be missing; None when none is found."""
    raw_id = id_at_head(data)
    if raw_id is None and b'"method"' not in data[:_HEAD_BYTES]:
        raw_id = id_at_tail(data[-_HEAD_BYTES:])
    return raw_id


def id_at_head(data: bytes) -> bytes | None:
    """The raw id with which an answer begins."""
    match = _AT_HEAD.match(data)
    return None if match is None else match[1]


def id_at_tail(data: bytes) -> bytes | None:
    """The raw id with which a message ends."""
    match = _AT_TAIL.search(data)
    return None if match is None else match[1]
