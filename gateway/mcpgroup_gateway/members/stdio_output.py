"""What a process writes, read as messages.

A line that is no message (banner, blank line, invalid UTF-8) is logged and skipped. A line over
`max_line_bytes` is discarded to its end. Its id is read where servers write it, at the beginning or
at the end of the line; when it is at neither, the line is put down to the only request in flight,
and with several of them they go on to their deadlines.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.cut_answers import answered_id, id_at_head, id_at_tail
from mcpgroup_gateway.members.lines import Allowance, LineLog, LineSplitter, LongLine
from mcpgroup_gateway.wire.envelope import MalformedMessage, parse_message, parse_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.wire.envelope import Message

#: Output of no use (stderr, lines that are no messages) beyond which a stream is read more slowly.
_USELESS_BYTES_PER_SECOND: Final = 1024 * 1024
_LOGGED_LINE_BYTES: Final = 2048


class StdioOutput:
    """Takes the chunks of both streams; true asks to read the stream more slowly.

    `on_message` takes each message and its bytes. `on_spoiled` hears of an answer that is none: the
    raw id of the request, None for the only one in flight, the failure, and what the member did.
    """

    def __init__(
        self,
        log: logging.Logger,
        max_line_bytes: int,
        on_message: Callable[[Message, int], None],
        on_spoiled: Callable[[bytes | None, Failure, str], None],
    ) -> None:
        clock = asyncio.get_running_loop().time
        self._log = log
        self._on_message = on_message
        self._on_spoiled = on_spoiled
        self._lines = LineSplitter(max_line_bytes)
        self._noise = LineLog(log, logging.WARNING, "not a message", clock, per_second=10)
        self._stderr = LineSplitter(_LOGGED_LINE_BYTES, head_bytes=_LOGGED_LINE_BYTES)
        self._stderr_log = LineLog(log, logging.INFO, "stderr", clock)
        self._noise_allowance = Allowance(_USELESS_BYTES_PER_SECOND, clock)
        self._stderr_allowance = Allowance(_USELESS_BYTES_PER_SECOND, clock)

    def output(self, data: bytes) -> bool:
        slow = False
        for line in self._lines.feed(data):
            if isinstance(line, LongLine):
                self._long_line(line)
            elif not self._line(line):
                slow = self._noise_allowance.spend(len(line) + 1)
        if self._lines.is_discarding:
            slow = self._noise_allowance.spend(len(data))
        return slow

    def errors(self, data: bytes) -> bool:
        for line in self._stderr.feed(data):
            if isinstance(line, bytes):
                self._stderr_log.write(line)
            elif not line.ended:
                self._stderr_log.write(line.head + b" [cut]")
        return self._stderr_allowance.spend(len(data))

    def end(self) -> None:
        """Read what has no line end: the process has ended."""
        for line in self._lines.end():
            if isinstance(line, bytes):
                self._line(line)
        for line in self._stderr.end():
            if isinstance(line, bytes):
                self._stderr_log.write(line)
        self._noise.flush()
        self._stderr_log.flush()

    def _line(self, line: bytes) -> bool:
        """Handle one line; false when it was no message."""
        try:
            message = parse_message(line)
        except MalformedMessage as fault:
            if line.strip():
                self._noise.write(line)
            raw_id = _answer_in(line, fault)
            if raw_id is not None:
                self._on_spoiled(raw_id, Failure.MALFORMED, f"answered badly: {fault.text}")
            return False
        try:
            self._on_message(message, len(line))
        except Exception:  # noqa: BLE001 - logged; the messages after it in the chunk go on
            self._log.exception("a message was not handled: %s", message.method or "a response")
        return True

    def _long_line(self, line: LongLine) -> None:
        what = "answered with a line that is too long"
        if not line.ended:
            self._noise.write(b"[discarded, too long] " + line.head)
            self._on_spoiled(id_at_head(line.head), Failure.TOO_LARGE, what)
        elif (raw_id := id_at_tail(line.tail)) is not None:
            self._on_spoiled(raw_id, Failure.TOO_LARGE, what)


def _answer_in(line: bytes, fault: MalformedMessage) -> bytes | None:
    """The raw id of the request that a bad line was meant to answer; without one it is noise."""
    if fault.request_id is not None:
        return None if "method" in parse_object(line) else fault.request_id
    # Not UTF-8 or nested too deep, but whole: no better answer will come. What is cut off may be
    # the noise of another thread.
    return answered_id(line) if line.rstrip().endswith(b"}") else None
