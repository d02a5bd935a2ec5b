"""A long-running program that writes its log to a file: ended with us, and by its id only."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

from tests.harness.processes import tethered

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LOG_CHARACTERS = 4000


class Program:
    """Starts, stops and restarts one program; a restart appends to the same log.

    Started by the main thread only: it is ended by the kernel when that thread ends.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.returncode is not None

    def log(self) -> str:
        """The end of what it said."""
        return self._log.read_text(errors="replace")[-_LOG_CHARACTERS:]

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *tethered(self._command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def stop(self, grace: float = 5) -> None:
        """SIGTERM, and SIGKILL after `grace` seconds. Idempotent."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
                self._process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), grace)
        await self.kill()

    async def kill(self) -> None:
        """SIGKILL: as a machine that loses power. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def send(self, number: signal.Signals) -> None:
        """Signal it, for instance SIGSTOP."""
        assert self._process is not None, f"{self.name} does not run"
        self._process.send_signal(number)
