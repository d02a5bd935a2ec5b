"""Reading what one member lists."""

from __future__ import annotations

import json

import pytest

from mcpgroup_gateway.core.entries import Entry, MemberCatalogue, parse_entries
from mcpgroup_gateway.wire.envelope import Raw
from mcpgroup_gateway.wire.protocol import Kind


def parse(kind: Kind, *items: str) -> tuple[tuple[Entry, ...], list[str]]:
    return parse_entries(kind, [Raw(item.encode()) for item in items])


def tool(**members: object) -> str:
    return json.dumps({"name": "t", "inputSchema": {"type": "object"}, **members})


def only(kind: Kind, item: str) -> Entry:
    (entry,), faults = parse(kind, item)
    assert not faults
    return entry


def test_an_entry_keeps_the_bytes_of_its_member() -> None:
    raw = '{ "name" : "t", "inputSchema": {}, "x-big": 9007199254740993, "ü": "\\ud83d" }'
    entry = only(Kind.TOOL, raw)
    assert entry.name == "t"
    assert entry.raw == raw.encode()


@pytest.mark.parametrize(
    ("kind", "item", "name"),
    [
        (Kind.PROMPT, '{"name":"p"}', "p"),
        (Kind.RESOURCE, '{"uri":"x://1","name":"one"}', "x://1"),
        (Kind.TEMPLATE, '{"uriTemplate":"x://{n}","name":"any"}', "x://{n}"),
    ],
)
def test_prompts_and_resources_have_their_own_names_and_are_safe(
    kind: Kind, item: str, name: str
) -> None:
    entry = only(kind, item)
    assert (entry.name, entry.safe) == (name, True)


@pytest.mark.parametrize(
    ("annotations", "safe"),
    [
        ({"readOnlyHint": True}, True),
        ({"idempotentHint": True}, True),
        ({"readOnlyHint": False}, False),
        ({"readOnlyHint": "true"}, False),
        ({"readOnlyHint": 1}, False),
        ({"destructiveHint": False}, False),
        ([], False),
        (None, False),
    ],
)
def test_a_tool_is_safe_when_its_annotations_say_so(annotations: object, *, safe: bool) -> None:
    assert only(Kind.TOOL, tool(annotations=annotations)).safe is safe


def test_a_definition_is_the_schema_and_not_how_it_is_written() -> None:
    one = only(Kind.TOOL, '{"name":"t","inputSchema":{"a":1,"b":[1,2]},"title":"One"}')
    same = only(Kind.TOOL, '{"name":"t","inputSchema":{ "b":[1, 2], "a":1 },"title":"Two"}')
    other = only(Kind.TOOL, '{"name":"t","inputSchema":{"a":1,"b":[2,1]}}')
    assert one.definition == same.definition != other.definition


def test_integers_beyond_a_float_make_different_definitions() -> None:
    one = only(Kind.TOOL, '{"name":"t","inputSchema":{"maximum":9007199254740992}}')
    other = only(Kind.TOOL, '{"name":"t","inputSchema":{"maximum":9007199254740993}}')
    assert one.definition != other.definition


def test_a_prompt_without_arguments_is_one_with_an_empty_list_of_them() -> None:
    without = only(Kind.PROMPT, '{"name":"p"}')
    empty = only(Kind.PROMPT, '{"name":"p","arguments":[]}')
    some = only(Kind.PROMPT, '{"name":"p","arguments":[{"name":"a"}]}')
    assert without.definition == empty.definition != some.definition


@pytest.mark.parametrize(
    "bad",
    [
        "7",
        "[]",
        "null",
        "{}",
        '{"name":7,"inputSchema":{}}',
        '{"name":"","inputSchema":{}}',
        '{"name":"t"}',
        '{"name":"t","inputSchema":null}',
        '{"name":"t","inputSchema":{"n":' + "[" * 100_000 + "]" * 100_000 + "}}",
        '{"name":"t","inputSchema":{"n":' + "9" * 5000 + "}}",
    ],
)
def test_one_bad_entry_is_reported_and_hides_nothing_else(bad: str) -> None:
    entries, faults = parse(Kind.TOOL, tool(name="a"), bad, tool(name="b"))
    assert [entry.name for entry in entries] == ["a", "b"]
    assert len(faults) == 1
    assert faults[0].startswith("tools[1] is left out: ")


def test_a_repeated_name_counts_once() -> None:
    entries, faults = parse(Kind.TOOL, tool(title="first"), tool(title="second"))
    assert len(entries) == 1
    assert b"first" in entries[0].raw
    assert "repeats" in faults[0]


def test_the_hash_of_a_member_does_not_depend_on_the_order_of_its_list() -> None:
    entries, _ = parse(Kind.TOOL, tool(name="a"), tool(name="b"))
    one = MemberCatalogue({Kind.TOOL: entries})
    assert one.hash == MemberCatalogue({Kind.TOOL: entries[::-1]}).hash
    assert one.hash != MemberCatalogue({Kind.TOOL: entries[:1]}).hash


def test_the_hash_of_a_member_does_not_depend_on_how_its_json_is_spelt() -> None:
    spellings = (
        '{"name": "a", "inputSchema": {"type": "object", "title": "\\u00e9"}}',
        '{"inputSchema":{"title":"é",  "type":"object"},"name":"a"}',
    )
    hashes = {MemberCatalogue({Kind.TOOL: parse(Kind.TOOL, one)[0]}).hash for one in spellings}
    assert len(hashes) == 1
    other, _ = parse(Kind.TOOL, spellings[0].replace("object", "array"))
    assert MemberCatalogue({Kind.TOOL: other}).hash not in hashes


def test_an_entry_that_has_one_spelling_only_has_a_hash_all_the_same() -> None:
    hashes = set()
    for half_a_pair in ("\\ud83d", "\\ud83e"):
        entries, _ = parse(Kind.RESOURCE, f'{{"uri": "x://1", "extra": "{half_a_pair}"}}')
        assert len(entries) == 1
        hashes.add(MemberCatalogue({Kind.RESOURCE: entries}).hash)
    assert len(hashes) == 2


def test_a_tool_that_runs_only_as_a_task_is_left_out() -> None:
    entries, faults = parse(
        Kind.TOOL,
        tool(name="needs", execution={"taskSupport": "required"}),
        tool(name="may", execution={"taskSupport": "optional"}),
        tool(name="odd", execution="required"),
    )
    assert [entry.name for entry in entries] == ["may", "odd"]
    assert faults == ["tools[0] is left out: 'needs' can only be called as a task"]


ANNOTATED = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
BADLY_ANNOTATED = {"type": "object", "properties": {"a": {"type": "array", "x-mcp-header": "A"}}}


@pytest.mark.parametrize("modern", [True, False])
def test_a_tool_says_which_arguments_come_in_headers(*, modern: bool) -> None:
    item = Raw(tool(inputSchema=ANNOTATED).encode())
    (entry,), faults = parse_entries(Kind.TOOL, [item], modern=modern)
    assert [header.name for header in entry.param_headers] == ["Mcp-Param-A"]
    assert not faults


def test_an_invalid_annotation_hides_a_tool_of_a_modern_member_only() -> None:
    item = Raw(tool(inputSchema=BADLY_ANNOTATED).encode())
    entries, faults = parse_entries(Kind.TOOL, [item], modern=True)
    assert not entries
    assert faults == [
        "tools[0] is left out: 't': x-mcp-header of 'a' needs the type string, integer, boolean"
    ]
    (entry,), faults = parse_entries(Kind.TOOL, [item])
    assert entry.param_headers == ()
    assert not faults
