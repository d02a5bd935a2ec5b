"""The programs of a Kubernetes control plane, found or built.

Each is looked for on `PATH`, then in `~/.cache/mcpgroup/build`, and else made there once: the
Kubernetes programs from the Go module `k8s.io/kubernetes` at a pinned version, etcd from Debian's
package (unpacked, not installed: no root needed) or, elsewhere, from its Go module.
`python -m tests.controlplane.binaries` makes them ahead of the tests and prints where they are.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KUBERNETES_VERSION: Final = "1.34.4"
ETCD_VERSION: Final = "3.6.6"
KUBERNETES_PROGRAMS: Final = ("kube-apiserver", "kube-controller-manager", "kubectl")

_BUILD_SECONDS: Final = 3000


class CannotBuildError(Exception):
    """A program is neither there nor can it be made here; the text says what is missing."""


def cache() -> Path:
    """Where built programs are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mcpgroup" / "build"


def control_plane() -> dict[str, Path]:
    """Paths by program name: etcd and `KUBERNETES_PROGRAMS`. Builds what is missing, which takes
    some minutes once; two callers at once wait for each other.

    Raises `CannotBuildError`.
    """
    cache().mkdir(parents=True, exist_ok=True)
    with _alone(cache() / "lock"):
        return {"etcd": _etcd(), **_kubernetes()}


def kubectl() -> Path:
    """kubectl alone, for a cluster that is there already.

    Raises `CannotBuildError`.
    """
    cache().mkdir(parents=True, exist_ok=True)
    with _alone(cache() / "lock"):
        return _kubernetes(["kubectl"])["kubectl"]


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _kubernetes(programs: Sequence[str] = KUBERNETES_PROGRAMS) -> dict[str, Path]:
    folder = cache() / f"kubernetes-{KUBERNETES_VERSION}"
    found = {name: _found(name, folder / "bin") for name in programs}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        _build_kubernetes(folder, missing)
    return {name: path or folder / "bin" / name for name, path in found.items()}


def _found(name: str, folder: Path) -> Path | None:
    """A program on `PATH` is taken in any version but kubectl: an old one lacks what tests use."""
    ours = folder / name
    if ours.exists():
        return ours
    on_path = None if name == "kubectl" else shutil.which(name)
    return Path(on_path) if on_path else None


def _build_kubernetes(folder: Path, programs: Sequence[str]) -> None:
    if shutil.which("go") is None:
        raise CannotBuildError(f"no Go to build {', '.join(programs)} {KUBERNETES_VERSION} with")
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    if not (folder / "go.mod").exists():
        _write_wrapper_module(folder)
    _say(f"building {', '.join(programs)} {KUBERNETES_VERSION} into {folder / 'bin'}, once")
    with tempfile.TemporaryDirectory(dir=folder) as unfinished:
        packages = [f"k8s.io/kubernetes/cmd/{name}" for name in programs]
        command = ["go", "build", "-mod=mod", "-trimpath", "-ldflags", _ldflags(), "-o"]
        _run([*command, f"{unfinished}/", *packages], folder)
        for name in programs:
            (Path(unfinished) / name).rename(folder / "bin" / name)


def _write_wrapper_module(folder: Path) -> None:
    """`k8s.io/kubernetes` cannot be `go install`ed: its go.mod asks for its staging modules as
    v0.0.0, found in its own tree. A module of our own maps each to the published v0.x tag."""
    download = ["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES_VERSION}"]
    with tempfile.TemporaryDirectory() as empty:
        described = json.loads(_run(download, Path(empty)))
    theirs = Path(described["GoMod"]).read_text()
    go_version = re.search(r"^go .*$", theirs, re.MULTILINE)
    staging = sorted(set(re.findall(r"^\s*(k8s\.io/[a-z-]+) v0\.0\.0$", theirs, re.MULTILINE)))
    published = "v0" + KUBERNETES_VERSION.removeprefix("1")
    lines = ["module build.local/kubernetes", go_version.group() if go_version else "go 1.24.0"]
    lines.append(f"require k8s.io/kubernetes v{KUBERNETES_VERSION}")
    lines += [f"replace {name} => {name} {published}" for name in staging]
    (folder / "go.mod.new").write_text("\n".join(lines) + "\n")
    (folder / "go.mod.new").rename(folder / "go.mod")


def _ldflags() -> str:
    """Without a version the server calls itself v0.0.0-master, which clients may refuse."""
    minor = KUBERNETES_VERSION.split(".")[1]
    values = {"gitVersion": f"v{KUBERNETES_VERSION}", "gitMajor": "1", "gitMinor": minor}
    values |= {"gitTreeState": "clean", "gitCommit": "unknown"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    settings = [f"-X {p}.{name}={value}" for p in packages for name, value in values.items()]
    return " ".join(["-s", "-w", *settings])


def _etcd() -> Path:
    folder = cache() / "etcd" / "bin"
    found = _found("etcd", folder)
    if found is not None:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as unfinished:
        made = _unpack_etcd_of_debian(Path(unfinished)) or _build_etcd(Path(unfinished))
        made.rename(folder / "etcd")
    return folder / "etcd"


def _unpack_etcd_of_debian(folder: Path) -> Path | None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return None
    try:
        if os.geteuid() == 0:
            _run(["apt-get", "update", "-qq"], folder)
        _run(["apt-get", "download", "etcd-server"], folder)
        package = next(folder.glob("etcd-server_*.deb"))
        _run(["dpkg-deb", "--extract", str(package), "unpacked"], folder)
    except (CannotBuildError, StopIteration) as error:
        _say(f"etcd: no package of Debian's: {error}")
        return None
    return folder / "unpacked" / "usr" / "bin" / "etcd"


def _build_etcd(folder: Path) -> Path:
    if shutil.which("go") is None:
        raise CannotBuildError("no etcd: neither Debian's package etcd-server nor Go to build it")
    _say(f"building etcd {ETCD_VERSION}, once")
    required = f"require go.etcd.io/etcd/server/v3 v{ETCD_VERSION}"
    (folder / "go.mod").write_text(f"module build.local/etcd\ngo 1.24.0\n{required}\n")
    command = ["go", "build", "-mod=mod", "-ldflags", "-s -w", "-o", "etcd"]
    _run([*command, "go.etcd.io/etcd/server/v3"], folder)
    return folder / "etcd"


def _run(command: Sequence[str], folder: Path) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run(  # noqa: S603 - our own words
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise CannotBuildError(f"{' '.join(command[:3])} …: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _say(text: str) -> None:
    sys.stderr.write(f"control plane: {text}\n")


if __name__ == "__main__":
    try:
        for program, path in control_plane().items():
            sys.stdout.write(f"{program}: {path}\n")
    except CannotBuildError as error:
        sys.exit(str(error))
