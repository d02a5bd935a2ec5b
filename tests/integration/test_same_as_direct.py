"""Every tool, prompt, resource and template of the real servers: through a gateway as directly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.gateway import Gateway
from tests.harness.kinds import KINDS
from tests.harness.transcript import Participant, differences, transcript

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.kinds import Kind

MODERN = "2026-07-28"
MODES = ("legacy", "auto", MODERN)
ERAS = ("Legacy", "Modern")


CASES = [(kind, era) for kind in KINDS for era in (ERAS if kind.modern else ("Auto",))]


@pytest.mark.parametrize(("kind", "era"), CASES, ids=str)
async def test_a_client_that_members_may_ask_sees_the_same(
    kind: Kind, era: str, tmp_path: Path
) -> None:
    """It declares every capability, so it is offered every tool."""
    await _compare(kind, era, tmp_path / "data", capable=True)


@pytest.mark.parametrize(("kind", "era"), [case for case in CASES if case[0].asks], ids=str)
async def test_a_client_that_members_cannot_ask_sees_the_same(
    kind: Kind, era: str, tmp_path: Path
) -> None:
    await _compare(kind, era, tmp_path / "data", capable=False)


async def _compare(kind: Kind, era: str, folder: Path, *, capable: bool) -> None:
    """Take all steps without a gateway, then through one, in each mode of the official client."""
    steps = [*kind.steps(folder), *(kind.asking_steps if capable else ())]

    async def seen(target: Any, mode: str) -> dict[str, Any]:
        kind.prepare(folder)
        participant = Participant([folder.as_uri()]) if capable else None
        async with asyncio.timeout(60):
            return _offered(await transcript(target, mode, steps, participant))

    kind.prepare(folder)
    async with kind.opened(folder) as (member, direct):
        alone = {mode: await seen(direct.target, mode) for mode in kind.modes}
        if capable:
            _covered(alone["legacy"], [str(step) for step in steps])
        spoken_to = alone[MODERN if era == "Modern" else "legacy"]
        wrong = []
        async with Gateway(members=[{**member, "era": era}]) as gateway:
            await gateway.all_ready()
            for mode in MODES:
                expected = alone.get(mode, alone["legacy"])
                found = differences(expected, await seen(gateway.url, mode), spoken_to)
                wrong += [f"{mode}: {line}" for line in found]
        assert not wrong, "\n".join(wrong)


def _offered(seen: dict[str, Any]) -> dict[str, Any]:
    """Without the tools that run as experimental tasks only: they are bound to their member."""
    return {
        entry: what for entry, what in seen.items() if entry != "tools: simulate-research-query"
    }


def _covered(seen: dict[str, Any], steps: list[str]) -> None:
    """No tool and no prompt that was listed is forgotten in the table of steps."""
    for entry in seen:
        what, _, name = entry.partition(": ")
        called = {"tools": "Tool", "prompts": "Prompt"}.get(what)
        if called is not None:
            assert any(step.startswith(f"{called}(name='{name}'") for step in steps), entry
