"""Members for manifests of tests: the faulty server and real ones.

Functions give a member of `spec.members`; more fields of the member are given by name, for instance
`faulty("a", "--sse", weight=5)`. HTTP servers are async context managers with a `spec()`.
"""

from __future__ import annotations

import abc
import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.harness.npm import NodePackages, Unavailable
from tests.harness.processes import ROOT, Running, until

if TYPE_CHECKING:
    from pathlib import Path

FAULTY = ROOT / "tests" / "servers" / "faulty.py"
_NPM_VERSION = "2026.8.31"
_NPM_SERVERS = NodePackages(
    f"servers-{_NPM_VERSION}",
    tuple(
        f"@modelcontextprotocol/server-{name}@{_NPM_VERSION}"
        for name in ("everything", "filesystem", "memory", "sequential-thinking")
    ),
)


def faulty_command(transport: str, name: str, *flags: str) -> list[str]:
    return [sys.executable, "-S", str(FAULTY), transport, "--name", name, *flags]


def stdio(name: str, command: list[str], **fields: Any) -> dict[str, Any]:
    env = fields.pop("env", [])
    return {"name": name, "stdio": {"command": command, "env": env}, **fields}


def faulty(name: str, *flags: str, **fields: Any) -> dict[str, Any]:
    """The faulty server over stdio."""
    return stdio(name, faulty_command("stdio", name, *flags), **fields)


def time_server(name: str = "time", **fields: Any) -> dict[str, Any]:
    return stdio(name, [sys.executable, "-m", "mcp_server_time"], **fields)


def git_server(repository: Path, name: str = "git", **fields: Any) -> dict[str, Any]:
    """mcp-server-git; a repository with one commit is made when there is none."""
    if not (repository / ".git").exists():
        repository.mkdir(parents=True, exist_ok=True)
        (repository / "README").write_text("hello\n")
        who = ["-c", "user.name=Tester", "-c", "user.email=tester@example.com"]
        for arguments in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "first"]):
            subprocess.run(["git", "-C", str(repository), *arguments], check=True)  # noqa: S603, S607
    command = [sys.executable, "-m", "mcp_server_git", "--repository", str(repository)]
    return stdio(name, command, **fields)


def everything(name: str = "everything", **fields: Any) -> dict[str, Any]:
    """The reference server of npm over stdio."""
    return stdio(name, [npm_command("mcp-server-everything"), "stdio"], **fields)


def memory(file: Path, name: str = "memory", **fields: Any) -> dict[str, Any]:
    env = [{"name": "MEMORY_FILE_PATH", "value": str(file)}]
    return stdio(name, [npm_command("mcp-server-memory")], env=env, **fields)


def sequential_thinking(name: str = "thinking", **fields: Any) -> dict[str, Any]:
    return stdio(name, [npm_command("mcp-server-sequential-thinking")], **fields)


def filesystem(directory: Path, name: str = "filesystem", **fields: Any) -> dict[str, Any]:
    return stdio(name, [npm_command("mcp-server-filesystem"), str(directory)], **fields)


def npm_command(name: str) -> str:
    """The path of a server of npm; skips the test where it cannot be had."""
    try:
        return str(_NPM_SERVERS.install() / ".bin" / name)
    except Unavailable as why:
        pytest.skip(f"no {name}: {why}")


class HttpMember(abc.ABC):
    """An MCP server of its own process, reached over streamable HTTP.

    It keeps its port when it is stopped and started again.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = 0
        self.running: Running | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def pid(self) -> int:
        assert self.running is not None
        return self.running.pid

    def spec(self, **fields: Any) -> dict[str, Any]:
        return {"name": self.name, "http": {"url": self.url}, **fields}

    @abc.abstractmethod
    def command(self) -> tuple[list[str], dict[str, str]]:
        """The command and its additional environment."""

    async def ready(self, running: Running) -> None:
        """Return once it listens, and set `port` to what it says."""
        match = await running.printed(r"(?:listening|running) on http://127\.0\.0\.1:(\d+)")
        self.port = int(match[1])

    async def start(self) -> None:
        command, env = self.command()
        self.running = Running(command, env)
        await self.running.start()
        await self.ready(self.running)

    async def stop(self) -> None:
        """SIGKILL. Idempotent."""
        if self.running is not None:
            await self.running.stop()
            self.running = None

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class FaultyHttp(HttpMember):
    """The faulty server over HTTP: `async with FaultyHttp("a", "--sse") as member`."""

    def __init__(self, name: str, *flags: str) -> None:
        super().__init__(name)
        self.flags = list(flags)

    def command(self) -> tuple[list[str], dict[str, str]]:
        return faulty_command("http", self.name, "--port", str(self.port), *self.flags), {}


class EverythingHttp(HttpMember):
    """The reference server of npm over streamable HTTP."""

    def __init__(self, name: str = "everything-http") -> None:
        super().__init__(name)

    def command(self) -> tuple[list[str], dict[str, str]]:
        self.port = self.port or free_port()
        return [npm_command("mcp-server-everything"), "streamableHttp"], {"PORT": str(self.port)}

    async def ready(self, running: Running) -> None:
        await running.printed(r"listening on port")


class OldSse(HttpMember):
    """A server of the official SDK that speaks the old HTTP+SSE transport."""

    def __init__(self, name: str = "old", *flags: str, path: str = "/sse") -> None:
        super().__init__(name)
        self.flags = list(flags)
        self.path = path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    def command(self) -> tuple[list[str], dict[str, str]]:
        script = str(ROOT / "tests" / "servers" / "sse_server.py")
        where = ["--port", str(self.port), "--path", self.path]
        return [sys.executable, script, *where, *self.flags], {}


class EverythingSse(EverythingHttp):
    """The reference server of npm over the old HTTP+SSE transport."""

    def __init__(self, name: str = "everything-sse") -> None:
        super().__init__(name)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/sse"

    def command(self) -> tuple[list[str], dict[str, str]]:
        self.port = self.port or free_port()
        return [npm_command("mcp-server-everything"), "sse"], {"PORT": str(self.port)}

    async def ready(self, running: Running) -> None:
        await running.printed(r"running on port")


def free_port() -> int:
    """A port that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class CallLog:
    """What `--call-counter` wrote: proof of what ran where, and how often.

    Each entry is `{"event", "name", "tool", "id", "args", "at"}`; events are `call` (a tool began),
    `told` (a cancellation arrived, `id` is the request's), `cancelled` (a `sleep` ended by it) and
    `initialize`; `at` is `time.monotonic()` of this machine.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.flags = ["--call-counter", str(path)]

    def entries(self, event: str = "call", tool: str | None = None) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        entries = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [e for e in entries if e["event"] == event and tool in (None, e["tool"])]

    def count(self, tool: str | None = None) -> int:
        """How many calls ran."""
        return len(self.entries(tool=tool))

    async def until(
        self, number: int, *, event: str = "call", tool: str | None = None, timeout: float = 10
    ) -> list[dict[str, Any]]:
        """Wait for that many entries."""
        await until(
            lambda: len(self.entries(event, tool)) >= number,
            timeout,
            what=f"{number} entries {event} of {tool} did not appear",
        )
        return self.entries(event, tool)


class Control:
    """Knobs of faulty servers turned while they run: `control.set(fail_calls=True)`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.flags = ["--control-file", str(path)]

    def set(self, **knobs: Any) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(knobs))
        os.replace(new, self.path)
