"""The runs of the suite that this project is measured by, and the fixture as a member."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tests.conformance.suite import required_scenarios, run_client_scenario, run_server_suite
from tests.harness.gateway import Gateway
from tests.harness.members import HttpMember, stdio
from tests.harness.processes import ROOT, Running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AsyncExitStack
    from pathlib import Path

    from tests.conformance.suite import Outcome

LEGACY, MODERN = "2025-11-25", "2026-07-28"
FIXTURE = ROOT / "tests" / "conformance" / "fixture.py"
FORK = ROOT / "tests" / "conformance" / "fixture_fork.py"
EGRESS = ROOT / "tests" / "conformance" / "egress.py"


@dataclass(frozen=True)
class Run:
    """One run of the suite.

    `frozen` says that the suite has a set of requirements for the revision; without one every
    scenario of the revision counts. `optional` are the scenarios outside of the requirements that
    the fixture passes.
    """

    revision: str
    frozen: bool
    optional: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.revision

    @property
    def required(self) -> frozenset[str]:
        return required_scenarios(self.revision) if self.frozen else frozenset()

    async def against(self, url: str, directory: Path) -> dict[str, Outcome]:
        if self.frozen:
            return await run_server_suite(url, directory, requirements=self.revision)
        return await run_server_suite(url, directory, spec_version=self.revision)


RUNS = (
    Run("2025-06-18", frozen=False),
    Run(
        "2025-11-25",
        frozen=True,
        optional=frozenset(
            {"json-schema-2020-12", "server-session-lifecycle", "server-sse-polling"}
        ),
    ),
    Run(
        "2026-07-28",
        frozen=True,
        optional=frozenset(
            {
                "http-custom-header-server-validation",
                "http-header-validation",
                "json-schema-2020-12",
            }
        ),
    ),
)


def unpassed(run: Run, outcomes: dict[str, Outcome]) -> dict[str, tuple[str, ...]]:
    """What every scenario found that has to pass and did not."""
    wanted = run.required | run.optional
    missing = dict.fromkeys(wanted - outcomes.keys(), ("did not run",))
    return missing | {
        name: outcome.faults
        for name, outcome in outcomes.items()
        if (outcome.required or name in wanted) and not outcome.passed
    }


def named(faults: dict[str, tuple[str, ...]]) -> str:
    """Scenarios and what they found, a line each."""
    lines = []
    for name in sorted(faults):
        lines += [f"  {name}", *(f"    {fault}" for fault in faults[name] or ("nothing passed",))]
    return "\n".join(lines)


class FixtureHttp(HttpMember):
    """The fixture over HTTP: `async with FixtureHttp("a") as member`."""

    def command(self) -> tuple[list[str], dict[str, str]]:
        command = [sys.executable, str(FIXTURE), "http", "--port", str(self.port)]
        return command, {}


class Forks:
    """Where fixtures over stdio come from: `async with Forks() as forks`."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="forks-")
        self._socket = f"{self._directory.name}/socket"
        self._running = Running([sys.executable, str(FORK), "serve", self._socket])

    async def __aenter__(self) -> Self:
        await self._running.start()
        await self._running.printed("^ready$")
        return self

    async def __aexit__(self, *fault: object) -> None:
        await self._running.stop()
        self._directory.cleanup()

    def spec(self, name: str, **fields: Any) -> dict[str, Any]:
        """The fixture over stdio as a member of a manifest."""
        command = [sys.executable, "-S", str(FORK), "join", self._socket]
        return stdio(name, command, **fields)


async def direct(stack: AsyncExitStack) -> str:
    """The fixture over HTTP without a gateway; its address."""
    return (await stack.enter_async_context(FixtureHttp("direct"))).url


async def behind_http(stack: AsyncExitStack) -> str:
    """A gateway with two fixtures over HTTP; its address."""
    fixtures = [await stack.enter_async_context(FixtureHttp(name)) for name in ("one", "two")]
    return await _gateway(stack, [fixture.spec() for fixture in fixtures])


async def behind_stdio(stack: AsyncExitStack) -> str:
    """A gateway with two fixtures over stdio, a process for each client session; its address."""
    forks = await stack.enter_async_context(Forks())
    members = [forks.spec(name, isolation="PerSession") for name in ("one", "two")]
    return await _gateway(stack, members)


async def _gateway(stack: AsyncExitStack, members: list[dict[str, Any]]) -> str:
    gateway = await stack.enter_async_context(Gateway(members=members))
    await gateway.all_ready()
    return gateway.url


#: What stands between the suite and the fixture, by name; entered on a stack.
SETUPS: dict[str, Callable[[AsyncExitStack], Awaitable[str]]] = {
    "direct": direct,
    "http": behind_http,
    "stdio": behind_stdio,
}


@dataclass(frozen=True)
class ClientCase:
    """A scenario of the suite for clients, with the gateway as the client.

    `member` is the revision of the suite's server, `era` is that of the client in front of the
    gateway: "legacy" or "modern".
    """

    scenario: str
    member: str
    era: str

    def __str__(self) -> str:
        return f"{self.scenario}-{self.member}-{self.era}"

    async def outcome(self, directory: Path) -> Outcome:
        command = f"{sys.executable} {EGRESS} --era {self.era}"
        return await run_client_scenario(
            command, self.scenario, directory, spec_version=self.member
        )


CLIENT_CASES = (
    ClientCase("initialize", LEGACY, "legacy"),
    ClientCase("tools_call", LEGACY, "legacy"),
    ClientCase("tools_call", MODERN, "legacy"),
    ClientCase("tools_call", LEGACY, "modern"),
    ClientCase("tools_call", MODERN, "modern"),
    ClientCase("elicitation-sep1034-client-defaults", LEGACY, "legacy"),
    ClientCase("elicitation-sep1034-client-defaults", LEGACY, "modern"),
    ClientCase("sse-retry", LEGACY, "legacy"),
    ClientCase("request-metadata", MODERN, "legacy"),
    ClientCase("sep-2322-client-request-state", MODERN, "legacy"),
    ClientCase("sep-2322-client-request-state", MODERN, "modern"),
    ClientCase("http-standard-headers", MODERN, "legacy"),
    ClientCase("http-custom-headers", MODERN, "legacy"),
    ClientCase("http-custom-headers", MODERN, "modern"),
    ClientCase("http-invalid-tool-headers", MODERN, "legacy"),
    ClientCase("json-schema-ref-no-deref", MODERN, "legacy"),
)
