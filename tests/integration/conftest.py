"""What holds for every test with processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    """A test that leaves a process behind fails, and the process is ended."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    yield
    left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    _, left = psutil.wait_procs(left, timeout=2)
    commands = []
    for process in left:
        try:
            commands.append(" ".join(process.cmdline()))
            process.kill()
        except psutil.NoSuchProcess:
            continue
    assert not commands, f"left behind: {commands}"
