"""Which names a group shows and serves: `allow` and `deny` at two levels.

A name passes a level when `allow` is empty or matches and `deny` does not. It is served by a member
only when it passes the group's level and the member's own, so that the narrower level can only
remove. Patterns are those of `fnmatch.fnmatchcase`: `*` also crosses dots and slashes. They see
bare names, never prefixed ones. Resource templates are judged by the text of their template in
lists; a read is always judged by the URI that is read.
"""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.policy import FilterPolicy, FiltersPolicy
from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Verdicts kept; names come from clients, so the memory they take must not follow their number.
_KEPT_VERDICTS = 4096
#: A name longer than this is judged each time, so that the kept ones stay small.
_KEPT_LENGTH = 512


class Patterns:
    """A list of fnmatch patterns as one regular expression; an empty list matches nothing."""

    __slots__ = ("_expression",)

    def __init__(self, patterns: Sequence[str]) -> None:
        # fnmatch.translate makes atomic groups, so that no pattern can backtrack without end.
        self._expression = (
            re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))
            if patterns
            else None
        )

    def match(self, name: str) -> bool:
        return self._expression is not None and self._expression.match(name) is not None

    def __bool__(self) -> bool:
        return self._expression is not None


class _Level:
    """One `allow`/`deny` pair, compiled."""

    __slots__ = ("_allow", "_deny")

    def __init__(self, policy: FilterPolicy) -> None:
        self._allow = Patterns(policy.allow)
        self._deny = Patterns(policy.deny)

    def admits(self, name: str) -> bool:
        return not self._deny.match(name) and (not self._allow or self._allow.match(name))


class Filters:
    """The group's filters and those of its members."""

    def __init__(self, group: FiltersPolicy, members: Mapping[str, FiltersPolicy]) -> None:
        self._group = _levels(group)
        self._members = {
            member: levels for member, policy in members.items() if (levels := _levels(policy))
        }
        self._judge_kept = lru_cache(maxsize=_KEPT_VERDICTS)(self._judge)

    def admits(self, kind: Kind, member: str, name: str) -> bool:
        """Whether `member` may show and serve `name`."""
        if not self._group and member not in self._members:
            return True
        if len(name) > _KEPT_LENGTH:
            return self._judge(kind, member, name)
        return self._judge_kept(kind, member, name)

    def _judge(self, kind: Kind, member: str, name: str) -> bool:
        kind = _JUDGED_AS.get(kind, kind)
        group = self._group.get(kind)
        if group is not None and not group.admits(name):
            return False
        own = self._members.get(member, {}).get(kind)
        return own is None or own.admits(name)


_JUDGED_AS = {Kind.TEMPLATE: Kind.RESOURCE}
_NO_FILTER = FilterPolicy()


def _levels(policy: FiltersPolicy) -> dict[Kind, _Level]:
    """What of a level filters at all."""
    written = {
        Kind.TOOL: policy.tools,
        Kind.PROMPT: policy.prompts,
        Kind.RESOURCE: policy.resources,
    }
    return {kind: _Level(filter_) for kind, filter_ in written.items() if filter_ != _NO_FILTER}
