"""Lines out of chunks, and the log of what is not a message; no I/O.

A member's output is bytes of any size and any content. Memory stays bounded by `limit` a stream
whatever arrives, an endless line included.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
#: What is kept of the end of a line that was too long.
_TAIL_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line over the limit, reported when it passes the limit and again at its end.

    `head` is its beginning, `tail` its end (empty while it has not `ended`).
    """

    head: bytes
    tail: bytes
    ended: bool


def encode_line(message: bytes) -> bytes:
    """One line around a JSON document, which may have line breaks between its tokens.

    In valid JSON a bare line break is never inside a string, so a space means the same. Left in,
    it would end the line, and what a client wrote behind it would be a message of its own.
    """
    if b"\n" in message or b"\r" in message:
        message = message.replace(b"\n", b" ").replace(b"\r", b" ")
    return message + b"\n"


class LineSplitter:
    """Cuts chunks into lines without their newline; longer lines than `limit` bytes are dropped."""

    def __init__(self, limit: int, *, head_bytes: int = 256) -> None:
        self._limit = limit
        self._head_bytes = head_bytes
        self._pending: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail: bytes | None = None  # not None while a long line is being discarded

    @property
    def is_discarding(self) -> bool:
        """True inside a line that is too long."""
        return self._tail is not None

    def feed(self, data: bytes) -> list[bytes | LongLine]:
        """The lines that `data` completes, in order."""
        pieces = data.split(b"\n")
        rest = pieces.pop()
        lines: list[bytes | LongLine] = []
        for piece in pieces:
            self._append(piece, lines)
            lines.append(self._complete())
        if rest:
            self._append(rest, lines)
        return lines

    def end(self) -> list[bytes | LongLine]:
        """What was left without a newline when the stream ended."""
        return [self._complete()] if self._pending or self._tail is not None else []

    def _append(self, piece: bytes, lines: list[bytes | LongLine]) -> None:
        if self._tail is not None:
            self._tail = (self._tail + piece[-_TAIL_BYTES:])[-_TAIL_BYTES:]
            return
        self._pending.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            line = b"".join(self._pending)
            self._pending, self._size = [], 0
            self._head, self._tail = line[: self._head_bytes], line[-_TAIL_BYTES:]
            lines.append(LongLine(self._head, b"", ended=False))

    def _complete(self) -> bytes | LongLine:
        if self._tail is not None:
            line = LongLine(self._head, self._tail, ended=True)
            self._head, self._tail = b"", None
            return line
        pieces, self._pending, self._size = self._pending, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class LineLog:
    """Logs lines of a member, at most `per_second` of them; drops the others and says how many."""

    def __init__(
        self,
        log: logging.Logger,
        level: int,
        prefix: str,
        clock: Callable[[], float],
        *,
        per_second: int = 100,
        line_bytes: int = 2048,
    ) -> None:
        self._log = log
        self._level = level
        self._prefix = prefix
        self._clock = clock
        self._line_bytes = line_bytes
        self._written: deque[float] = deque(maxlen=per_second)
        self._dropped = 0

    def write(self, line: bytes) -> None:
        now = self._clock()
        if len(self._written) == self._written.maxlen and now - self._written[0] < 1.0:
            self._dropped += 1
            return
        self.flush()
        self._written.append(now)
        self._log.log(self._level, "%s: %s", self._prefix, printable(line, self._line_bytes))

    def flush(self) -> None:
        """Say how many lines were dropped since the last one that was logged."""
        if self._dropped:
            self._log.log(self._level, "%s: %d more lines not logged", self._prefix, self._dropped)
            self._dropped = 0


class Allowance:
    """How many bytes of no use a stream may bring in a second before it is read more slowly."""

    def __init__(self, bytes_per_second: int, clock: Callable[[], float]) -> None:
        self._limit = bytes_per_second
        self._clock = clock
        self._second = 0.0
        self._spent = 0

    def spend(self, size: int) -> bool:
        """True when the stream brought more than its allowance."""
        now = self._clock()
        if now - self._second >= 1.0:
            self._second, self._spent = now, 0
        self._spent += size
        return self._spent > self._limit


def printable(line: bytes, limit: int) -> str:
    """Text that cannot fake or garble a log line: no colours, control characters escaped."""
    text = _ANSI.sub("", line[:limit].decode("utf-8", "replace")).rstrip()
    if not text.isprintable():
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return f"{text}…" if len(line) > limit else text
