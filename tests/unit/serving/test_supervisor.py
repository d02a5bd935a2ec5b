"""A supervisor outlives faults of the gateway's own, and says what it did to its member."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from mcpgroup_gateway.core.endpoint import State
from mcpgroup_gateway.core.group import Group
from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.core.policy import EndpointPolicy, GroupPolicy, RecoveryPolicy
from mcpgroup_gateway.members.upstream import Handshake, MemberFailure
from mcpgroup_gateway.serving import catalogue_reader
from mcpgroup_gateway.serving import supervisor as module
from mcpgroup_gateway.serving.supervisor import Supervisor, Timing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Session:
    """An upstream session that declares no lists."""

    handshake = Handshake("2025-11-25", b"{}", b"{}", None)
    pid = None
    in_flight = 0
    lost = False

    def __init__(self) -> None:
        self.closed = False

    def request(self, *_: Any, **__: Any) -> Any:
        raise MemberFailure(Failure.REFUSED, "not asked in these tests", sent=False)

    def respond(self, body: bytes) -> None:
        return None

    async def notify(self, method: str, params: bytes) -> None:
        return None

    async def close(self) -> None:
        self.closed = True


class Door:
    """A connector whose first openings raise `faults`."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.sessions: list[Session] = []

    async def open(self, *_: Any) -> Session:
        if self.faults:
            raise self.faults.pop(0)
        self.sessions.append(Session())
        return self.sessions[-1]

    async def close(self) -> None:
        return None


class Hooks:
    """Listens; a name in `broken` raises once when it is told."""

    def __init__(self, *broken: str) -> None:
        self.broken = list(broken)
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            self.told.append(name)
            if name in self.broken:
                self.broken.remove(name)
                raise RuntimeError(f"{name} is broken")

        return hook


@contextlib.asynccontextmanager
async def supervised(door: Door, hooks: Hooks) -> AsyncIterator[Supervisor]:
    policy = GroupPolicy(name="g", members=("a",), recovery=RecoveryPolicy(0.01, 0.01))
    group = Group(
        policy,
        clock=time.monotonic,
        random=random.Random(0),  # noqa: S311
        listener=lambda _: supervisor.wake() if started else None,
    )
    started = False
    endpoint = group.add("a", EndpointPolicy("a"))
    supervisor = Supervisor(endpoint, door, group, Timing(1.0, 1.0, 0.0), hooks, start=True)  # type: ignore[arg-type]
    started = True
    task = asyncio.create_task(supervisor.run())
    try:
        yield supervisor
        assert not task.done(), "the supervision ended"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def reached(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FAULT_SECONDS", 0.01)
    monkeypatch.setattr(catalogue_reader, "_COALESCE_SECONDS", 0.01)


async def test_a_fault_of_ours_while_a_member_starts_is_a_failed_start_and_it_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    door = Door(RuntimeError("a bug"))
    async with supervised(door, Hooks()) as supervisor:
        waiter = supervisor.ready()
        assert isinstance(waiter, asyncio.Future)
        with pytest.raises(MemberFailure, match="internal error"):
            await asyncio.wait_for(waiter, 5)
        await reached(lambda: supervisor.endpoint.ready)
    assert "a bug" in caplog.text
    assert door.sessions[0].closed


async def test_a_fault_while_it_decides_what_to_do_does_not_end_the_supervision(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with supervised(Door(), Hooks()) as supervisor:
        await reached(lambda: supervisor.endpoint.ready)
        faults = [RuntimeError("a clock that is wrong")]
        wait = supervisor._group.next_wait

        def broken(endpoint_id: str) -> float:
            if faults:
                raise faults.pop()
            return wait(endpoint_id)

        monkeypatch.setattr(supervisor._group, "next_wait", broken)
        supervisor.wake()
        await reached(lambda: not faults)
        await supervisor.stop()
        supervisor.start()
        await reached(lambda: supervisor.endpoint.state is State.READY)
    assert "a clock that is wrong" in caplog.text


async def test_a_fault_while_lists_are_taken_over_is_logged_and_they_are_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks = Hooks("catalogue_read")
    async with supervised(Door(), hooks) as supervisor:
        await reached(lambda: supervisor.catalogue is not None)
    assert hooks.told.count("catalogue_read") == 2
    assert "catalogue_read is broken" in caplog.text


async def test_whoever_waits_when_a_member_is_removed_is_told() -> None:
    class Slow(Door):
        async def open(self, *_: Any) -> Session:
            await asyncio.sleep(60)
            raise AssertionError

    async with supervised(Slow(), Hooks()) as supervisor:
        waiter = supervisor.ready()
        assert isinstance(waiter, asyncio.Future)
        await asyncio.sleep(0)
    with pytest.raises(MemberFailure, match="removed"):
        await waiter
    late = supervisor.ready()
    assert isinstance(late, asyncio.Future)
    with pytest.raises(MemberFailure):
        await late
