"""Lists in pages whose cursors any replica understands.

Entries are sorted by the name under which they are listed. A cursor says which name came last, so
it needs no state, stays valid when entries come and go between two pages, and means the same on
each replica; an order by members would tie it to one replica's view.
"""

from __future__ import annotations

import base64
import json
from bisect import bisect_right
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.entries import hash_of
from mcpgroup_gateway.wire.envelope import encode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcpgroup_gateway.wire.protocol import Kind

PAGE_ENTRIES = 1000


class BadCursor(ValueError):
    """A cursor that no gateway gave out for this list (-32602)."""


def encode_cursor(kind: Kind, last_name: str) -> str:
    payload = encode_json([kind.value, last_name])
    return base64.urlsafe_b64encode(payload).decode().rstrip("=")


def decode_cursor(kind: Kind, cursor: str) -> str:
    """The last name of the page before. Raises `BadCursor`."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        payload = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        match payload:
            case [kind.value, str(name)] if encode_cursor(kind, name) == cursor:
                return name
    except (ValueError, RecursionError) as fault:
        raise BadCursor("the cursor is not one of this server") from fault
    raise BadCursor("the cursor is not one of this list")


class Listing:
    """All entries of one kind by listed name, with the bytes of its pages at hand.

    `hash` changes exactly when a client would see another list.
    """

    def __init__(
        self, kind: Kind, entries: Mapping[str, bytes], page_entries: int = PAGE_ENTRIES
    ) -> None:
        self.kind = kind
        self.names = tuple(sorted(entries))
        self.hash = hash_of((name, entries[name]) for name in self.names)
        self.entries = entries
        self._page_entries = page_entries
        self._pages: dict[int, bytes] = {}

    def page(self, cursor: str | None = None) -> bytes:
        """The JSON of a list result, for instance `{"tools":[…],"nextCursor":"…"}`.

        Raises `BadCursor`.
        """
        start = 0
        if cursor is not None:
            start = bisect_right(self.names, decode_cursor(self.kind, cursor))
        page = self._pages.get(start)
        if page is None:
            page = self._build(start)
            # Clients choose where a page starts; only the pages that we hand out are kept.
            if start % self._page_entries == 0:
                self._pages[start] = page
        return page

    def _build(self, start: int) -> bytes:
        names = self.names[start : start + self._page_entries]
        body = b",".join(self.entries[name] for name in names)
        page = b'{"%b":[%b]' % (self.kind.value.encode(), body)
        if start + len(names) < len(self.names):
            cursor = encode_json(encode_cursor(self.kind, names[-1]))
            page += b',"nextCursor":%b' % cursor
        return page + b"}"
