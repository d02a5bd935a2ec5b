"""A deadline stands still while somebody else is waited for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.harness.simulated_time import SimulatedLoop, simulated

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.serving.deadlines import Deadline

if TYPE_CHECKING:
    from mcpgroup_gateway.members.upstream import MemberFailure


async def passes(loop: SimulatedLoop, seconds: float) -> None:
    loop.now += seconds
    for _ in range(3):
        await asyncio.sleep(0)


def deadline(seconds: float, limit: float | None = None) -> tuple[Deadline, list[MemberFailure]]:
    fired: list[MemberFailure] = []
    return Deadline(seconds, fired.append, Failure.DEADLINE, "late", limit=limit), fired


def test_a_pause_stops_the_silence_and_the_whole() -> None:
    async def scene(loop: SimulatedLoop) -> None:
        timer, fired = deadline(1.0, limit=1.5)
        await passes(loop, 0.5)
        timer.pause()
        await passes(loop, 60)
        timer.resume()
        await passes(loop, 0.9)
        assert not fired  # 0.9 s of silence, 1.4 s in all
        timer.touch()
        await passes(loop, 0.2)
        assert len(fired) == 1
        assert timer.paused_seconds == 60

    simulated(scene)


def test_it_goes_on_only_when_each_who_paused_has_resumed() -> None:
    async def scene(loop: SimulatedLoop) -> None:
        timer, fired = deadline(1.0)
        timer.pause()
        timer.pause()
        timer.resume()
        await passes(loop, 0.9)
        await passes(loop, 0.9)
        assert not fired
        timer.resume()
        await passes(loop, 1.1)
        assert len(fired) == 1

    simulated(scene)


def test_closed_while_it_stands_still_it_never_fires_and_knows_how_long_it_stood() -> None:
    async def scene(loop: SimulatedLoop) -> None:
        timer, fired = deadline(1.0)
        timer.pause()
        await passes(loop, 7)
        timer.close()
        timer.resume()
        await passes(loop, 7)
        assert not fired
        assert timer.paused_seconds == 7

    simulated(scene)
