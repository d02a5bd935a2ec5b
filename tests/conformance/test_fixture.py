"""The fixture itself passes what the suite asks: the measure for the gateway in front of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.conformance.runs import RUNS, FixtureHttp, named, unpassed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.runs import Run

pytestmark = pytest.mark.timeout(300)  # the first run installs the suite


@pytest.mark.parametrize("run", RUNS, ids=str)
async def test_the_fixture_passes_every_required_scenario(run: Run, tmp_path: Path) -> None:
    async with FixtureHttp("direct") as fixture:
        outcomes = await run.against(fixture.url, tmp_path)
    faults = unpassed(run, outcomes)
    assert not faults, named(faults)
    assert run.required <= outcomes.keys()
    passed = {name for name, o in outcomes.items() if o.passed and not o.required}
    assert passed == run.optional
