"""The event-stream parser: line ends, portions, ids and limits (WHATWG HTML, section 9.2)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.wire.sse import Event, EventParser, EventTooLarge, encode_event

LIMIT = 1 << 20
ENDS = (b"\n", b"\r\n", b"\r")
STREAM = (
    b": hello",
    b"id: 1",
    b"event: message",
    b'data: {"a":',
    b"data:1}",
    b"retry: 1500",
    b"",
    b"data",
    b"",
    b"id: 2",
    b"",
    b"data: last",
    b"",
)
EVENTS = [
    Event(b'{"a":\n1}', "message", "1"),
    Event(b"", "", "1"),
    Event(b"last", "", "2"),
]


def parse(*portions: bytes) -> list[Event]:
    parser = EventParser(LIMIT)
    return [event for portion in portions for event in parser.feed(portion)]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_every_line_end_gives_the_same_events_at_every_cut(end: bytes, mark: bytes) -> None:
    data = mark + b"".join(line + end for line in STREAM)
    for cut in range(len(data) + 1):
        assert parse(data[:cut], data[cut:]) == EVENTS
    assert parse(*(data[index : index + 1] for index in range(len(data)))) == EVENTS


@given(
    lines=st.lists(
        st.one_of(
            st.sampled_from(STREAM),
            st.binary(max_size=12).map(lambda data: data.translate(None, b"\r\n")),
        ),
        max_size=12,
    ),
    ends=st.lists(st.sampled_from(ENDS), min_size=12, max_size=12),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
def test_portions_never_change_the_events(
    lines: list[bytes], ends: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(line + end for line, end in zip(lines, ends, strict=False))
    marks = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    portions = [data[start:end] for start, end in itertools.pairwise(marks)]
    assert parse(*portions) == parse(data)


@given(text=st.text(alphabet=st.characters(codec="utf-8"), min_size=1))
def test_what_was_encoded_is_parsed_back_with_its_line_breaks(text: str) -> None:
    lines = text.encode().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert parse(encode_event(text.encode())) == [Event(lines, "message", "")]


def test_an_id_counts_when_its_event_is_complete() -> None:
    parser = EventParser(LIMIT)
    parser.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n")
    assert parser.last_id == "1"
    parser.feed(b"\n")
    assert parser.last_id == "2"


def test_an_id_with_a_nul_is_ignored_and_an_empty_one_resets() -> None:
    parser = EventParser(LIMIT)
    parser.feed(b"id: 1\n\nid: 2\0\n\n")
    assert parser.last_id == "1"
    parser.feed(b"id\n\n")
    assert parser.last_id == ""


def test_retry_is_in_milliseconds_and_must_be_digits() -> None:
    parser = EventParser(LIMIT)
    parser.feed(b"retry: soon\n\n")
    assert parser.retry_seconds is None
    parser.feed(b"retry: 250\n\n")
    assert parser.retry_seconds == 0.25


def test_an_event_over_the_limit_is_refused_in_one_line_or_many() -> None:
    for data in (b"data: " + b"x" * 100, b"data: xxxxxxxxx\n" * 10):
        with pytest.raises(EventTooLarge):
            EventParser(64).feed(data)


def test_the_limit_is_for_one_event_and_not_for_the_stream() -> None:
    parser = EventParser(64)
    assert len(parser.feed(b"data: xxxxxxxxxxxxxxxx\n\n" * 100)) == 100


def test_a_mark_in_the_middle_is_content() -> None:
    assert parse(b"\n", b"data: \xef\xbb\xbfx\n\n") == [Event(b"\xef\xbb\xbfx", "", "")]


def skip(limit: int, *portions: bytes) -> list[Event]:
    parser = EventParser(limit, skips=True)
    return [event for portion in portions for event in parser.feed(portion)]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("step", [1, 7, 100, 1000, 1 << 20])
def test_an_event_over_the_limit_is_read_over_when_asked(end: bytes, step: int) -> None:
    long = b'{"id":1,' + b"x" * 5000 + b',"id":2}'
    data = (
        b"data: before"
        + end * 2
        + b"event: message"
        + end
        + b"data: "
        + long
        + end
        + b"id: 9"
        + end * 2
        + b"data: after"
        + end * 2
    )
    before, cut, after = skip(
        1000, *(data[index : index + step] for index in range(0, len(data), step))
    )
    assert (before, after) == (Event(b"before", "", ""), Event(b"after", "", "9"))
    assert (cut.whole, cut.event, cut.id) == (False, "message", "9")
    assert cut.data.lstrip().startswith(b'{"id":1,')
    assert cut.data.endswith(b',"id":2}')
    assert len(cut.data) <= 512


@pytest.mark.parametrize("step", [1, 64, 1 << 20])
def test_an_event_of_many_lines_over_the_limit_keeps_both_ends(step: int) -> None:
    data = b"".join(b"data: line %d\n" % number for number in range(1000)) + b"\ndata: after\n\n"
    cut, after = skip(1000, *(data[index : index + step] for index in range(0, len(data), step)))
    assert not cut.whole
    assert cut.data.startswith(b"line 0\nline 1\n")
    assert cut.data.endswith(b"line 999")
    assert after == Event(b"after", "", "")


def test_an_endless_line_that_is_read_over_takes_no_memory() -> None:
    parser = EventParser(1000, skips=True)
    for _ in range(1000):
        assert parser.feed(b"data" + b"x" * 1000) == []
        assert len(parser._buffer) <= 2000
