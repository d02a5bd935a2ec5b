"""The runs of the suite that this project is measured by, and the fixture as a member."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.conformance.suite import required_scenarios, run_server_suite
from tests.harness.members import HttpMember, stdio
from tests.harness.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.suite import Outcome
    from tests.harness.processes import Running

FIXTURE = ROOT / "tests" / "conformance" / "fixture.py"


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


class FixtureHttp(HttpMember):
    """The fixture over HTTP: `async with FixtureHttp("a") as member`."""

    def command(self) -> tuple[list[str], dict[str, str]]:
        command = [sys.executable, str(FIXTURE), "http", "--port", str(self.port)]
        return command, {}

    async def ready(self, running: Running) -> None:
        match = await running.printed(r"listening on http://127\.0\.0\.1:(\d+)/mcp")
        self.port = int(match[1])


def fixture_stdio(name: str, **fields: Any) -> dict[str, Any]:
    """The fixture over stdio, as a member of a manifest."""
    return stdio(name, [sys.executable, str(FIXTURE), "stdio"], **fields)
