"""Pages and cursors."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.core.listing import BadCursor, Listing, decode_cursor, encode_cursor
from mcpgroup_gateway.wire.protocol import Kind

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


def make(listed: set[str], page_entries: int = 1000) -> Listing:
    entries = {name: json.dumps({"name": name}).encode() for name in listed}
    return Listing(Kind.TOOL, entries, page_entries)


def walk(listing: Listing) -> list[list[str]]:
    pages: list[list[str]] = []
    cursor = None
    while True:
        page = json.loads(listing.page(cursor))
        pages.append([entry["name"] for entry in page["tools"]])
        cursor = page.get("nextCursor")
        if cursor is None:
            return pages


@given(st.sets(names, max_size=40), st.integers(1, 50))
def test_the_pages_give_each_entry_exactly_once(listed: set[str], size: int) -> None:
    pages = walk(make(listed, size))
    assert [name for page in pages for name in page] == sorted(listed)
    assert all(len(page) == size for page in pages[:-1])
    assert len(pages[-1]) <= size


def test_a_list_of_one_page_has_no_cursor() -> None:
    assert make({"b", "a"}).page() == b'{"tools":[{"name": "a"},{"name": "b"}]}'
    assert make(set()).page() == b'{"tools":[]}'


def test_a_thousand_entries_make_a_page() -> None:
    pages = walk(make({f"t{number:05}" for number in range(2500)}))
    assert [len(page) for page in pages] == [1000, 1000, 500]


def test_a_cursor_stays_valid_when_entries_come_and_go() -> None:
    cursor = json.loads(make({"a", "b", "c", "d"}, 2).page())["nextCursor"]
    page = json.loads(make({"a", "aa", "c", "e"}, 2).page(cursor))
    assert [entry["name"] for entry in page["tools"]] == ["c", "e"]


def test_a_cursor_can_be_used_again() -> None:
    listing = make({"a", "b", "c"}, 1)
    cursor = json.loads(listing.page())["nextCursor"]
    assert listing.page(cursor) == listing.page(cursor)


def test_a_cursor_behind_the_last_entry_gives_an_empty_page() -> None:
    assert make({"a"}).page(encode_cursor(Kind.TOOL, "z")) == b'{"tools":[]}'


@given(names)
def test_any_replica_can_read_a_cursor(name: str) -> None:
    assert decode_cursor(Kind.TOOL, encode_cursor(Kind.TOOL, name)) == name


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "abc",
        "1000",
        "é",
        "a" * 5000,
        encode_cursor(Kind.PROMPT, "a"),
        encode_cursor(Kind.TOOL, "a") + "=",
        encode_cursor(Kind.TOOL, "a")[:-1],
        base64.urlsafe_b64encode(b'["tools", "a"]').decode().rstrip("="),
        base64.urlsafe_b64encode(b'["tools",1]').decode().rstrip("="),
        base64.urlsafe_b64encode(b'["tools","\\ud800"]').decode().rstrip("="),
        base64.urlsafe_b64encode(b"[" * 3000).decode().rstrip("="),
    ],
)
def test_a_cursor_that_nobody_gave_out_is_refused(cursor: str) -> None:
    with pytest.raises(BadCursor):
        make({"a"}).page(cursor)


@given(st.text(max_size=40))
def test_no_text_breaks_the_reader_of_cursors(cursor: str) -> None:
    listing = make({"a", "b"})
    try:
        listing.page(cursor)
    except BadCursor:
        return


def test_the_hash_follows_the_entries() -> None:
    assert make({"a", "b"}).hash == make({"b", "a"}).hash
    assert make({"a", "b"}).hash != make({"a", "c"}).hash
    one = Listing(Kind.TOOL, {"a": b'{"name":"a"}'})
    assert one.hash != Listing(Kind.TOOL, {"a": b'{"name":"a","title":"A"}'}).hash
