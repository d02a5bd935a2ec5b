"""One catalogue out of several: definitions, prefixes, filters, the canary, resources."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.core.catalogue import (
    Catalogue,
    Member,
    MemberCatalogue,
    Report,
    Resolution,
    View,
    parse_entries,
)
from mcpgroup_gateway.core.filters import Filters
from mcpgroup_gateway.core.policy import FilterPolicy, FiltersPolicy, NamesPolicy
from mcpgroup_gateway.wire.envelope import Raw
from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEYS = {Kind.RESOURCE: "uri", Kind.TEMPLATE: "uriTemplate"}


def member(
    name: str,
    *,
    tools: Mapping[str, int] | None = None,
    prompts: Mapping[str, int] | None = None,
    resources: Sequence[str] = (),
    templates: Sequence[str] = (),
    safe: Sequence[str] = (),
    capabilities: Sequence[str] = ("tools",),
    instructions: str | None = None,
) -> Member:
    """A member that was read; the numbers of tools and prompts tell definitions apart."""
    items: dict[Kind, list[dict[str, Any]]] = {
        Kind.TOOL: [
            {
                "name": tool,
                "inputSchema": {"variant": variant},
                "annotations": {"readOnlyHint": tool in safe},
                "of": name,
            }
            for tool, variant in (tools or {}).items()
        ],
        Kind.PROMPT: [
            {"name": prompt, "arguments": [{"name": str(variant)}], "of": name}
            for prompt, variant in (prompts or {}).items()
        ],
        Kind.RESOURCE: [{"uri": uri, "of": name} for uri in resources],
        Kind.TEMPLATE: [{"uriTemplate": text, "of": name} for text in templates],
    }
    entries = {}
    for kind, of_kind in items.items():
        entries[kind], faults = parse_entries(kind, [Raw(json.dumps(i).encode()) for i in of_kind])
        assert not faults
    declared = {capability: Raw(b"{}") for capability in capabilities}
    return Member(name, MemberCatalogue(entries, declared, instructions))


def unread(name: str, *tools: str, awaited: bool = True) -> Member:
    """A member that was not reached yet, with what its manifest promises."""
    return Member(name, None, {Kind.TOOL: frozenset(tools)}, awaited=awaited)


def merged(
    *members: Member,
    prefix: str = "Never",
    separator: str = "__",
    filters: Filters | None = None,
    canary: str | None = None,
    trust: bool = True,
) -> Catalogue:
    return Catalogue(
        members,
        names=NamesPolicy(prefix, separator),
        filters=filters or Filters(FiltersPolicy(), {}),
        canary=canary,
        trust_annotations=trust,
    )


def listed(view: View, kind: Kind = Kind.TOOL) -> dict[str, str]:
    """Listed names and the member whose entry it is."""
    page = json.loads(view.listing(kind).page())
    key = KEYS.get(kind, "name")
    return {entry[key]: entry["of"] for entry in page[kind.value]}


def members_of(view: View, name: str, kind: Kind = Kind.TOOL) -> str:
    resolution = view.resolve(kind, name)
    return "".join(resolution.members) if resolution else "nobody"


# -- definitions ----------------------------------------------------------------------------


def test_members_with_one_definition_are_all_candidates_and_listed_once() -> None:
    view = merged(*(member(name, tools={"t": 1}) for name in "abc")).view()
    assert listed(view) == {"t": "a"}
    assert members_of(view, "t") == "abc"
    assert view.shadowed == ()


def test_a_name_means_the_definition_that_most_members_offer() -> None:
    variants = {"a": 1, "b": 2, "c": 2}
    view = merged(*(member(name, tools={"t": v}) for name, v in variants.items())).view()
    assert listed(view) == {"t": "b"}
    assert members_of(view, "t") == "bc"
    assert view.shadowed == (Report(Kind.TOOL, "a", "t", "shadowed"),)


def test_equally_common_definitions_go_to_manifest_order() -> None:
    a, b = member("a", tools={"t": 2}), member("b", tools={"t": 1})
    assert members_of(merged(a, b).view(), "t") == "a"
    assert members_of(merged(b, a).view(), "t") == "b"


def test_a_name_that_nobody_has_is_not_resolved() -> None:
    view = merged(member("a", tools={"t": 1})).view()
    for name in ("x", "T", "t ", "a__x", "x__t", "__t", "a__", "__", ""):
        assert view.resolve(Kind.TOOL, name) is None
    assert view.resolve(Kind.PROMPT, "t") is None


def test_prompts_are_merged_by_their_arguments() -> None:
    view = merged(member("a", prompts={"p": 1}), member("b", prompts={"p": 2})).view()
    assert listed(view, Kind.PROMPT) == {"p": "a"}
    assert view.shadowed == (Report(Kind.PROMPT, "b", "p", "shadowed"),)


def test_a_call_is_safe_only_on_members_that_say_so() -> None:
    a, b = member("a", tools={"t": 1}, safe=["t"]), member("b", tools={"t": 1})
    resolution = merged(a, b).view().resolve(Kind.TOOL, "t")
    assert resolution is not None
    assert resolution.safe_on == {"a"}
    distrusted = merged(a, b, trust=False).view().resolve(Kind.TOOL, "t")
    assert distrusted is not None
    assert distrusted.safe_on == frozenset()


def test_a_promise_of_the_manifest_makes_a_candidate_but_no_list_entry() -> None:
    view = merged(member("a", tools={"t": 1}), unread("b", "t", "u")).view()
    assert listed(view) == {"t": "a"}
    assert members_of(view, "t") == "ab"
    assert members_of(view, "u") == "b"
    assert view.resolve(Kind.TOOL, "b__u") == Resolution("u", ("b",), frozenset(), "b")


def test_a_promise_ends_when_the_member_was_read() -> None:
    promising = Member("a", member("a", tools={"t": 1}).catalogue, {Kind.TOOL: frozenset({"u"})})
    assert members_of(merged(promising).view(), "u") == "nobody"


# -- prefixes -------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["Never", "OnConflict", "Always"])
def test_a_prefix_always_calls_its_member(prefix: str) -> None:
    view = merged(member("a", tools={"t": 1}), member("b", tools={"t": 2}), prefix=prefix).view()
    resolution = view.resolve(Kind.TOOL, "b__t")
    assert resolution is not None
    assert (resolution.name, resolution.members, resolution.pinned) == ("t", ("b",), "b")
    assert members_of(view, "t") == "a"


def test_on_conflict_the_winner_is_listed_bare_and_the_others_with_their_prefix() -> None:
    view = merged(
        member("a", tools={"t": 1, "u": 1}),
        member("b", tools={"t": 2, "u": 1}),
        prefix="OnConflict",
    ).view()
    assert listed(view) == {"t": "a", "b__t": "b", "u": "a"}


def test_equal_members_are_no_conflict() -> None:
    view = merged(*(member(n, tools={"t": 1}) for n in "ab"), prefix="OnConflict").view()
    assert listed(view) == {"t": "a"}


def test_always_lists_each_member_with_its_prefix() -> None:
    view = merged(
        member("a", tools={"t": 1}, prompts={"p": 1}, resources=["x://1"]),
        member("b", tools={"t": 1}),
        prefix="Always",
        separator=".",
    ).view()
    assert listed(view) == {"a.t": "a", "b.t": "b"}
    assert listed(view, Kind.PROMPT) == {"a.p": "a"}
    assert listed(view, Kind.RESOURCE) == {"x://1": "a"}


def test_a_prefixed_entry_differs_from_the_members_in_its_name_alone() -> None:
    raw = b'{"name":"t","inputSchema":{"n":9007199254740993,"e":1e2},"\\u00fc":[ 1 ]}'
    entries, _ = parse_entries(Kind.TOOL, [Raw(raw)])
    view = merged(Member("a", MemberCatalogue({Kind.TOOL: entries})), prefix="Always").view()
    page = view.listing(Kind.TOOL).page()
    assert b'"inputSchema":{"n":9007199254740993,"e":1e2}' in page
    assert json.loads(page)["tools"] == [{**json.loads(raw), "name": "a__t"}]


def test_a_bare_name_wins_over_the_reading_as_a_prefix() -> None:
    a, b = member("a", tools={"b__t": 1}), member("b", tools={"t": 1})
    assert members_of(merged(a, b).view(), "b__t") == "a"


@pytest.mark.parametrize("prefix", ["OnConflict", "Always"])
def test_a_prefixed_entry_that_would_repeat_a_name_is_left_out(prefix: str) -> None:
    view = merged(
        member("a", tools={"b__t": 1, "t": 1}), member("b", tools={"t": 2}), prefix=prefix
    ).view()
    assert "b" not in listed(view).values()
    assert view.left_out == (Report(Kind.TOOL, "b", "t", "repeated"),)


def test_the_listed_names_can_all_be_called_and_reach_the_member_they_show() -> None:
    members = [
        member("a", tools={"b__t": 1, "t": 1, "u": 3}),
        member("b", tools={"t": 2, "u": 1, "a__u": 1}),
        member("c", tools={"t": 2, "c__t": 1}),
    ]
    for prefix in ("Never", "OnConflict", "Always"):
        view = merged(*members, prefix=prefix).view()
        for name, owner in listed(view).items():
            assert owner in members_of(view, name)


@pytest.mark.parametrize(("length", "left_out"), [(128, False), (129, True)])
def test_names_that_clients_would_refuse_are_left_out(length: int, *, left_out: bool) -> None:
    name = "t" * length
    view = merged(member("a", tools={name: 1}, resources=["x://" + name])).view()
    assert (name in listed(view)) is not left_out
    assert len(listed(view, Kind.RESOURCE)) == 1
    assert bool(view.left_out) is left_out
    prefixed = merged(member("a", tools={name[3:]: 1}), prefix="Always").view()
    assert bool(prefixed.left_out) is left_out


# -- filters --------------------------------------------------------------------------------


def test_what_is_hidden_is_neither_listed_nor_called() -> None:
    filters = Filters(
        FiltersPolicy(tools=FilterPolicy(deny=("danger*",))),
        {"b": FiltersPolicy(tools=FilterPolicy(allow=("t",)))},
    )
    view = merged(
        member("a", tools={"danger": 1, "t": 1, "u": 1}),
        member("b", tools={"t": 1, "u": 1, "danger2": 1}),
        filters=filters,
    ).view()
    assert set(listed(view)) == {"t", "u"}
    assert members_of(view, "t") == "ab"
    assert members_of(view, "u") == "a"
    for name in ("danger", "a__danger", "danger2", "b__danger2", "b__u"):
        assert view.resolve(Kind.TOOL, name) is None


def test_a_hidden_definition_does_not_count() -> None:
    filters = Filters(FiltersPolicy(), {n: FiltersPolicy(tools=FilterPolicy(("x",))) for n in "bc"})
    members = [member(n, tools={"t": variant}) for n, variant in zip("abc", (1, 2, 2), strict=True)]
    assert members_of(merged(*members, filters=filters).view(), "t") == "a"


def test_a_promise_can_be_hidden_too() -> None:
    filters = Filters(FiltersPolicy(tools=FilterPolicy(deny=("t",))), {})
    assert merged(unread("a", "t"), filters=filters).view().resolve(Kind.TOOL, "t") is None


# -- resources ------------------------------------------------------------------------------


def test_a_uri_goes_to_the_members_that_list_it_before_any_template() -> None:
    view = merged(
        member("a", templates=["x://{n}"]),
        member("b", resources=["x://1"]),
        member("c", resources=["x://1"]),
    ).view()
    assert members_of(view, "x://1", Kind.RESOURCE) == "bc"
    assert members_of(view, "x://2", Kind.RESOURCE) == "a"
    assert members_of(view, "y://2", Kind.RESOURCE) == "nobody"


def test_reading_is_safe_everywhere() -> None:
    view = merged(member("a", resources=["x://1"], templates=["y://{n}"])).view()
    for uri in ("x://1", "y://7"):
        resolution = view.resolve(Kind.RESOURCE, uri)
        assert resolution is not None
        assert resolution.safe_on == {"a"}


def test_a_template_is_found_by_its_text() -> None:
    view = merged(member("a", templates=["x://{n}"]), member("b", templates=["x://{n}"])).view()
    assert members_of(view, "x://{n}", Kind.TEMPLATE) == "ab"
    assert members_of(view, "x://1", Kind.TEMPLATE) == "nobody"


def test_for_an_unknown_uri_all_with_resources_are_asked_in_manifest_order() -> None:
    view = merged(
        member("a", capabilities=["resources"]),
        member("b", capabilities=["tools"]),
        member("c", capabilities=["tools", "resources"]),
        unread("d"),
    ).view()
    assert view.resource_fallback("what://ever") == ("a", "c")


def test_a_read_is_judged_by_its_uri_and_not_by_the_template() -> None:
    filters = Filters(FiltersPolicy(resources=FilterPolicy(allow=("file:///docs/*",))), {})
    a = member("a", templates=["file:///{+path}"], capabilities=["resources"])
    view = merged(a, filters=filters).view()
    assert listed(view, Kind.TEMPLATE) == {}
    assert members_of(view, "file:///docs/x", Kind.RESOURCE) == "a"
    assert members_of(view, "file:///etc/x", Kind.RESOURCE) == "nobody"
    assert view.resource_fallback("file:///etc/x") == ()


def test_uris_have_no_prefix() -> None:
    view = merged(member("a", resources=["x://1"])).view()
    assert view.resolve(Kind.RESOURCE, "a__x://1") is None


def test_an_endless_uri_is_simply_unknown() -> None:
    view = merged(member("a", templates=["x://{+n}"])).view()
    assert view.resolve(Kind.RESOURCE, "x://" + "y" * 100_000) is None


# -- the canary -----------------------------------------------------------------------------


def with_canary(**options: Any) -> Catalogue:
    return merged(
        member("a", tools={"same": 1, "changed": 1, "old": 1}),
        member("b", tools={"same": 1, "changed": 1}),
        member("new", tools={"same": 1, "changed": 2, "fresh": 1}),
        canary="new",
        **options,
    )


def test_callers_of_the_canary_see_its_entries_over_those_of_the_others() -> None:
    view = with_canary().view(canary=True)
    assert listed(view) == {"same": "new", "changed": "new", "fresh": "new", "old": "a"}
    assert members_of(view, "fresh") == "new"
    assert members_of(view, "old") == "a"


def test_a_call_of_the_canary_can_fall_back_to_the_stable_definition() -> None:
    view = with_canary().view(canary=True)
    assert members_of(view, "changed") == "abnew"
    assert members_of(view, "same") == "abnew"


def test_others_see_nothing_of_the_canary() -> None:
    view = with_canary().view()
    assert listed(view) == {"same": "a", "changed": "a", "old": "a"}
    assert view.resolve(Kind.TOOL, "fresh") is None
    assert view.resolve(Kind.TOOL, "new__fresh") is None
    assert members_of(view, "changed") == "ab"


def test_the_canary_is_a_last_resort_for_what_it_defines_equally() -> None:
    assert members_of(with_canary().view(), "same") == "abnew"


def test_the_canary_has_no_say_in_what_a_name_means() -> None:
    view = merged(
        member("a", tools={"t": 1}),
        member("b", tools={"t": 2}),
        member("new", tools={"t": 2}),
        canary="new",
    ).view()
    assert members_of(view, "t") == "a"
    assert view.shadowed == (Report(Kind.TOOL, "b", "t", "shadowed"),)


def test_with_prefixes_the_canary_is_listed_for_its_callers_alone() -> None:
    catalogue = with_canary(prefix="Always")
    assert not any(name.startswith("new") for name in listed(catalogue.view()))
    assert "new__fresh" in listed(catalogue.view(canary=True))


def test_the_canary_is_shown_when_there_is_nothing_else_to_wait_for() -> None:
    new = member("new", tools={"t": 1})
    waiting = merged(unread("a"), new, canary="new").view()
    assert listed(waiting) == {}
    alone = merged(unread("a", awaited=False), new, canary="new").view()
    assert listed(alone) == {"t": "new"}


def test_a_canary_that_was_not_read_leaves_its_callers_the_stable_lists() -> None:
    catalogue = merged(member("a", tools={"t": 1}), unread("new", "t", "u"), canary="new")
    view = catalogue.view(canary=True)
    assert listed(view) == {"t": "a"}
    assert members_of(view, "t") == "anew"
    assert members_of(view, "u") == "new"
    assert members_of(catalogue.view(), "u") == "nobody"


def test_templates_of_the_canary_match_for_its_callers() -> None:
    catalogue = merged(
        member("a", templates=["x://{n}"]),
        member("new", templates=["x://{n}", "z://{n}"]),
        canary="new",
    )
    assert members_of(catalogue.view(), "z://1", Kind.RESOURCE) == "nobody"
    assert members_of(catalogue.view(canary=True), "z://1", Kind.RESOURCE) == "new"
    assert members_of(catalogue.view(), "x://1", Kind.RESOURCE) == "anew"


# -- what a group says of itself ------------------------------------------------------------


def test_the_capabilities_are_those_of_the_members_together() -> None:
    view = merged(
        member("a", capabilities=["tools", "logging", "experimental"]),
        member("b", capabilities=["resources", "completions"]),
    ).view()
    assert json.loads(view.capabilities()) == {
        "tools": {"listChanged": True},
        "resources": {"listChanged": True},
        "logging": {},
        "completions": {},
    }


def test_a_member_that_was_not_read_may_have_anything() -> None:
    declared = json.loads(merged(member("a"), unread("b")).view().capabilities())
    assert set(declared) == {"tools", "prompts", "resources"}


def test_instructions_are_given_once_and_under_names_when_they_differ() -> None:
    same = merged(member("a", instructions="Be kind."), member("b", instructions="Be kind."))
    assert same.view().instructions() == "Be kind."
    three = merged(
        member("a", instructions="Be kind."),
        member("b"),
        member("c", instructions="Be brief."),
        member("d", instructions="Be kind."),
    )
    assert three.view().instructions() == "## a, d\n\nBe kind.\n\n## c\n\nBe brief."
    assert merged(member("a")).view().instructions() is None


# -- laws -----------------------------------------------------------------------------------

offers = st.dictionaries(st.sampled_from(["t", "u", "b__t", "v"]), st.integers(1, 2), max_size=4)
groups = st.lists(st.none() | offers, min_size=1, max_size=4)


def build(group: list[dict[str, int] | None]) -> list[Member]:
    names = "abcd"
    return [
        unread(names[i], "t") if tools is None else member(names[i], tools=tools)
        for i, tools in enumerate(group)
    ]


@given(groups, st.sampled_from(["Never", "OnConflict", "Always"]), st.sampled_from([None, "b"]))
def test_equal_members_give_equal_lists_whatever_came_first(
    group: list[dict[str, int] | None], prefix: str, canary: str | None
) -> None:
    reordered = [None if t is None else dict(reversed(t.items())) for t in group]
    one = merged(*build(group), prefix=prefix, canary=canary)
    other = merged(*build(reordered), prefix=prefix, canary=canary)
    for sees_canary in (False, True):
        first, second = one.view(canary=sees_canary), other.view(canary=sees_canary)
        assert first.hash == second.hash
        assert first.listing(Kind.TOOL).page() == second.listing(Kind.TOOL).page()


@given(groups, st.sampled_from(["Never", "OnConflict", "Always"]))
def test_each_listed_name_is_served_by_members_with_one_definition(
    group: list[dict[str, int] | None], prefix: str
) -> None:
    members = build(group)
    view = merged(*members, prefix=prefix).view()
    by_name = {m.name: m for m in members}
    for name, owner in listed(view).items():
        resolution = view.resolve(Kind.TOOL, name)
        assert resolution is not None
        assert owner in resolution.members
        for candidate in resolution.members:
            catalogue = by_name[candidate].catalogue
            if catalogue is not None:
                (entry,) = [e for e in catalogue.entries[Kind.TOOL] if e.name == resolution.name]
                assert entry.definition == resolution.definition


@given(groups, st.lists(st.sampled_from(["t", "u*", "*__*", "*"]), max_size=2).map(tuple))
def test_a_filter_only_narrows_the_lists(
    group: list[dict[str, int] | None], deny: tuple[str, ...]
) -> None:
    members = build(group)
    filters = Filters(FiltersPolicy(tools=FilterPolicy(deny=deny)), {})
    assert set(listed(merged(*members, filters=filters).view())) <= set(
        listed(merged(*members).view())
    )
