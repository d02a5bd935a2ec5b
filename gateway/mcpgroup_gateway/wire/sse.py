"""Server-sent events: an incremental parser and an encoder.

Source: WHATWG HTML, section 9.2. Lines end with LF, CRLF or CR; comments and unknown fields are
skipped; an event without data is not dispatched, but its `id` counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
KEEP_ALIVE: Final = b": keep-alive\n\n"
#: What is kept (bytes) of the beginning and of the end of an event that was skipped.
CUT_BYTES: Final = 256


class EventTooLarge(ValueError):
    """One event exceeded the parser's limit (bytes)."""


@dataclass(frozen=True, slots=True)
class Event:
    """`data` joins its lines with LF; `id` is the last event id seen so far, "" when none was.

    Of an event that is not `whole`, `data` is the beginning and the end.
    """

    data: bytes
    event: str
    id: str
    whole: bool = True


class EventParser:
    """Feed it bytes in any portions; it returns the events that were completed.

    `retry_seconds` is the reconnection time that the server asked for, None when it did not.
    `last_id` changes when an event is complete, so that a stream that breaks inside of an event is
    resumed before it. Memory is bounded by `max_event_bytes`; an event above it raises
    `EventTooLarge`, or with `skips` is read over and returned as one that is not whole.
    """

    def __init__(self, max_event_bytes: int, *, skips: bool = False) -> None:
        self._limit = max_event_bytes
        self._skips = skips
        self._cut: bytes | None = None
        self._tail = b""
        self._inside_line = False
        self._buffer = bytearray()
        self._scanned = 0
        self._data: list[bytes] = []
        self._size = 0
        self._event = ""
        self._skip_lf = False
        self._at_start = True
        self._next_id: str | None = None
        self.last_id = ""
        self.retry_seconds: float | None = None

    def feed(self, data: bytes) -> list[Event]:
        buffer = self._buffer
        if self._skip_lf and data:
            self._skip_lf = False
            if data[:1] == b"\n":
                data = data[1:]
        buffer += data
        if self._at_start:
            if len(buffer) < 3 and _BYTE_ORDER_MARK.startswith(buffer):
                return []
            self._at_start = False
            if buffer.startswith(_BYTE_ORDER_MARK):
                del buffer[:3]
        events: list[Event] = []
        start = 0
        position = self._scanned
        while True:
            lf = buffer.find(b"\n", position)
            # bytearray.find is bounded by lf: a CR behind it belongs to a later line.
            cr = buffer.find(b"\r", position, lf if lf >= 0 else len(buffer))
            if cr >= 0:
                end, following = cr, cr + 1
                if following == len(buffer):
                    self._skip_lf = True
                elif buffer[following] == 0x0A:
                    following += 1
            elif lf >= 0:
                end, following = lf, lf + 1
            else:
                break
            self._line(bytes(buffer[start:end]), events)
            start = position = following
        del buffer[:start]
        if len(buffer) + self._size > self._limit:
            self._exceeded(bytes(buffer[:CUT_BYTES]).removeprefix(b"data:"))
        if self._cut is not None and len(buffer) > CUT_BYTES:
            del buffer[:-CUT_BYTES]
            self._inside_line = True
        self._scanned = len(buffer)
        return events

    def _exceeded(self, rest: bytes) -> None:
        """The event is over the limit: fail, or forget all of it but its beginning."""
        if not self._skips:
            raise EventTooLarge(f"an event is larger than {self._limit} bytes")
        if self._cut is None:
            self._cut = b"\n".join([*self._data, rest])[:CUT_BYTES]
        self._data = []
        self._size = 0

    def _line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._next_id is not None:
                self.last_id = self._next_id
                self._next_id = None
            if self._cut is not None:
                cut = self._cut + self._tail
                events.append(Event(cut, self._event, self.last_id, whole=False))
                self._cut = None
                self._tail = b""
            elif self._data:
                events.append(Event(b"\n".join(self._data), self._event, self.last_id))
            self._data = []
            self._size = 0
            self._event = ""
            return
        if self._inside_line:
            self._inside_line = False
            self._tail = line[-CUT_BYTES:]
            return
        name, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            if self._cut is not None:
                self._tail = (self._tail + value)[-CUT_BYTES:]
                return
            self._data.append(value)
            self._size += len(value) + 1
            if self._size > self._limit:
                self._exceeded(b"")
                self._tail = value[-CUT_BYTES:]
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" not in value:
                self._next_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self.retry_seconds = int(value) / 1000


def encode_event(data: bytes, event_id: bytes = b"") -> bytes:
    """One `message` event around a JSON document; `event_id` has no line break.

    JSON may contain line breaks between its tokens; each line becomes a `data` field of its own.
    """
    head = b"event: message\nid: %b\n" % event_id if event_id else b"event: message\n"
    if b"\n" not in data and b"\r" not in data:
        return b"%bdata: %b\n\n" % (head, data)
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return b"%b%b\n\n" % (head, b"\n".join(b"data: " + line for line in lines))


def encode_priming(event_id: bytes, retry_milliseconds: int) -> bytes:
    """An event without data, from which a client learns an id and when to come back."""
    return b"id: %b\nretry: %d\ndata:\n\n" % (event_id, retry_milliseconds)
