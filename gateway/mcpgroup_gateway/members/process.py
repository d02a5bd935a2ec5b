"""A child process in a group of its own, with its three pipes, on the event loop.

Everything here is callbacks and timers of the loop: no task, no thread, no stream object. Writing
says exactly which line had a byte handed to the operating system, which decides whether a call may
run again elsewhere.

The whole group is killed whenever its leader has gone, however it went, so that no grandchild
survives; on Linux before the leader is reaped, while its group id cannot have been taken over.
When the gateway itself is killed hard, the members see the end of their input, which is how MCP
ends a stdio server; a parent-death signal would need code between fork and exec, unsafe with
threads, or a wrapper program that not every system has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import subprocess
import sys
from collections import deque
from typing import IO, TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

#: The variables that a member gets from the gateway's own environment (the convention of the SDKs).
SAFE_VARIABLES: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
_CHUNK: Final = 65536
#: Lines of our own (answers to pings, cancellations) that may wait for a member that reads nothing.
_CONTROL_BYTES: Final = 262144
#: A stream that floods is read this often.
_SLOW_SECONDS: Final = 0.01
#: How long a process may run on after it closed its output.
_CLOSED_SECONDS: Final = 0.25
#: What is read of a dead process's output at most; a pipe holds 64 KiB.
_REMAINDER_CHUNKS: Final = 32
_POLL_SECONDS: Final = 0.05
#: How long the kernel may take to end a process after SIGKILL.
_KILL_SECONDS: Final = 5.0


class OutgoingLine:
    """One line to write; `sent` becomes true when its first byte is in the pipe."""

    __slots__ = ("data", "sent")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sent = False


def member_environment(declared: Mapping[str, str]) -> dict[str, str]:
    """The safe-list of the gateway's environment and what the manifest declares, nothing else."""
    inherited = {name: os.environ[name] for name in SAFE_VARIABLES if name in os.environ}
    return {**inherited, **declared}


def spawn(
    command: list[str], env: dict[str, str], working_dir: str | None, memory_limit_mib: int
) -> subprocess.Popen[bytes]:
    """Start `command` in a new session. Raises `MemberFailure`.

    The memory limit (MiB, 0 for none) counts the private writable memory of each process of the
    group (RLIMIT_DATA): address space as such costs nothing, and node reserves gigabytes of it.
    """
    try:
        popen = subprocess.Popen(  # noqa: S603 - the command is the manifest's, no shell
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=working_dir,
            env=env,
            start_new_session=True,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as fault:
        raise _not_started(command[0], working_dir, fault) from fault
    except (OSError, ValueError) as fault:
        reason = f"cannot start {command[0]!r}: {fault}"
        raise MemberFailure(Failure.START_FAILED, reason, sent=False) from fault
    if memory_limit_mib:
        _limit_memory(popen.pid, memory_limit_mib * 1024 * 1024)
    return popen


def _not_started(program: str, working_dir: str | None, fault: OSError) -> MemberFailure:
    # The working directory is named in the fault when it is to blame and not the program.
    if working_dir is not None and fault.filename == working_dir:
        reason = f"cannot enter the working directory {working_dir!r}: {fault.strerror}"
        return MemberFailure(Failure.START_FAILED, reason, sent=False)
    if isinstance(fault, PermissionError):
        reason = f"the command {program!r} may not be executed"
    elif "/" in program:
        reason = f"the command {program!r} does not exist"
    else:
        reason = f"the command {program!r} was not found on PATH"
    return MemberFailure(Failure.COMMAND_NOT_FOUND, reason, sent=False)


def _limit_memory(pid: int, limit: int) -> None:
    if sys.platform != "linux":
        log.warning("memoryLimitMiB has no effect on %s", sys.platform)
        return
    with contextlib.suppress(ProcessLookupError):  # it may have exited already
        resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))


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
        self._input = _InputPipe(self._loop, popen.stdin, self._closed)
        self._output = _OutputPipe(self._loop, popen.stdout.fileno(), on_output, self._closed)
        self._errors = _OutputPipe(self._loop, popen.stderr.fileno(), on_errors, None)
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

    def write_control(self, data: bytes) -> bool:
        """Write a line of our own; False when too many of them wait already."""
        return self._input.write_control(data)

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


class _OutputPipe:
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


class _InputPipe:
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

    def write_control(self, data: bytes) -> bool:
        if self._control_bytes + len(data) > _CONTROL_BYTES:
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
