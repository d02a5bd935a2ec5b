"""The official conformance suite: installed once for this user, run, its results read.

    results = await run_server_suite(url, directory, requirements="2025-11-25")
    results["ping"].faults          what failed, one line a check
    results["ping"].required        whether the revision demands it

Where neither it nor a Node that runs it can be had, the test is skipped.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.harness.npm import NodePackages, Unavailable
from tests.harness.processes import Running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

VERSION = "0.2.0-alpha.12"
_PACKAGE = "@modelcontextprotocol/conformance"
SUITE = NodePackages(f"conformance-{VERSION}", (f"{_PACKAGE}@{VERSION}",), oldest_node=22)
_RUN_SECONDS = 200
#: How long the suite waits for a client that it started.
CLIENT_SECONDS = 90
_TIMESTAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")


@dataclass(frozen=True)
class Outcome:
    """What one scenario found.

    `faults` are its failed checks and its warnings; it passes when there are none and something
    succeeded. `counts` are its checks by status: SUCCESS, FAILURE, WARNING, INFO, SKIPPED. `log`
    is what the client under test printed, for client scenarios.
    """

    scenario: str
    required: bool
    counts: Mapping[str, int]
    faults: tuple[str, ...]
    log: str = ""

    @property
    def passed(self) -> bool:
        return not self.faults and self.counts.get("SUCCESS", 0) > 0


def installed() -> tuple[str, Path]:
    """The Node to run it with, and the directory of the package; a test is skipped without them."""
    try:
        return SUITE.node(), SUITE.install() / _PACKAGE
    except Unavailable as why:
        pytest.skip(f"no conformance suite: {why}")


async def run_server_suite(
    url: str,
    directory: Path,
    *,
    requirements: str | None = None,
    spec_version: str | None = None,
    scenario: str | None = None,
) -> dict[str, Outcome]:
    """Test the server at `url`; what each scenario found.

    Either a frozen set of `requirements` (a revision), or all scenarios of a `spec_version`; or
    one `scenario`. Results are written to `directory`.
    """
    if requirements is not None:
        chosen = ["--requirements", requirements]
    elif scenario is not None:
        chosen = ["--scenario", scenario]
    else:
        chosen = ["--suite", "all"]
    if spec_version is not None:
        chosen += ["--spec-version", spec_version]
    await _run(["server", "--url", url, "-o", str(directory), *chosen])
    outcomes = _read(directory, "server-", requirements)
    assert outcomes, f"no scenario ran against {url}"
    return outcomes


async def run_client_scenario(
    command: str, scenario: str, directory: Path, *, spec_version: str
) -> Outcome:
    """Let the client that `command` starts work with the suite's server for this scenario.

    The suite appends the address of its server to `command`, whose words no space may be in. That
    the client ended well is a part of passing.
    """
    chosen = ["--scenario", scenario, "--spec-version", spec_version, "-o", str(directory)]
    chosen += ["--timeout", str(CLIENT_SECONDS * 1000)]
    ended = await _run(["client", "--command", command, *chosen])
    outcome = _read(directory, "", None)[scenario]
    if ended != 0 and outcome.passed:
        return replace(outcome, faults=("the client failed",))
    return outcome


async def _run(arguments: list[str]) -> int:
    """The exit code, which counts unscored scenarios too when there are several."""
    node, package = installed()
    command = [node, str(package / "dist" / "index.js"), *arguments]
    async with Running(command) as running:
        return await running.exited(_RUN_SECONDS)


def _read(directory: Path, prefix: str, requirements: str | None) -> dict[str, Outcome]:
    required = required_scenarios(requirements) if requirements is not None else None
    found = {}
    for path in sorted(directory.glob("*/checks.json")):
        name = _TIMESTAMP.sub("", path.parent.name).removeprefix(prefix)
        checks: list[dict[str, Any]] = json.loads(path.read_text())
        found[name] = Outcome(
            name,
            required is None or name in required,
            Counter(str(check["status"]) for check in checks),
            tuple(_faults(checks)),
            "".join(p.read_text() for p in sorted(path.parent.glob("std*.txt"))),
        )
    return found


def _faults(checks: list[dict[str, Any]]) -> Iterator[str]:
    for check in checks:
        if check["status"] in ("FAILURE", "WARNING"):
            said = check.get("errorMessage") or check.get("description") or ""
            yield f"{check['status']} {check['id']}: {said}"[:600]


def required_scenarios(revision: str) -> frozenset[str]:
    """The scenarios that a server must pass to conform to a revision."""
    _, package = installed()
    text = (package / "requirements" / f"{revision}.yaml").read_text()
    return frozenset(yaml.safe_load(text)["server"])
