"""Links to resources in the results of tools: which member a session was given one by.

A linked resource is read and followed where the link came from, also when nobody lists it
(DESIGN-MCP section 2).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.templates import MAX_URI_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What one session is remembered to have been given, and all of them together; of more the oldest
#: links go, of all sessions those of the one that was given nothing for longest.
LINKS_OF_ONE: Final = 1_000
LINKS_OF_ALL: Final = 10_000


class Links:
    """By session id; the newest last."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, session_id: str, uris: Iterable[str], member: str) -> None:
        links = self._of.setdefault(session_id, OrderedDict())
        self._of.move_to_end(session_id)
        before = len(links)
        for uri in uris:
            if len(uri) > MAX_URI_LENGTH:
                continue
            links[uri] = member
            links.move_to_end(uri)
            if len(links) > LINKS_OF_ONE:
                links.popitem(last=False)
        self._size += len(links) - before
        while self._size > LINKS_OF_ALL:
            self._drop_oldest()
        if not links:
            self._of.pop(session_id, None)

    def member(self, session_id: str, uri: str) -> str | None:
        """Who gave the session a link to this resource last."""
        links = self._of.get(session_id)
        return None if links is None else links.get(uri)

    def session_ended(self, session_id: str) -> None:
        self._size -= len(self._of.pop(session_id, ()))

    def _drop_oldest(self) -> None:
        session_id, links = next(iter(self._of.items()))
        links.popitem(last=False)
        self._size -= 1
        if not links:
            del self._of[session_id]
