"""Does a URI come from a URI template? (RFC 6570, levels 1 to 3)

Only good enough to find the members to ask: a template that matches too much costs one question to
a member that says "not found". Simple expressions match at least one character and no slash, as in
the servers of both official SDKs; an exploded one (`{path*}`) also crosses slashes.

Templates come from members and URIs from clients, so the match is done by positions and not by a
regular expression: its cost is bounded by the length of the URI times the parts of the template.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAX_URI_LENGTH: Final = 4096
MAX_TEMPLATE_LENGTH: Final = 2048
MAX_EXPRESSIONS: Final = 16

_EXPRESSION = re.compile(r"\{([+#./;?&]?)([A-Za-z0-9_.%*:,]+)\}")

#: By operator: characters that its expansion cannot contain.
_EXCLUDED: Final = {
    "": "/",
    "+": "",
    "#": "",
    ".": "/?#",
    "/": "/?#",
    ";": "/?#",
    "?": "#",
    "&": "#",
}
#: Operators whose expansion begins with themselves, and is empty without values.
_NAMED: Final = frozenset("#./;?&")


@dataclass(frozen=True, slots=True)
class _Run:
    """Characters of an expansion; `prefix` begins it, and without it the run may be absent."""

    prefix: str
    excluded: str


class UriTemplate:
    """A template that cannot be read, or is over the limits, matches itself only."""

    __slots__ = ("_head", "_parts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = _parse(text)
        self._head = self._parts[0] if self._parts and isinstance(self._parts[0], str) else ""

    def matches(self, uri: str) -> bool:
        if not uri.startswith(self._head) or len(uri) > MAX_URI_LENGTH:
            return False
        # Positions that are reached when the parts so far have matched, in ascending order.
        positions = [0]
        for part in self._parts:
            if isinstance(part, str):
                positions = [at + len(part) for at in positions if uri.startswith(part, at)]
            else:
                positions = _after_run(part, uri, positions)
            if not positions:
                return False
        return positions[-1] == len(uri)


def _after_run(run: _Run, uri: str, positions: list[int]) -> list[int]:
    reached = set()
    covered = -1  # the farthest end of a run that was walked
    for at in positions:
        if run.prefix:
            reached.add(at)
            if not uri.startswith(run.prefix, at):
                continue
        start = at + 1  # the prefix, or the one character that an expansion has at least
        if not run.prefix and (at >= len(uri) or uri[at] in run.excluded):
            continue
        if start <= covered:
            continue
        end = start
        while end < len(uri) and uri[end] not in run.excluded:
            end += 1
        reached.update(range(start, end + 1))
        covered = end
    return sorted(reached)


def _parse(text: str) -> tuple[str | _Run, ...]:
    parts: list[str | _Run] = []
    position = 0
    if len(text) > MAX_TEMPLATE_LENGTH:
        return (text,)
    for found in _EXPRESSION.finditer(text):
        if found.start() > position:
            parts.append(text[position : found.start()])
        operator, variables = found.groups()
        excluded = _EXCLUDED[operator]
        if "*" in variables or (operator == "/" and "," in variables):
            excluded = excluded.replace("/", "")
        parts.append(_Run(operator if operator in _NAMED else "", excluded))
        position = found.end()
    if position < len(text):
        parts.append(text[position:])
    literals = "".join(part for part in parts if isinstance(part, str))
    if "{" in literals or "}" in literals or len(parts) > 2 * MAX_EXPRESSIONS + 1:
        return (text,)
    return tuple(parts)
