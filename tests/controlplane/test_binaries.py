"""The programs are found, or built once, whoever else builds or whatever interrupted it before."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.controlplane import binaries
from tests.harness.processes import ROOT, Running, until

GO = """#!/bin/sh
case $1 in
mod) echo '{"GoMod": "'$FAKE/theirs.mod'"}';;
build)
  echo build >>$FAKE/log
  while [ -e $FAKE/slow ]; do sleep 0.05; done
  while [ "$1" != -o ]; do shift; done
  folder=$2; shift 2
  for package; do printf '#!/bin/sh\\necho ours\\n' >$folder/${package##*/}; done
  chmod +x $folder/*;;
esac
"""
OTHER = """#!/bin/sh
echo "Kubernetes v1.VERSION.0"
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only programs on PATH are in this folder; with a Go that takes no time, and an etcd."""
    folder = tmp_path / "fake"
    folder.mkdir()
    monkeypatch.setenv("FAKE", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(folder))
    for name in ("sh", "sleep", "chmod"):
        (folder / name).symlink_to(Path("/bin") / name)
    (folder / "theirs.mod").write_text("go 1.24.0\n\nrequire (\n\tk8s.io/api v0.0.0\n)\n")
    program(folder, "go", GO)
    program(folder, "etcd", OTHER)
    return folder


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def builds(fake: Path) -> int:
    return len((fake / "log").read_text().splitlines()) if (fake / "log").exists() else 0


def finder() -> Running:
    command = [sys.executable, "-m", "tests.controlplane.binaries"]
    return Running(command, {"PYTHONPATH": str(ROOT), **os.environ})


def test_what_is_missing_is_built_once(fake: Path) -> None:
    assert not binaries.are_there()
    first = binaries.control_plane()
    assert binaries.are_there()
    assert first == binaries.control_plane()
    assert builds(fake) == 1
    assert first["kubectl"].read_text().endswith("echo ours\n")
    assert first["etcd"] == fake / "etcd"
    module = (binaries.cache() / "kubernetes-1.34.4" / "go.mod").read_text()
    assert "replace k8s.io/api => k8s.io/api v0.34.4" in module


async def test_two_at_once_build_once(fake: Path) -> None:
    (fake / "slow").touch()
    async with finder() as one, finder() as two:
        await until(lambda: builds(fake) > 0)
        waiting = [asyncio.ensure_future(p.printed("waiting for another")) for p in (one, two)]
        _, other = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        (fake / "slow").unlink()
        assert [await one.exited(), await two.exited()] == [0, 0]
        for still in other:
            still.cancel()
        await asyncio.wait(waiting)
    assert builds(fake) == 1


@pytest.mark.parametrize("end", ["terminate", "kill"])
async def test_an_interrupted_build_leaves_nothing_that_is_taken_for_done(
    fake: Path, end: str
) -> None:
    (fake / "slow").touch()
    async with finder() as interrupted:
        await until(lambda: builds(fake) > 0)
        if end == "terminate":
            interrupted.send(signal.SIGTERM)
            assert await interrupted.exited() == 143
    folder = binaries.cache() / "kubernetes-1.34.4"
    assert list((folder / "bin").iterdir()) == []
    (fake / "slow").unlink()
    binaries.control_plane()
    assert builds(fake) == 2
    assert list(folder.glob("unfinished-*")) == []


def test_without_go_the_reason_is_plain(fake: Path) -> None:
    (fake / "go").unlink()
    with pytest.raises(binaries.CannotBuildError, match="no Go to build kube-apiserver, kube-"):
        binaries.control_plane()


def test_without_etcd_the_reason_is_plain(fake: Path) -> None:
    (fake / "go").unlink()
    (fake / "etcd").unlink()
    with pytest.raises(binaries.CannotBuildError, match="no etcd: neither Debian's package"):
        binaries.control_plane()


def test_a_build_that_fails_says_why(fake: Path) -> None:
    program(fake, "go", "#!/bin/sh\necho no network >&2; exit 1\n")
    with pytest.raises(binaries.CannotBuildError, match="no network"):
        binaries.control_plane()


@pytest.mark.parametrize(("version", "taken"), [("30", True), ("29", False)])
def test_a_program_on_path_is_taken_unless_it_is_old(fake: Path, version: str, taken: bool) -> None:
    for name in binaries.KUBERNETES_PROGRAMS:
        program(fake, name, OTHER.replace("VERSION", version))
    found = binaries.control_plane()
    assert (found["kube-apiserver"].parent == fake) is taken
    assert (found["kubectl"].parent == fake) is taken
    assert (builds(fake) == 0) is taken
