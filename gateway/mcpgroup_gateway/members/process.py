"""A child process in a group of its own, on the event loop.

The whole group is killed whenever its leader has gone, however it went, so that no grandchild
survives; on Linux before the leader is reaped, while its group id cannot have been taken over.
When the gateway itself is killed hard, the members see the end of their input, which is how MCP
ends a stdio server; a parent-death signal would need code between fork and exec, unsafe with
threads, or a wrapper program that not every system has.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.members.pipes import CONTROL_BYTES, InputPipe, OutputPipe

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from mcpgroup_gateway.members.pipes import OutgoingLine

#: How long a process may run on after it closed its output.
_CLOSED_SECONDS: Final = 0.25
_POLL_SECONDS: Final = 0.05
#: How long the kernel may take to end a process after SIGKILL.
_KILL_SECONDS: Final = 5.0


class ChildProcess:
    """Owns one running process and its pipes until the process is reaped.

    `on_output` and `on_errors` take each chunk of stdout and stderr and return true to have the
    stream read more slowly. `on_end` is called once, with a clause such as `exited with code 1`,
    when the process has ended or closed its output, after the last chunk.
    """

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        *,
        on_output: Callable[[bytes], bool],
        on_errors: Callable[[bytes], bool],
        on_end: Callable[[str], None],
    ) -> None:
        assert popen.stdin is not None  # noqa: S101 - all three are pipes
        assert popen.stdout is not None  # noqa: S101
        assert popen.stderr is not None  # noqa: S101
        self.pid = popen.pid
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._ended = False
        self._ending = False
        self._timer: asyncio.TimerHandle | None = None
        self._exit: asyncio.Future[None] = self._loop.create_future()
        self._input = InputPipe(self._loop, popen.stdin, self._closed)
        self._output = OutputPipe(self._loop, popen.stdout.fileno(), on_output, self._closed)
        self._errors = OutputPipe(self._loop, popen.stderr.fileno(), on_errors, None)
        self._pidfd: int | None = None
        self._watch()

    @property
    def exited(self) -> bool:
        return self._exit.done()

    def write(self, line: OutgoingLine) -> None:
        """Write a line, or keep it until the process has read what is before it."""
        self._input.write(line)

    def withdraw(self, line: OutgoingLine) -> None:
        """Forget a line of which nothing was sent."""
        self._input.withdraw(line)

    def write_control(self, data: bytes, allowance: int = CONTROL_BYTES) -> bool:
        """Write a line of our own; False when with it more than `allowance` bytes would wait."""
        return self._input.write_control(data, allowance)

    def shutdown(self, eof_seconds: float, term_seconds: float) -> None:
        """Begin the orderly end: EOF, then SIGTERM to the group, then SIGKILL. Idempotent."""
        if self._ending or self.exited:
            return
        self._ending = True
        self._input.close()
        self._schedule(eof_seconds, self._terminate, term_seconds)

    def kill(self) -> None:
        """SIGKILL to the group."""
        self._ending = True
        self._input.close()
        if not self.exited:
            self._signal(signal.SIGKILL)

    def when_reaped(self, callback: Callable[[], None]) -> None:
        """Call back once when the process is gone."""
        self._exit.add_done_callback(lambda _: callback())

    async def wait(self, seconds: float) -> bool:
        """Wait until the process is reaped; False when that takes more than `seconds` and the
        time that the kernel may take."""
        done, _ = await asyncio.wait({self._exit}, timeout=seconds + _KILL_SECONDS)
        return bool(done)

    def _terminate(self, term_seconds: float) -> None:
        self._signal(signal.SIGTERM)
        self._schedule(term_seconds, self.kill)

    def _signal(self, number: signal.Signals) -> None:
        # PermissionError: a member of the group changed its user; macOS: the leader is a zombie.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _schedule(self, seconds: float, step: Callable[..., None], *args: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, step, *args)

    def _closed(self, what: str) -> None:
        """Stdin or stdout was closed by the process: it is about to exit, or of no use."""
        if not self._ending and not self.exited:
            self._ending = True
            self._schedule(_CLOSED_SECONDS, self._abandon, f"closed its standard {what}")

    def _abandon(self, reason: str) -> None:
        self._end(reason)
        self.kill()

    def _end(self, reason: str) -> None:
        if not self._ended:
            self._ended = True
            self._on_end(reason)

    def _watch(self) -> None:
        if sys.platform == "linux":
            self._pidfd = os.pidfd_open(self.pid)
            self._loop.add_reader(self._pidfd, self._reap)
        else:
            self._loop.call_later(_POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        if self._popen.poll() is None:
            self._loop.call_later(_POLL_SECONDS, self._poll)
        else:
            self._reap()

    def _reap(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        if self._timer is not None:
            self._timer.cancel()
        self._signal(signal.SIGKILL)
        self._input.close()
        self._output.finish()
        self._errors.finish()
        code = self._popen.wait()  # at once: it is dead
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            assert pipe is not None  # noqa: S101
            pipe.close()
        self._exit.set_result(None)
        self._end(_exit_reason(code))


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"
