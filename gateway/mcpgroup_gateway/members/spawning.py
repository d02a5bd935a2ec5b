"""Starting a member's process: its environment, its limits, what to say when it cannot start."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

#: The variables that a member gets from the gateway's own environment (the convention of the SDKs).
SAFE_VARIABLES: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")


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
