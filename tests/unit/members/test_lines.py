"""Lines out of arbitrary chunks, with bounded memory, and the log of what is no message."""

from __future__ import annotations

import logging

from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.members.lines import Allowance, LineLog, LineSplitter, LongLine, printable


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def feed(splitter: LineSplitter, *chunks: bytes) -> list[bytes | LongLine]:
    return [line for chunk in chunks for line in splitter.feed(chunk)]


@given(st.binary(max_size=300), st.lists(st.integers(min_value=1, max_value=40)))
def test_lines_do_not_depend_on_how_the_bytes_were_cut(data: bytes, sizes: list[int]) -> None:
    chunks = []
    rest = data
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]
    splitter = LineSplitter(1000)
    lines = [*feed(splitter, *chunks, rest), *splitter.end()]
    whole = data.split(b"\n")
    assert lines == (whole[:-1] if whole[-1] == b"" else whole)


@given(st.binary(min_size=1, max_size=200).filter(lambda data: b"\n" not in data))
def test_a_line_over_the_limit_is_reported_twice_and_the_next_one_is_whole(data: bytes) -> None:
    splitter = LineSplitter(10, head_bytes=4)
    lines = feed(splitter, *(bytes([byte]) for byte in data + b"\nnext\n"))
    if len(data) <= 10:
        assert lines == [data, b"next"]
    else:
        assert lines == [
            LongLine(data[:4], b"", ended=False),
            LongLine(data[:4], data[-256:], ended=True),
            b"next",
        ]


def test_a_line_as_long_as_the_limit_is_taken() -> None:
    splitter = LineSplitter(10)
    assert feed(splitter, b"x" * 10 + b"\n") == [b"x" * 10]


def test_an_endless_line_costs_no_memory() -> None:
    splitter = LineSplitter(1000)
    feed(splitter, *[b"x" * 65536] * 100)
    assert splitter.is_discarding
    held = sum(len(piece) for piece in splitter._pending)
    assert held + len(splitter._head) + len(splitter._tail or b"") <= 1000


def test_a_flood_of_lines_is_logged_in_part_and_counted() -> None:
    now = [100.0]
    log = logging.getLogger("test.lines")
    lines = LineLog(log, logging.WARNING, "stderr", lambda: now[0], per_second=3)
    records = Records()
    log.addHandler(records)
    try:
        for number in range(10):
            lines.write(b"line %d" % number)
        now[0] += 1.0
        lines.write(b"later")
    finally:
        log.removeHandler(records)
    assert records.texts == [
        "stderr: line 0",
        "stderr: line 1",
        "stderr: line 2",
        "stderr: 7 more lines not logged",
        "stderr: later",
    ]


def test_an_allowance_is_new_each_second() -> None:
    now = [0.0]
    allowance = Allowance(100, lambda: now[0])
    assert [allowance.spend(60), allowance.spend(40), allowance.spend(1)] == [False, False, True]
    now[0] = 1.0
    assert not allowance.spend(100)


def test_a_logged_line_cannot_fake_another() -> None:
    assert printable(b"\x1b[31mred\x1b[0m\r\nINFO all is well\x00\r", 100) == (
        "red\\r\\nINFO all is well\\x00"
    )
    assert printable(b"\xff" * 3, 100) == "\ufffd" * 3
    assert printable(b"abcdef", 3) == "abc…"
