"""A process's pipes on the event loop: callbacks, no task, no thread, no stream object.

Writing says exactly which line had a byte handed to the operating system, which decides whether a
call may run again elsewhere.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_CHUNK: Final = 65536
#: Lines of our own (answers to pings, cancellations) that may wait for a member that reads nothing.
CONTROL_BYTES: Final = 262144
#: A stream that floods is read this often.
_SLOW_SECONDS: Final = 0.01
#: What is read of a dead process's output at most; a pipe holds 64 KiB.
_REMAINDER_CHUNKS: Final = 32


class OutgoingLine:
    """One line to write; `sent` becomes true when its first byte is in the pipe."""

    __slots__ = ("data", "sent")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sent = False


class OutputPipe:
    """Reads one pipe, a chunk each time the loop comes round, so that others have their turn."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        on_data: Callable[[bytes], bool],
        on_closed: Callable[[str], None] | None,
    ) -> None:
        os.set_blocking(fd, False)
        self._loop = loop
        self._fd = fd
        self._on_data = on_data
        self._on_closed = on_closed
        self._open = True
        self._pause: asyncio.TimerHandle | None = None
        loop.add_reader(fd, self._readable)

    def finish(self) -> None:
        """Read what is there already, then stop."""
        for _ in range(_REMAINDER_CHUNKS):
            data = self._read() if self._open else b""
            if not data:
                break
            self._on_data(data)
        self._stop()

    def _readable(self) -> None:
        data = self._read()
        if data is None:
            return
        if not data:
            self._stop()
            if self._on_closed is not None:
                self._on_closed("output")
        elif self._on_data(data):
            self._loop.remove_reader(self._fd)
            self._pause = self._loop.call_later(_SLOW_SECONDS, self._resume)

    def _read(self) -> bytes | None:
        """A chunk, nothing at the end of the stream, None when there is nothing yet."""
        try:
            return os.read(self._fd, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b""

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._fd, self._readable)

    def _stop(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._fd)


class InputPipe:
    """Writes lines in order as far as the process reads them.

    Requests wait here at no cost: their bytes exist anyway, and their number is bounded by the
    gateway's own limit. A request that was given up before its first byte is taken out again.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pipe: IO[bytes], on_closed: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._pipe = pipe
        self._fd = pipe.fileno()
        os.set_blocking(self._fd, False)
        self._on_closed = on_closed
        self._open = True
        self._waiting: deque[OutgoingLine] = deque()
        self._offset = 0  # bytes of the first waiting line that are written
        self._control: set[OutgoingLine] = set()
        self._control_bytes = 0
        self._watching = False

    def write(self, line: OutgoingLine) -> None:
        self._waiting.append(line)
        if not self._watching:
            self._flush()

    def write_control(self, data: bytes, allowance: int) -> bool:
        if self._control_bytes + len(data) > allowance:
            return False
        line = OutgoingLine(data)
        self._control.add(line)
        self._control_bytes += len(data)
        self.write(line)
        return True

    def withdraw(self, line: OutgoingLine) -> None:
        if not line.sent:
            with contextlib.suppress(ValueError):
                self._waiting.remove(line)

    def close(self) -> None:
        """EOF for the process; what waits is dropped."""
        if self._open:
            self._open = False
            self._watch(active=False)
            self._waiting.clear()
            self._control.clear()
            self._pipe.close()

    def _flush(self) -> None:
        while self._open and self._waiting:
            line = self._waiting[0]
            try:
                written = os.write(self._fd, memoryview(line.data)[self._offset :])
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self._waiting.clear()
                self._on_closed("input")
                break
            line.sent = True
            self._offset += written
            if self._offset == len(line.data):
                self._offset = 0
                self._waiting.popleft()
                self._done(line)
        self._watch(active=bool(self._open and self._waiting))

    def _done(self, line: OutgoingLine) -> None:
        if line in self._control:
            self._control.discard(line)
            self._control_bytes -= len(line.data)
        line.data = b""

    def _watch(self, *, active: bool) -> None:
        if active and not self._watching:
            self._loop.add_writer(self._fd, self._flush)
        elif self._watching and not active:
            self._loop.remove_writer(self._fd)
        self._watching = active
