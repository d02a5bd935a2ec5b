"""The line writer against destinations that are slow, full or gone; no real I/O."""

from __future__ import annotations

import json
import threading

from mcpgroup_gateway.telemetry.lines import LineWriter


class Recording:
    def __init__(self) -> None:
        self.data = b""
        self.closed = False
        self.error: OSError | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.called = threading.Event()

    def write(self, data: bytes) -> None:
        self.called.set()
        self.gate.wait(10)
        if self.error is not None:
            raise self.error
        self.data += data

    def close(self) -> None:
        self.closed = True


def test_lines_arrive_whole_and_in_order_and_close_writes_what_waits() -> None:
    recording = Recording()
    writer = LineWriter(recording, gather_seconds=60)
    lines = [b"%d\n" % n for n in range(5000)]
    assert all(writer.write(line) for line in lines)
    writer.close()
    assert recording.data == b"".join(lines)
    assert recording.closed
    assert writer.dropped == 0


def test_a_destination_that_blocks_costs_lines_and_never_the_caller() -> None:
    recording = Recording()
    recording.gate.clear()
    writer = LineWriter(recording, max_pending_bytes=1000, gather_seconds=0)
    writer.write(b"first\n")
    assert recording.called.wait(10)
    taken = sum(writer.write(b"x" * 99 + b"\n") for _ in range(100))
    assert taken < 15
    assert writer.dropped == 100 - taken
    recording.gate.set()
    writer.close()
    assert recording.data.count(b"x\n") == taken
    assert f"{100 - taken} lines lost".encode() in recording.data


def test_a_full_disk_is_counted_and_told_once_lines_can_be_written_again() -> None:
    recording = Recording()
    recording.error = OSError(28, "No space left on device")
    writer = LineWriter(recording, gather_seconds=0)
    writer.write(b"lost\n")
    assert recording.called.wait(10)
    while writer.dropped == 0:
        threading.Event().wait(0.001)
    recording.error = None
    writer.write(b"kept\n")
    writer.close()
    notice, kept = recording.data.splitlines()
    assert json.loads(notice)["message"].startswith("1 lines lost")
    assert kept == b"kept"
    assert writer.dropped == 1


def test_closing_does_not_wait_for_ever_for_a_destination_that_does_not_take_bytes() -> None:
    recording = Recording()
    recording.gate.clear()
    writer = LineWriter(recording, gather_seconds=0)
    writer.write(b"x\n")
    writer.close(timeout=0.05)
    assert not writer.write(b"after\n")
    recording.gate.set()
