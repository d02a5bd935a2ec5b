"""Real processes for tests: each in a group of its own, none left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
_KEPT_BYTES = 1_000_000

# The kernel kills the process when the thread that started it ends, killed or not.
_TETHER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(sys.argv[1]):
    sys.exit("its parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


def tethered(command: Sequence[str]) -> list[str]:
    """The command, ended when the calling process ends in whatever way. It starts with a path.

    For processes started by the main thread: threads that end count as parents that end.
    """
    return [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid()), *command]


class Running:
    """A process and what it printed, both streams together.

    As an async context manager it is started on entry and gone on exit, with all its descendants,
    however the test ends.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        only_env: bool = False,
        cwd: Path = ROOT,
    ) -> None:
        """`env` is added to the environment of the tests, or is all of it."""
        self.command = list(command)
        self.env = {**({} if only_env else os.environ), **(env or {})}
        self._cwd = cwd
        self.log = ""
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._printed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if fault is not None and self.log:
            fault.add_note(f"--- {' '.join(self.command)[-200:]} printed:\n{self.log[-8000:]}")
        await self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self.env,
            cwd=self._cwd,
            start_new_session=True,
        )
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while data := await self._process.stdout.read(65536):
            async with self._printed:
                self.log = (self.log + data.decode("utf-8", "replace"))[-_KEPT_BYTES:]
                self._printed.notify_all()
        async with self._printed:
            self._printed.notify_all()

    async def printed(self, pattern: str, timeout: float = 30) -> re.Match[str]:
        """Wait until the log matches `pattern`; fails when the process ends before."""
        assert self._reader is not None
        found: re.Match[str] | None = None

        def arrived() -> bool:
            nonlocal found
            found = re.search(pattern, self.log, re.MULTILINE)
            return found is not None or self._reader is None or self._reader.done()

        async with asyncio.timeout(timeout), self._printed:
            while not arrived():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._printed.wait(), 0.5)
        if found is None:
            raise AssertionError(f"{self.command} ended without printing {pattern!r}")
        return found

    def send(self, number: signal.Signals) -> None:
        """Signal the process itself."""
        os.kill(self.pid, number)

    async def exited(self, timeout: float = 30) -> int:
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), timeout)

    def descendants(self) -> list[psutil.Process]:
        """All processes below this one, in whatever group they are."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True)
        return []

    async def stop(self) -> None:
        """SIGKILL to everything that is left. Idempotent."""
        if self._process is None:
            return
        below = self.descendants()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        await self._process.wait()
        if self._reader is not None:
            # A descendant in another session may hold the pipe: its end is not waited for.
            await asyncio.wait({self._reader}, timeout=2)
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        transport = self._process._transport  # type: ignore[attr-defined]
        transport.close()
        self._process = self._reader = None


def alive(pids: Sequence[int]) -> list[int]:
    """Those of the processes that still run; zombies do not."""
    running = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                running.append(pid)
    return running


async def until(
    holds: Callable[[], bool], timeout: float = 10, *, what: str = "it did not happen"
) -> None:
    """Poll something that nobody announces: a file, a process of another process."""
    try:
        async with asyncio.timeout(timeout):
            while not holds():  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{what} within {timeout} s") from None
