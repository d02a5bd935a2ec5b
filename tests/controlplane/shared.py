"""One control plane for all workers of a test run.

A keeper process owns it. Who uses it holds a shared lock on the file `users`; the kernel drops the
lock when its holder ends, killed or not, and the keeper, which tries for the lock itself, then ends
the control plane and itself. `python -m tests.controlplane.shared FOLDER` is the keeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.controlplane import binaries
from tests.controlplane.plane import ControlPlane
from tests.harness.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

_START_SECONDS: Final = 90.0


class KeeperError(Exception):
    """The shared control plane did not start; with what its keeper said."""


@contextlib.contextmanager
def shared_plane(folder: Path) -> Iterator[Path]:
    """The folder of a running control plane, as `ControlPlane` leaves it; started if need be.

    It runs at least until the block ends. Blocks while another process starts it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "starting").open("w") as starting, (folder / "users").open("w") as users:
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)  # waits for a keeper that is about to end
        if not is_kept(folder):
            (folder / "ready").unlink(missing_ok=True)
            _start_keeper(folder)
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield Path((folder / "ready").read_text())


def is_kept(folder: Path) -> bool:
    """Whether there is a keeper that is ready, and was not killed."""
    with (folder / "kept").open("w") as kept:
        return (folder / "ready").exists() and not _nobody_holds(kept)


def _start_keeper(folder: Path) -> None:
    """Its parent ends at once, so that it is nobody's child that a test might call left behind."""
    command = [sys.executable, "-m", "tests.controlplane.shared", str(folder)]
    with (folder / "keeper.log").open("ab") as log:
        subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=True, timeout=30)  # noqa: S603
    deadline = time.monotonic() + _START_SECONDS
    while not (folder / "ready").exists():
        if (folder / "failed").exists() or time.monotonic() > deadline:
            (folder / "failed").unlink(missing_ok=True)
            raise KeeperError((folder / "keeper.log").read_text()[-8000:])
        time.sleep(0.05)


async def _keep(folder: Path) -> None:
    """Run a control plane until nobody uses it, or SIGTERM."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    programs = binaries.control_plane()
    here = folder / f"plane-{os.getpid()}"
    with (folder / "kept").open("w") as kept, (folder / "users").open("w") as users:
        fcntl.flock(kept, fcntl.LOCK_EX)
        async with ControlPlane(here, programs):
            ready = folder / "ready"
            (folder / "ready.new").write_text(str(here))
            (folder / "ready.new").rename(ready)
            try:
                while not _nobody_holds(users):  # noqa: ASYNC110 - a lock announces nothing
                    await asyncio.sleep(0.2)
            finally:
                ready.unlink()


def _nobody_holds(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def main(folder: Path) -> None:
    if os.fork() > 0:
        os._exit(0)
    os.setsid()
    try:
        asyncio.run(_keep(folder))
    except asyncio.CancelledError:
        pass
    except BaseException:
        (folder / "failed").touch()
        raise


if __name__ == "__main__":
    main(Path(sys.argv[1]))
