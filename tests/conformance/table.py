"""Run the suite in every setup and print the README's tables of scenarios that passed.

python -m tests.conformance.table [--setup http] [--revision 2025-11-25] [--keep DIRECTORY]

The second table, of the gateway as a client, is left out when setups or revisions are chosen. What
did not pass is named on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conformance.runs import CLIENT_CASES, RUNS, SETUPS, named, unpassed
from tests.conformance.suite import SUITE
from tests.harness.npm import Unavailable

if TYPE_CHECKING:
    from tests.conformance.runs import Run
    from tests.conformance.suite import Outcome

_TITLES = {
    "direct": "the server itself",
    "http": "gateway, HTTP members",
    "stdio": "gateway, stdio members",
}


async def measure(
    runs: list[Run], setups: list[str], directory: Path
) -> dict[tuple[str, str], dict[str, Outcome]]:
    """The outcomes by (revision, setup)."""
    found = {}
    for setup in setups:
        async with AsyncExitStack() as stack:
            url = await SETUPS[setup](stack)
            for run in runs:
                kept = directory / f"{run}-{setup}"
                found[str(run), setup] = outcomes = await run.against(url, kept)
                if faults := unpassed(run, outcomes):
                    print(f"{run}, {_TITLES[setup]}:\n{named(faults)}\n", file=sys.stderr)
    return found


def rows(
    runs: list[Run], setups: list[str], found: dict[tuple[str, str], dict[str, Outcome]]
) -> list[list[str]]:
    """The cells of the table, its head first."""
    table = [["Scenarios", *(_TITLES[setup] for setup in setups)]]
    for run in runs:
        for title, required in ((f"{run}, required", True), (f"{run}, not scored", False)):
            cells = []
            for setup in setups:
                chosen = [o for o in found[str(run), setup].values() if o.required is required]
                cells.append(f"{sum(o.passed for o in chosen)} of {len(chosen)}")
            if cells[0] != "0 of 0":
                table.append([title, *cells])
    return table


async def measure_clients(directory: Path) -> list[list[str]]:
    """The cells of the table of the gateway as a client, its head first."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for case in CLIENT_CASES:
        outcome = await case.outcome(directory / str(case))
        row = cells.setdefault((case.scenario, case.member), {})
        row[case.era] = "passed" if outcome.passed else "failed"
        if not outcome.passed:
            print(f"{case}:\n{named({case.scenario: outcome.faults})}\n", file=sys.stderr)
    table = [["Client scenario", "Member", "old client", "modern client"]]
    for (scenario, member), row in cells.items():
        table.append([scenario, member, row.get("legacy", ""), row.get("modern", "")])
    return table


def markdown(table: list[list[str]]) -> str:
    """With columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    head, *body = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    ]
    rule = " | ".join("-" * width for width in widths)
    return "\n".join(f"| {line} |" for line in (head, rule, *body))


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the README's tables of conformance.")
    parser.add_argument("--setup", choices=SETUPS, action="append")
    parser.add_argument("--revision", choices=[str(run) for run in RUNS], action="append")
    parser.add_argument("--keep", type=Path, help="where the suite's results are left")
    options = parser.parse_args()
    try:
        SUITE.install()
    except Unavailable as why:
        sys.exit(f"no conformance suite: {why}")
    setups = options.setup or list(SETUPS)
    runs = [run for run in RUNS if str(run) in (options.revision or map(str, RUNS))]
    with tempfile.TemporaryDirectory(prefix="conformance-") as directory:
        kept = options.keep or Path(directory)
        found = asyncio.run(measure(runs, setups, kept))
        print(markdown(rows(runs, setups, found)))
        if not (options.setup or options.revision):
            print("\n" + markdown(asyncio.run(measure_clients(kept))))


if __name__ == "__main__":
    main()
