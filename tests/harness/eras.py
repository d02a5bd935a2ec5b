"""Members of both eras behind a gateway, and each pair of them with clients of both eras.

async with TwoEras(tmp_path) as group, group.client("legacy") as client:
    call = await client.call("lown", "progress", {"steps": 2}, token=1)
    answer = await call.answer()
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tests.harness.era_clients import LegacyClient, ModernClient
from tests.harness.gateway import Gateway, member_of
from tests.harness.members import HttpMember, stdio
from tests.harness.processes import ROOT, alive, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from pathlib import Path

SERVER = ROOT / "tests" / "servers" / "two_eras.py"
ERAS = ("legacy", "modern")


@dataclass(frozen=True)
class Kind:
    """A way to be a member."""

    era: str
    http: bool
    isolation: str

    @property
    def modern(self) -> bool:
        return self.era == "Modern"

    @property
    def shared(self) -> bool:
        return self.isolation == "Shared"


#: Members by name: the era, then how it is reached.
KINDS = {
    "lown": Kind("Legacy", http=False, isolation="PerSession"),
    "lall": Kind("Legacy", http=False, isolation="Shared"),
    "lhttp": Kind("Legacy", http=True, isolation="PerSession"),
    "mown": Kind("Modern", http=False, isolation="PerSession"),
    "mall": Kind("Modern", http=False, isolation="Shared"),
    "mhttp": Kind("Modern", http=True, isolation="PerSession"),
}


class _HttpServer(HttpMember):
    def __init__(self, name: str, journal: Path) -> None:
        super().__init__(name)
        self.journal = journal

    def command(self) -> tuple[list[str], dict[str, str]]:
        return [*_command(self.name, self.journal), "--http", str(self.port)], {}


def _command(name: str, journal: Path) -> list[str]:
    return [sys.executable, "-S", str(SERVER), name, str(journal)]


class TwoEras:
    """A gateway with a member of each of the kinds, and what the members wrote down.

    `fields` are more fields of all members, `http` and `stdio` of what is in them under that
    name, `spec` those of the group.
    """

    def __init__(
        self,
        directory: Path,
        kinds: Iterable[str] = KINDS,
        *,
        fields: dict[str, Any] | None = None,
        http: dict[str, Any] | None = None,
        stdio: dict[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        self.kinds = tuple(kinds)
        self.servers: dict[str, HttpMember] = {}
        self.gateway: Gateway
        self._directory = directory
        self._fields = fields or {}
        self._http = http or {}
        self._stdio = stdio or {}
        self._spec = spec
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with self._stack as stack:
            members = []
            for name in self.kinds:
                kind = KINDS[name]
                fields = {"era": kind.era, "isolation": kind.isolation, **self._fields}
                if kind.http:
                    server = _HttpServer(name, self._journal(name))
                    self.servers[name] = await stack.enter_async_context(server)
                    member = server.spec(**fields)
                    member["http"].update(self._http)
                else:
                    member = stdio(name, _command(name, self._journal(name)), **fields)
                    member["stdio"].update(self._stdio)
                members.append(member)
            self.gateway = await stack.enter_async_context(Gateway(members=members, **self._spec))
            await self.gateway.all_ready()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *fault: Any) -> None:
        await self._stack.__aexit__(*fault)

    # -- clients

    @contextlib.asynccontextmanager
    async def client(
        self,
        era: str,
        capabilities: dict[str, Any] | None = None,
        *,
        name: str = "test",
        listening: bool = False,
    ) -> AsyncIterator[Any]:
        """A `LegacyClient` or `ModernClient`."""
        kind = LegacyClient if era == "legacy" else ModernClient
        client = kind(self.gateway, capabilities or {}, name)
        try:
            await client.open(listening=listening)
            yield client
        finally:
            await client.close()

    async def in_each_pair(
        self,
        check: Callable[[Any, str], Awaitable[None]],
        capabilities: dict[str, Any] | None = None,
        *,
        eras: Iterable[str] = ERAS,
        listening: bool = False,
    ) -> None:
        """`check(client, member)` for each pair, one after the other; all failures at once."""
        faults: list[Exception] = []
        for era in eras:
            for member in self.kinds:
                try:
                    async with self.client(era, capabilities, listening=listening) as client:
                        await check(client, member)
                except Exception as fault:  # noqa: BLE001 - raised below with its pair
                    fault.add_note(f"in the pair of a {era} client and the member {member}")
                    faults.append(fault)
        if faults:
            raise ExceptionGroup("pairs of eras", faults)

    # -- what the members wrote down

    def _journal(self, name: str) -> Path:
        return self._directory / f"{name}.journal"

    def noted(self, member: str, event: str = "got", method: str | None = None) -> list[Any]:
        journal = self._journal(member)
        text = journal.read_text() if journal.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()  # the last may be half written
        entries = [json.loads(line) for line in lines]
        return [
            entry
            for entry in entries
            if entry["event"] == event
            and (method is None or entry["message"].get("method") == method)
        ]

    async def until_noted(
        self,
        member: str,
        event: str = "got",
        method: str | None = None,
        *,
        number: int = 1,
        timeout: float = 10,
    ) -> list[Any]:
        await until(
            lambda: len(self.noted(member, event, method)) >= number,
            timeout,
            what=f"{number} of {event} {method} were not noted by {member}",
        )
        return self.noted(member, event, method)

    def pids(self, member: str) -> list[int]:
        """The processes of a member that run."""
        return alive([entry["pid"] for entry in self.noted(member, "started")])

    async def kill(self, member: str) -> None:
        """SIGKILL to all processes of a member."""
        if member in self.servers:
            await self.servers[member].stop()
        for pid in self.pids(member):
            os.kill(pid, signal.SIGKILL)

    async def restart(self, member: str) -> None:
        """Kill a member and wait until it serves again."""
        method = "server/discover" if KINDS[member].modern else "initialize"
        before = len(self.noted(member, method=method))
        await self.kill(member)
        if member in self.servers:
            await self.servers[member].start()
        await self.until_noted(member, method=method, number=before + 1, timeout=30)
        await self.gateway.wait_for(lambda s: member_of(s, member)["inRotation"], 30)

    def add_tool(self, member: str) -> None:
        """Each process of a member has one more tool from now on."""
        for pid in self.pids(member):
            os.kill(pid, signal.SIGUSR1)

    def touch(self, member: str) -> None:
        """Each process of a member says that the resource `res://MEMBER/a` was updated."""
        for pid in self.pids(member):
            os.kill(pid, signal.SIGUSR2)
