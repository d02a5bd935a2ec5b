"""A gateway as it runs in a pod, and the volumes that a kubelet would mount there.

    async with Pod(members=[…]) as pod:
        pod.config.swap({"group.yaml": …})

The process is number 1, has an arbitrary user, no home, nothing but the variables of the pod, and
may write to a temporary folder only; where the tests may make no namespaces (`can_confine`), it is
a usual process. Source of the volumes' layout: atomic_writer.go of the kubelet.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
from tests.harness.gateway import Gateway, python_env
from tests.harness.processes import Running

if TYPE_CHECKING:
    from collections.abc import Mapping


USER: Final = 1_000_650_000

#: Process 1 of its own, of any user, without privileges; all but one folder is read-only.
_CONFINEMENT: Final = (
    *("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"),
    *("--mount", "--mount-proc", "sh", "-c"),
    'mount --bind "$0" "$0" && mount -o remount,bind,ro / &&'
    f' exec unshare --user --map-user={USER} --map-group={USER} -- "$@"',
)


@functools.cache
def can_confine() -> bool:
    """Whether the tests may make namespaces here."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*_CONFINEMENT, folder, "true"]
        try:
            ended = subprocess.run(command, check=False, capture_output=True, timeout=20)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired):
            return False
    return ended.returncode == 0


class Volume:
    """A ConfigMap or Secret volume: `KEY -> ..data/KEY`, `..data -> ..<time>`, swapped as one."""

    def __init__(self, folder: Path, content: Mapping[str, str | bytes]) -> None:
        self.folder = folder
        self._turns = itertools.count(1)
        folder.mkdir(parents=True)
        self.swap(content)

    def swap(self, content: Mapping[str, str | bytes]) -> None:
        """Replace everything in one step, as the kubelet does."""
        data = self.folder / "..data"
        old = data.resolve() if data.is_symlink() else None
        new = self.folder / f"..2026_11_30_12_00_00.{next(self._turns)}"
        new.mkdir()
        for key, value in content.items():
            (new / key).write_bytes(value.encode() if isinstance(value, str) else value)
        turned = self.folder / "..data_tmp"
        turned.symlink_to(new.name)
        os.replace(turned, data)
        for link in self.folder.iterdir():
            if not link.name.startswith("..") and link.name not in content:
                link.unlink()
        for key in content:
            if not (self.folder / key).is_symlink():
                (self.folder / key).symlink_to(f"..data/{key}")
        if old is not None:
            shutil.rmtree(old)


class Pod(Gateway):
    """`secrets` and `keys` are the volumes' content at the start; keys None: none are mounted."""

    def __init__(
        self,
        *,
        secrets: Mapping[str, Mapping[str, str]] | None = None,
        keys: Mapping[str, str] | None = None,
        generation: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.generation = generation
        self.temporary = self._directory / "tmp"
        self.temporary.mkdir()
        self.config = Volume(self._directory / "group", {})
        self.path = self.config.folder / "group.yaml"
        folder = self._directory / "secrets"
        folder.mkdir()
        self.secrets = {
            name: Volume(folder / name, content) for name, content in (secrets or {}).items()
        }
        self.keys = Volume(self._directory / "keys", keys or {})

    def begun(self) -> Running:
        """The process alone, for a start that is not to succeed; `remove` what is left of it."""
        self.running = self._process()
        return self.running

    def _process(self) -> Running:
        command = [
            *((*_CONFINEMENT, str(self.temporary)) if can_confine() else ()),
            *(sys.executable, "-P", "-m", "mcpgroup_gateway", "run", str(self.path)),
            *("--ignore-unknown-keys", "--host", "0.0.0.0", "--port", "0"),  # noqa: S104
            *("--admin-host", "0.0.0.0", "--admin-port", "0"),  # noqa: S104
            *("--secrets", str(self._directory / "secrets"), "--keys", str(self.keys.folder)),
            *("--log-format", "json", *self._flags),
        ]
        env = {
            **python_env(),
            "PATH": os.defpath.lstrip(":"),
            "POD_NAME": f"{self.name}-7c9f-x2",
            "POD_NAMESPACE": "tools",
            "TMPDIR": str(self.temporary),
        }
        return Running(command, env, only_env=True, cwd=Path("/"))

    @property
    def pid(self) -> int:
        """Of the gateway, as it is seen outside."""
        if not can_confine():
            return super().pid
        (first,) = psutil.Process(self.running.pid).children()
        return first.pid

    async def terminate(self, timeout: float = 45) -> int:
        os.kill(self.pid, signal.SIGTERM)
        return await self.running.exited(timeout)

    def remove(self) -> None:
        """Of a pod that was never entered: its volumes."""
        shutil.rmtree(self._directory, ignore_errors=True)

    async def restart(self) -> None:
        """End the process and start another one on the same volumes, as a kubelet would."""
        await self.terminate()
        await self.running.stop()
        await self._start()

    def write(self, spec: dict[str, Any] | None = None, *, text: str | None = None) -> None:
        """Swap the volume of the file: what an operator renders of `spec`, or `text`."""
        if text is None:
            text = self.rendered(spec or {})
        self.config.swap({"group.yaml": text})

    def rendered(self, spec: dict[str, Any], **more: Any) -> str:
        """The file of an operator; `more` are keys beside `spec`."""
        document = {
            "apiVersion": "mcpgroup.dev/v1alpha1",
            "kind": "McpServerGroup",
            "metadata": {"name": self.name, "namespace": "tools", "generation": self.generation},
            "spec": spec,
            **more,
        }
        return json.dumps(document, indent=1)
