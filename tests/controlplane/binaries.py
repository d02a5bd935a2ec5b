"""The programs of a Kubernetes control plane, found or built.

Each is looked for in `~/.cache/mcpgroup/build`, then on `PATH`, and else made in that cache once:
the Kubernetes programs from the Go module `k8s.io/kubernetes` at a pinned version, etcd from
Debian's package (unpacked, not installed: no root needed) or, elsewhere, from its Go module.
`python -m tests.controlplane.binaries` makes them ahead of the tests and prints where they are;
with `--idle` it takes only what processor time nobody else wants. It needs Python alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
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

# What is older on `PATH` lacks what the operator and its tests use.
OLDEST_KUBERNETES: Final = (1, 30)

_BUILD_SECONDS: Final = 3000
_UNFINISHED: Final = "unfinished-"


class CannotBuildError(Exception):
    """A program is neither there nor can it be made here; the text says what is missing."""


def cache() -> Path:
    """Where built programs are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mcpgroup" / "build"


def are_there() -> bool:
    """Whether `control_plane` would build nothing."""
    kubernetes = cache() / f"kubernetes-{KUBERNETES_VERSION}"
    return all(
        _built(kubernetes, name) or _kubernetes_on_path(name) for name in KUBERNETES_PROGRAMS
    ) and bool(_built(cache() / "etcd", "etcd") or shutil.which("etcd"))


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
    """The kernel frees the lock when its holder ends, killed or not."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for another process that looks for the programs, or builds them")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _unfinished(folder: Path) -> Iterator[Path]:
    """A folder for what is being made; what an interrupted build left there goes first."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=_UNFINISHED) as made:
        yield Path(made)


def _kubernetes(programs: Sequence[str] = KUBERNETES_PROGRAMS) -> dict[str, Path]:
    folder = cache() / f"kubernetes-{KUBERNETES_VERSION}"
    found = {name: _built(folder, name) or _kubernetes_on_path(name) for name in programs}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        _build_kubernetes(folder, missing)
    return {name: path or folder / "bin" / name for name, path in found.items()}


def _built(folder: Path, name: str) -> Path | None:
    path = folder / "bin" / name
    return path if path.exists() else None


def _kubernetes_on_path(name: str) -> Path | None:
    path = shutil.which(name)
    if path is None:
        return None
    question = ["version", "--client"] if name == "kubectl" else ["--version"]
    try:
        said = _run([path, *question], Path.cwd())
    except CannotBuildError:
        return None
    version = re.search(r"\bv(\d+)\.(\d+)\.", said)
    if version is None or (int(version[1]), int(version[2])) < OLDEST_KUBERNETES:
        return None
    return Path(path)


def _build_kubernetes(folder: Path, programs: Sequence[str]) -> None:
    if shutil.which("go") is None:
        raise CannotBuildError(f"no Go to build {', '.join(programs)} {KUBERNETES_VERSION} with")
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    if not (folder / "go.mod").exists():
        _write_wrapper_module(folder)
    _say(f"building {', '.join(programs)} {KUBERNETES_VERSION} into {folder / 'bin'}, once")
    with _unfinished(folder) as made:
        packages = [f"k8s.io/kubernetes/cmd/{name}" for name in programs]
        command = ["go", "build", "-mod=mod", "-trimpath", "-ldflags", _ldflags(), "-o"]
        _run([*command, f"{made}/", *packages], folder)
        for name in programs:
            (made / name).rename(folder / "bin" / name)


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
    folder = cache() / "etcd"
    if found := _built(folder, "etcd"):
        return found
    if on_path := shutil.which("etcd"):
        return Path(on_path)
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    with _unfinished(folder) as made:
        etcd = _unpack_etcd_of_debian(made) or _build_etcd(made)
        etcd.rename(folder / "bin" / "etcd")
    return folder / "bin" / "etcd"


def _unpack_etcd_of_debian(folder: Path) -> Path | None:
    """With the machine's lists of packages or, if those do not do, with fresh ones of our own:
    neither needs root."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return None
    apt = ["apt-get", "-qq", "-o", "APT::Sandbox::User="]
    own = [*apt, "-o", f"Dir::State={folder / 'state'}", "-o", f"Dir::Cache={folder / 'cache'}"]
    for needed in ("state/lists/partial", "cache/archives/partial"):
        (folder / needed).mkdir(parents=True)
    download = ["download", "etcd-server"]
    for steps in ([[*apt, *download]], [[*own, "update"], [*own, *download]]):
        try:
            for step in steps:
                _run(step, folder)
            package = next(folder.glob("etcd-server_*.deb"))
            _run(["dpkg-deb", "--extract", str(package), "unpacked"], folder)
        except (CannotBuildError, StopIteration) as error:
            _say(f"no etcd of Debian's: {error}")
        else:
            return folder / "unpacked" / "usr" / "bin" / "etcd"
    return None


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
    said = " ".join(command[:3])
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CannotBuildError(f"{said} …: not done in {_BUILD_SECONDS} s") from None
    if done.returncode != 0:
        raise CannotBuildError(f"{said} …: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _say(text: str) -> None:
    sys.stderr.write(f"control plane: {text}\n")


def main(arguments: Sequence[str]) -> None:
    if "--idle" in arguments and hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the compiler, too
    try:
        for program, path in control_plane().items():
            sys.stdout.write(f"{program}: {path}\n")
    except CannotBuildError as error:
        sys.exit(f"control plane: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
