"""Control planes start, end and come back as they should, whatever happens to their users."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.controlplane.shared import is_kept, shared_plane
from tests.harness.processes import ROOT, alive, until

if TYPE_CHECKING:
    from tests.controlplane.private import PrivatePlane

USER = """
import sys
from pathlib import Path
from tests.controlplane.shared import shared_plane
with shared_plane(Path(sys.argv[1])) as plane:
    print(plane, flush=True)
    sys.stdin.read()
"""


async def test_what_was_written_is_there_after_the_server_was_killed(private: PrivatePlane) -> None:
    plane, cluster = await private.start(controllers=False)
    async with cluster.api("default") as api:
        await api.create("configmaps", {"metadata": {"name": "a"}})
        await plane.api_server.kill()
        await plane.api_server.start()
        await plane.ready()
        assert await api.find("configmaps", "a") is not None


def programs_of(plane: Path) -> list[int]:
    """The processes of a control plane in this folder, and its keeper."""
    keeper = int(plane.name.removeprefix("plane-"))
    running = psutil.process_iter(["pid", "cmdline"])
    programs = [p.pid for p in running if str(plane) in " ".join(p.info["cmdline"] or ())]
    return [keeper, *programs]


@pytest.fixture
def programs_exist(programs: dict[str, Path]) -> None:
    """They are not built in the middle of a test."""


@pytest.mark.usefixtures("programs_exist")
async def test_users_at_once_share_one_and_it_ends_with_the_last_even_when_killed(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", USER, str(tmp_path / "shared")]
    users = [
        await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    said = {(await u.stdout.readline()).decode().strip() for u in users if u.stdout is not None}
    (plane,) = [Path(line) for line in said]
    running = programs_of(plane)
    try:
        assert len(running) == 4  # keeper, etcd, API server, controller manager
        for user in users[1:]:
            user.kill()
            await user.wait()
        assert alive(running) == running
        users[0].kill()
        await users[0].wait()
        await until(lambda: not alive(running), what="the control plane ended")
        assert not (plane / "etcd").exists()
    finally:
        for user in users:
            if user.returncode is None:
                user.kill()
                await user.wait()


@pytest.mark.usefixtures("programs_exist")
async def test_programs_end_with_a_killed_keeper_and_the_next_user_starts_others(
    tmp_path: Path,
) -> None:
    def use_one_and_kill_its_keeper() -> list[int]:
        with shared_plane(tmp_path / "shared") as plane:
            running = programs_of(plane)
            os.kill(running[0], signal.SIGKILL)
            return running

    first = await asyncio.to_thread(use_one_and_kill_its_keeper)
    await until(lambda: not alive(first), what="the programs ended")
    await until(lambda: not is_kept(tmp_path / "shared"), what="the keeper's files were closed")
    second = await asyncio.to_thread(use_one_and_kill_its_keeper)
    assert not set(first) & set(second)
    await until(lambda: not alive(second), what="the programs ended")
