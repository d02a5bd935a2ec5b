"""The gateway as the client of the suite's servers: what it says to a member."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from tests.conformance.suite import run_client_scenario
from tests.harness.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(300)  # the first run installs the suite

LEGACY, MODERN = "2025-11-25", "2026-07-28"
EGRESS = ROOT / "tests" / "conformance" / "egress.py"


#: What the client speaks to the gateway, the scenario, what the gateway speaks to the member.
_CASES = [
    ("legacy", "initialize", LEGACY),
    ("legacy", "tools_call", LEGACY),
    ("legacy", "elicitation-sep1034-client-defaults", LEGACY),
    ("legacy", "sse-retry", LEGACY),
    ("legacy", "json-schema-ref-no-deref", MODERN),
]


@pytest.mark.parametrize(("era", "scenario", "member"), _CASES)
async def test_the_gateway_passes_as_a_client(
    era: str, scenario: str, member: str, tmp_path: Path
) -> None:
    command = f"{sys.executable} {EGRESS} --era {era}"
    outcome = await run_client_scenario(command, scenario, tmp_path, spec_version=member)
    if not outcome.passed:
        pytest.fail("\n".join([*outcome.faults, outcome.log[-6000:]]), pytrace=False)
