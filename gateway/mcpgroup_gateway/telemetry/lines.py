"""Lines of text that leave the process without ever holding up the event loop.

`LineWriter` takes lines into a bounded buffer; one thread of its own writes them in large chunks.
A slow terminal, a full pipe or a full disk costs lines, which are counted, and never a call.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

#: Bytes that may wait for the writer.
MAX_PENDING_BYTES: Final = 4 * 1024 * 1024
#: How long lines are gathered before they are written.
GATHER_SECONDS: Final = 0.1
#: How long `close` waits for a destination that does not take bytes.
CLOSE_SECONDS: Final = 2.0
#: Predecessors of a rotated file: FILE.1 (the youngest) to FILE.3.
KEPT_FILES: Final = 3


class Destination(Protocol):
    """Where lines go. Called in the writer's thread only, and may block it."""

    def write(self, data: bytes) -> None:
        """Write all of it. Raises OSError when it cannot."""
        ...

    def close(self) -> None: ...


class Descriptor:
    """A file descriptor that stays open, such as stderr."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # somebody else made it non-blocking
                select.select([], [self._descriptor], [], 1.0)

    def close(self) -> None:
        """The descriptor is not ours."""


class RotatedFile:
    """A file that is renamed to FILE.1 (FILE.1 to FILE.2 …) before it grows over `max_bytes`.

    Created for its owner only: a request log tells who asked for what.
    """

    def __init__(self, path: Path, max_bytes: int, kept: int = KEPT_FILES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._kept = kept
        self._descriptor: int | None = None
        self._size = 0

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            descriptor = self._open()
            room = self._max_bytes - self._size
            part = rest
            if len(rest) > room:
                # Rotate between lines only; a line longer than a whole file gets one of its own.
                end = bytes(rest[: max(room, 0)]).rfind(b"\n") + 1
                if end == 0 and self._size > 0:
                    self._rotate()
                    continue
                part = rest[: end or bytes(rest).find(b"\n") + 1 or len(rest)]
            written = os.write(descriptor, part)
            self._size += written
            rest = rest[written:]

    def _open(self) -> int:
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
            self._size = os.fstat(self._descriptor).st_size
        return self._descriptor

    def _rotate(self) -> None:
        self.close()
        name = self._path.name
        older = [self._path.with_name(f"{name}.{age}") for age in range(1, self._kept + 1)]
        for newer, target in reversed(list(pairwise([self._path, *older]))):
            with contextlib.suppress(FileNotFoundError):
                newer.replace(target)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class LineWriter:
    """Takes complete lines from one thread (the event loop's) and writes them in another.

    `notice` makes a line that tells how many were lost, written as soon as lines can be written
    again. Call `close` at the end: what still waits is written, for at most two seconds.
    """

    def __init__(
        self,
        destination: Destination,
        *,
        notice: Callable[[int], bytes] | None = None,
        max_pending_bytes: int = MAX_PENDING_BYTES,
        gather_seconds: float = GATHER_SECONDS,
    ) -> None:
        self._destination = destination
        self._notice = notice or _notice
        self._max_pending = max_pending_bytes
        self._gather = gather_seconds
        self._lines: deque[bytes] = deque()
        # Each number has one writing thread, so that none needs a lock.
        self._taken_in = 0  # bytes, by `write`
        self._written = 0  # bytes taken out again, by the thread
        self._refused = 0  # lines, by `write`
        self._failed = 0  # lines, by the thread
        self._told = 0  # lost lines that a notice told of, by the thread
        self._has_lines = threading.Event()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines lost so far: the buffer was full, or the destination failed."""
        return self._refused + self._failed

    def write(self, line: bytes) -> bool:
        """Take one line that ends in a newline; False when it was dropped. Never blocks."""
        if self._is_closed.is_set() or self._taken_in - self._written > self._max_pending:
            self._refused += 1
            return False
        self._taken_in += len(line)
        self._lines.append(line)
        if not self._has_lines.is_set():
            self._has_lines.set()
        return True

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Write what waits, then stop. A destination that blocks for ever is left behind."""
        self._is_closed.set()
        self._has_lines.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._is_closed.is_set():
            self._has_lines.wait()
            self._is_closed.wait(self._gather)
            self._has_lines.clear()
            self._drain()
        self._drain()
        with contextlib.suppress(OSError):
            self._destination.close()

    def _drain(self) -> None:
        lines = self._lines
        while count := len(lines):
            chunk = [lines.popleft() for _ in range(min(count, 1000))]
            data = b"".join(chunk)
            lost = self.dropped - self._told
            try:
                self._destination.write(self._notice(lost) + data if lost else data)
            except OSError:  # a full disk, a closed pipe: serving goes on
                self._failed += len(chunk)
            else:
                self._told += lost
            self._written += len(data)


def _notice(lost: int) -> bytes:
    return line_of(
        {
            "time": rfc3339(time.time()),
            "kind": "log",
            "level": "Warning",
            "logger": "mcpgroup.telemetry",
            "message": f"{lost} lines lost: they could not be written fast enough, or at all",
        }
    )


def line_of(record: Mapping[str, object]) -> bytes:
    """A record as one line of JSON."""
    try:
        return msgspec.json.encode(record) + b"\n"
    except (UnicodeEncodeError, msgspec.MsgspecError, ValueError):
        # Half a surrogate pair, which some servers write; only escapes can carry it.
        return json.dumps(record, default=str).encode() + b"\n"


def rfc3339(unix_time: float) -> str:
    """`2026-11-30T12:00:00.123Z`."""
    whole, fraction = divmod(unix_time, 1)
    return f"{_second(int(whole))}.{int(fraction * 1000):03d}Z"


_last_second: tuple[int, str] = (-1, "")


def _second(second: int) -> str:
    """Formatted once a second, whatever the rate of lines."""
    global _last_second
    if _last_second[0] != second:
        _last_second = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
    return _last_second[1]
