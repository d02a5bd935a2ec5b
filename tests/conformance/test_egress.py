"""The gateway as the client of the suite's servers: what it says to a member."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.conformance.runs import CLIENT_CASES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.runs import ClientCase

pytestmark = pytest.mark.timeout(300)  # the first run installs the suite


@pytest.mark.parametrize("case", CLIENT_CASES, ids=str)
async def test_the_gateway_passes_as_a_client(case: ClientCase, tmp_path: Path) -> None:
    outcome = await case.outcome(tmp_path)
    if not outcome.passed:
        pytest.fail("\n".join([*outcome.faults, outcome.log[-6000:]]), pytrace=False)
