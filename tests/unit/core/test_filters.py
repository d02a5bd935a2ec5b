"""What `allow` and `deny` hide, at the group's level and at a member's."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.core.filters import Filters, Patterns
from mcpgroup_gateway.core.policy import FilterPolicy, FiltersPolicy
from mcpgroup_gateway.wire.protocol import Kind

NOTHING = FiltersPolicy()
words = st.text("ab*?[]!_./", max_size=8)
filters = st.builds(
    FilterPolicy,
    allow=st.lists(words, max_size=3).map(tuple),
    deny=st.lists(words, max_size=3).map(tuple),
)
levels = st.builds(FiltersPolicy, tools=filters, prompts=filters, resources=filters)
kinds = st.sampled_from(list(Kind))


def tools(*, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> FiltersPolicy:
    return FiltersPolicy(tools=FilterPolicy(allow, deny))


def test_without_filters_everything_is_shown() -> None:
    assert Filters(NOTHING, {}).admits(Kind.TOOL, "m", "anything")


@pytest.mark.parametrize(
    ("name", "shown"),
    [("read_file", True), ("read_secret", False), ("write_file", False), ("READ_file", False)],
)
def test_deny_wins_over_allow_and_case_matters(name: str, *, shown: bool) -> None:
    group = tools(allow=("read_*",), deny=("*secret*",))
    assert Filters(group, {}).admits(Kind.TOOL, "m", name) is shown


def test_a_member_can_only_remove_from_what_the_group_shows() -> None:
    both = Filters(tools(allow=("read_*",)), {"m": tools(allow=("*",)), "n": tools(deny=("*_b",))})
    assert not both.admits(Kind.TOOL, "m", "write")
    assert both.admits(Kind.TOOL, "m", "read_b")
    assert not both.admits(Kind.TOOL, "n", "read_b")
    assert both.admits(Kind.TOOL, "n", "read_a")


def test_each_kind_has_its_own_filter() -> None:
    group = FiltersPolicy(prompts=FilterPolicy(deny=("x",)), resources=FilterPolicy(deny=("y:*",)))
    only = Filters(group, {})
    assert only.admits(Kind.TOOL, "m", "x")
    assert not only.admits(Kind.PROMPT, "m", "x")
    assert not only.admits(Kind.RESOURCE, "m", "y://a/b")
    assert not only.admits(Kind.TEMPLATE, "m", "y://{path}")


def test_allowing_three_names_shows_all_three() -> None:
    group = Filters(tools(allow=("a", "b", "c")), {})
    assert [n for n in "abcd" if group.admits(Kind.TOOL, "m", n)] == ["a", "b", "c"]


@given(words, st.lists(words, max_size=4))
def test_patterns_match_as_fnmatchcase_does(name: str, patterns: list[str]) -> None:
    expected = any(fnmatchcase(name, pattern) for pattern in patterns)
    assert Patterns(patterns).match(name) is expected


@given(levels, levels, kinds, words)
def test_a_narrower_level_only_removes(
    group: FiltersPolicy, member: FiltersPolicy, kind: Kind, name: str
) -> None:
    without = Filters(group, {})
    narrowed = Filters(group, {"m": member})
    assert narrowed.admits(kind, "m", name) <= without.admits(kind, "m", name)
    assert narrowed.admits(kind, "m", name) <= Filters(NOTHING, {"m": member}).admits(
        kind, "m", name
    )
    assert narrowed.admits(kind, "other", name) is without.admits(kind, "other", name)


def test_a_name_longer_than_those_that_are_kept_is_judged_alike() -> None:
    group = Filters(tools(deny=("*z",)), {})
    assert group.admits(Kind.TOOL, "m", "a" * 5000)
    assert not group.admits(Kind.TOOL, "m", "a" * 5000 + "z")
