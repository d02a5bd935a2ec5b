"""A gateway in front of the fixture passes all that the fixture passes without one."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from tests.conformance.runs import RUNS, SETUPS, named, unpassed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.runs import Run

pytestmark = pytest.mark.timeout(300)  # the first run installs the suite


@pytest.mark.parametrize("setup", [name for name in SETUPS if name != "direct"])
@pytest.mark.parametrize("run", RUNS, ids=str)
async def test_the_gateway_passes_what_its_members_pass(
    run: Run, setup: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        url = await SETUPS[setup](stack)
        outcomes = await run.against(url, tmp_path)
    faults = unpassed(run, outcomes)
    assert not faults, named(faults)
