"""Rotated files and pipes, on a real file system."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mcpgroup_gateway.telemetry.lines import Descriptor, LineWriter, RotatedFile

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_rotates_between_lines_and_keeps_three_predecessors(tmp_path: Path) -> None:
    path = tmp_path / "requests.log"
    file = RotatedFile(path, max_bytes=100)
    for n in range(100):
        file.write(b"%039d\n" % n)
    file.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "requests.log",
        "requests.log.1",
        "requests.log.2",
        "requests.log.3",
    ]
    kept = b"".join(
        (tmp_path / name).read_bytes()
        for name in ("requests.log.3", "requests.log.2", "requests.log.1", "requests.log")
    ).splitlines()
    assert kept == [b"%039d" % n for n in range(92, 100)]
    assert all(p.stat().st_size <= 100 for p in tmp_path.iterdir())
    assert path.stat().st_mode & 0o077 == 0


def test_a_chunk_larger_than_a_file_is_split_at_its_lines(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "r", max_bytes=100)
    lines = [b"x" * 29 + b"\n"] * 7
    file.write(b"".join(lines))
    file.close()
    sizes = {p.name: p.stat().st_size for p in tmp_path.iterdir()}
    assert sizes == {"r": 30, "r.1": 90, "r.2": 90}


def test_a_line_longer_than_a_file_gets_a_file_of_its_own(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "r", max_bytes=10)
    file.write(b"ab\n" + b"x" * 50 + b"\n" + b"cd\n")
    file.close()
    assert (tmp_path / "r.2").read_bytes() == b"ab\n"
    assert (tmp_path / "r.1").read_bytes() == b"x" * 50 + b"\n"
    assert (tmp_path / "r").read_bytes() == b"cd\n"


def test_a_file_goes_on_where_an_earlier_process_stopped(tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(b"old\n")
    file = RotatedFile(tmp_path / "r", max_bytes=100)
    file.write(b"new\n")
    file.close()
    assert (tmp_path / "r").read_bytes() == b"old\nnew\n"


def test_a_folder_that_appears_later_is_used_from_then_on(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "later" / "r", max_bytes=100)
    with pytest.raises(OSError, match="later"):
        file.write(b"lost\n")
    (tmp_path / "later").mkdir()
    file.write(b"kept\n")
    file.close()
    assert (tmp_path / "later" / "r").read_bytes() == b"kept\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_does_not_hurt_its_writer(tmp_path: Path) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    writer = LineWriter(Descriptor(descriptor), gather_seconds=0)
    for _ in range(10):
        assert writer.write(b"x\n")
    writer.close()
    os.close(descriptor)
    assert writer.dropped == 10


def test_a_non_blocking_pipe_gets_every_byte() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    writer = LineWriter(Descriptor(writing), gather_seconds=0)
    line = b"x" * 9999 + b"\n"
    for _ in range(50):
        assert writer.write(line)
    received = 0
    while received < 50 * len(line):
        received += len(os.read(reading, 65536))
    writer.close()
    os.close(reading)
    os.close(writing)
    assert writer.dropped == 0
