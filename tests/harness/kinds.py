"""The real servers, each kind as a member of a group and without one, and what can be asked of it.

`kind.opened(folder)` gives a member for a manifest, and the same server to be spoken to directly.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mcp
from mcp.client.sse import sse_client
from tests.harness.asking import AskingHttp, asking
from tests.harness.members import (
    EverythingHttp,
    EverythingSse,
    everything,
    filesystem,
    git_server,
    memory,
    sequential_thinking,
    stdio,
    time_server,
)
from tests.harness.steps import (
    OF_ASKING_SERVER,
    OF_EVERYTHING_ASKING,
    asking_server_steps,
    everything_steps,
    fetch_steps,
    file_steps,
    git_steps,
    memory_steps,
    thoughts,
    time_steps,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from tests.harness.members import HttpMember
    from tests.harness.steps import Step
    from tests.harness.transcript import Target

_ENV = {
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05 +0000",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05 +0000",
    "GIT_AUTHOR_NAME": "Tester",
    "GIT_AUTHOR_EMAIL": "tester@example.com",
    "GIT_COMMITTER_NAME": "Tester",
    "GIT_COMMITTER_EMAIL": "tester@example.com",
}


def _nothing(folder: Path) -> None:
    """The server keeps nothing that has to be as it was."""


@dataclass(frozen=True)
class Kind:
    """A kind of server.

    `spec` gives a member over stdio for a folder; `server` one that listens. `steps` is what can
    be asked, `asking_steps` what can be asked by a client that declares every capability besides.
    `prepare` puts the folder into the state that the steps begin with. `modern` says that it
    speaks the modern era too.
    """

    name: str
    steps: Callable[[Path], Sequence[Step]]
    spec: Callable[[Path], dict[str, Any]] | None = None
    server: Callable[[], HttpMember] | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Path], None] = _nothing
    asking_steps: Sequence[Step] = ()
    modern: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def asks(self) -> bool:
        """Whether it offers more to clients with capabilities."""
        return self.fields.get("isolation") == "PerSession"

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes of the official client that it can be spoken to in."""
        return ("legacy", "auto", "2026-07-28") if self.modern else ("legacy",)

    @contextlib.asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[tuple[dict[str, Any], Straight]]:
        """A member, and the same without a gateway."""
        if self.spec is not None:
            member = {**self.spec(folder), **self.fields}
            yield member, Straight(member["stdio"]["command"], member["stdio"]["env"])
            return
        assert self.server is not None
        async with self.server() as behind, self.server() as alone:
            old = isinstance(alone, EverythingSse)
            yield behind.spec(**self.fields), Straight([alone.url], [], "sse" if old else "http")


@dataclass(frozen=True)
class Straight:
    """A server without a gateway: its command, or its address alone."""

    words: list[str]
    env: list[dict[str, str]]
    transport: str = "stdio"

    @property
    def target(self) -> Target:
        """For one connection of the official client."""
        match self.transport:
            case "stdio":
                program, *arguments = self.words
                env = {each["name"]: each["value"] for each in self.env}
                return mcp.StdioServerParameters(
                    command=program, args=arguments, env={**os.environ, **env}
                )
            case "sse":
                return sse_client(self.words[0])
        return self.words[0]

    @property
    def inspected(self) -> list[str]:
        """For the command line of the inspector."""
        if self.transport != "stdio":
            return [*self.words, "--transport", self.transport]
        env = [("-e", f"{each['name']}={each['value']}") for each in self.env]
        return [*(word for option in env for word in option), *self.words]


def _prepare_git(folder: Path) -> None:
    _empty(folder)
    (folder / "README").write_text("hello\n")
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        command = ["git", "-C", str(folder), *arguments]
        subprocess.run(command, check=True, env={**os.environ, **_ENV})  # noqa: S603
    (folder / "README").write_text("hello\nwörld 😀\n")
    (folder / "new").write_text("new\n")


def _prepare_files(folder: Path) -> None:
    _empty(folder)
    (folder / "naïve 😀.txt").write_text("one\ntwo\nthree\n")
    (folder / "inner").mkdir()
    (folder / "inner" / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n")


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


_PER_SESSION = {"isolation": "PerSession"}

KINDS = (
    Kind("time", time_steps, spec=lambda _: time_server(), modern=True),
    Kind(
        "fetch",
        fetch_steps,
        spec=lambda _: stdio("fetch", [sys.executable, "-m", "mcp_server_fetch"]),
        modern=True,
    ),
    Kind(
        "git",
        git_steps,
        spec=lambda folder: git_server(
            folder, env=[{"name": name, "value": value} for name, value in _ENV.items()]
        ),
        prepare=_prepare_git,
        modern=True,
    ),
    Kind(
        "everything",
        everything_steps,
        spec=lambda _: everything(),
        fields=_PER_SESSION,
        asking_steps=OF_EVERYTHING_ASKING,
    ),
    Kind(
        "everything-http",
        everything_steps,
        server=EverythingHttp,
        fields=_PER_SESSION,
        asking_steps=OF_EVERYTHING_ASKING,
    ),
    Kind(
        "everything-sse",
        everything_steps,
        server=EverythingSse,
        fields={**_PER_SESSION, "transport": "Sse"},
        asking_steps=OF_EVERYTHING_ASKING,
    ),
    Kind("filesystem", file_steps, spec=filesystem, prepare=_prepare_files, fields=_PER_SESSION),
    Kind("memory", memory_steps, spec=lambda folder: memory(folder / "graph"), prepare=_empty),
    Kind("thinking", thoughts, spec=lambda _: sequential_thinking()),
    Kind(
        "asking",
        asking_server_steps,
        spec=lambda _: asking(),
        fields=_PER_SESSION,
        asking_steps=OF_ASKING_SERVER,
        modern=True,
    ),
    Kind(
        "asking-http",
        asking_server_steps,
        server=AskingHttp,
        fields=_PER_SESSION,
        asking_steps=OF_ASKING_SERVER,
        modern=True,
    ),
)
