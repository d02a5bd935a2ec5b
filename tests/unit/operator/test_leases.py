"""An election over one Lease, with a server and a clock of our own."""

import asyncio
import copy
import datetime
import time
from typing import Any

import pytest

from mcpgroup_operator import errors
from mcpgroup_operator.kinds import Kind
from mcpgroup_operator.leases import (
    CERTAIN_SECONDS,
    LEASE_SECONDS,
    RENEW_SECONDS,
    Elector,
    LeadershipLostError,
    since_boot,
)


class Server:
    """Holds one Lease and versions it, as an API server does."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.fault: errors.ApiError | None = None
        self.writes = 0

    async def find(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        self._maybe_fail()
        return copy.deepcopy(self.lease)

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self._maybe_fail()
        if self.lease is not None:
            raise errors.ConflictError("create", 409, "there is one")
        return self._keep(manifest)

    async def replace(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self._maybe_fail()
        if self.lease is None:
            raise errors.NotFoundError("update", 404, "there is none")
        if manifest["metadata"].get("resourceVersion") != str(self.version):
            raise errors.ConflictError("update", 409, "changed meanwhile")
        return self._keep(manifest)

    def renewed_unheard(self, holder: str) -> None:
        """A write of `holder` arrived, and its answer reached nobody."""
        assert self.lease is not None
        self.lease["spec"]["holderIdentity"] = holder
        self.version += 1
        self.lease["metadata"]["resourceVersion"] = str(self.version)

    def _maybe_fail(self) -> None:
        if self.fault is not None:
            raise self.fault

    def _keep(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.writes += 1
        self.lease = copy.deepcopy(manifest)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.lease)


class Time:
    """A clock that moves when somebody sleeps, and only then."""

    def __init__(self) -> None:
        self.now = 100.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, future))
        await future

    async def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            await settle()
            waiting = [(at, f) for at, f in self._sleepers if at <= end and not f.done()]
            due = sorted(waiting, key=lambda sleeper: sleeper[0])
            if not due:
                break
            self.now = max(self.now, due[0][0])
            due[0][1].set_result(None)
        self.now = end
        await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def elector(server: Server, time: Time, identity: str) -> Elector:
    return Elector(
        server,
        namespace="mcpgroup",
        name="mcpgroup",
        identity=identity,
        clock=lambda: time.now,
        wall=lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        sleep=time.sleep,
    )


async def test_the_first_leads_at_once_and_renews() -> None:
    server, time = Server(), Time()
    async with asyncio.TaskGroup() as group:
        one = elector(server, time, "one")
        task = group.create_task(one.run())
        await time.advance(0)
        assert one.leading.is_set()

        await time.advance(60)

        assert one.is_leading
        assert server.writes > 20
        task.cancel()


async def test_a_second_one_waits_and_leads_within_the_lease_time_of_the_first_ones_death() -> None:
    server, time = Server(), Time()
    first = elector(server, time, "one")
    second = elector(server, time, "two")
    async with asyncio.TaskGroup() as group:
        dead = group.create_task(first.run())
        await time.advance(0)
        waiting = group.create_task(second.run())
        await time.advance(30)
        assert not second.leading.is_set()

        dead.cancel()
        killed = time.now
        await time.advance(CERTAIN_SECONDS)
        assert not second.leading.is_set()
        await time.advance(killed + LEASE_SECONDS - time.now)

        assert second.leading.is_set()
        waiting.cancel()


async def test_a_released_lease_is_taken_over_at_once() -> None:
    server, time = Server(), Time()
    first = elector(server, time, "one")
    second = elector(server, time, "two")
    async with asyncio.TaskGroup() as group:
        ending = group.create_task(first.run())
        await time.advance(0)
        waiting = group.create_task(second.run())
        await time.advance(5)
        ending.cancel()
        await settle()
        await first.release()

        await time.advance(1.1)

        assert second.leading.is_set()
        assert not first.allows(0)
        waiting.cancel()


async def test_never_may_two_write_at_once_whatever_is_lost_on_the_way() -> None:
    server, time = Server(), Time()
    first = elector(server, time, "one")
    second = elector(server, time, "two")
    cut = CutOff(server)
    first._client = cut
    async with asyncio.TaskGroup() as group:
        losing = group.create_task(lost(first))
        await time.advance(0)
        waiting = group.create_task(second.run())
        await time.advance(7)
        cut.is_cut = True
        for _ in range(300):
            await time.advance(0.1)
            assert not (first.allows(0) and second.allows(0))

        assert second.leading.is_set()
        await losing
        waiting.cancel()


class CutOff:
    """The way to a server that one of two has lost."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.is_cut = False

    def __getattr__(self, name: str) -> Any:
        if self.is_cut:
            raise errors.UnreachableError(name, 0, "cut")
        return getattr(self.server, name)


async def lost(one: Elector) -> None:
    with pytest.raises(LeadershipLostError):
        await one.run()


async def test_a_process_that_stood_still_may_not_write_when_it_goes_on() -> None:
    server, time = Server(), Time()
    one = elector(server, time, "one")
    async with asyncio.TaskGroup() as group:
        losing = group.create_task(lost(one))
        await time.advance(0)

        time.now += 30  # nothing runs meanwhile

        assert not one.allows(0)
        await time.advance(5)
        await losing


async def test_a_write_must_end_while_the_lease_is_certain() -> None:
    server, time = Server(), Time()
    one = elector(server, time, "one")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(one.run())
        await time.advance(0)

        assert one.allows(CERTAIN_SECONDS - 0.1)
        assert not one.allows(CERTAIN_SECONDS + 0.1)
        task.cancel()


@pytest.mark.parametrize(
    ("renewed_by", "left_to"),
    [("one", ""), ("two", "two")],
    ids=["its last renewal was never answered", "another one took it"],
)
async def test_only_its_holder_releases_a_lease(renewed_by: str, left_to: str) -> None:
    server, time = Server(), Time()
    one = elector(server, time, "one")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(one.run())
        await time.advance(0)
        server.renewed_unheard(renewed_by)
        task.cancel()
        await settle()

        await one.release()

    assert server.lease is not None
    assert server.lease["spec"]["holderIdentity"] == left_to


async def test_an_answer_that_was_lost_is_no_lost_leadership() -> None:
    server, time = Server(), Time()
    one = elector(server, time, "one")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(one.run())
        await time.advance(0)
        server.renewed_unheard("one")

        await time.advance(30)

        assert one.is_leading
        task.cancel()


async def test_a_lease_that_somebody_deletes_is_the_leaders_again_and_nobody_elses() -> None:
    server, time = Server(), Time()
    first = elector(server, time, "one")
    second = elector(server, time, "two")
    async with asyncio.TaskGroup() as group:
        leading = group.create_task(first.run())
        await time.advance(0)
        waiting = group.create_task(second.run())
        await time.advance(10)
        server.lease = None
        for _ in range(300):
            await time.advance(0.1)
            assert first.is_leading
            assert not second.leading.is_set()

        leading.cancel()
        waiting.cancel()


async def test_a_deleted_lease_of_a_dead_leader_is_taken_once_it_would_have_run_out() -> None:
    server, time = Server(), Time()
    first = elector(server, time, "one")
    second = elector(server, time, "two")
    async with asyncio.TaskGroup() as group:
        dead = group.create_task(first.run())
        await time.advance(0)
        waiting = group.create_task(second.run())
        await time.advance(10)
        dead.cancel()
        server.lease = None
        await time.advance(CERTAIN_SECONDS)
        assert not second.leading.is_set()

        await time.advance(LEASE_SECONDS - CERTAIN_SECONDS)

        assert second.leading.is_set()
        waiting.cancel()


async def test_a_leader_whose_deleted_lease_another_one_made_anew_writes_no_more() -> None:
    server, time = Server(), Time()
    first = elector(server, time, "one")
    async with asyncio.TaskGroup() as group:
        losing = group.create_task(lost(first))
        await time.advance(0)
        server.lease = None
        newcomer = group.create_task(elector(server, time, "two").run())
        await time.advance(RENEW_SECONDS)

        assert not first.allows(0)
        await time.advance(5)
        await losing
        newcomer.cancel()


def test_the_clock_of_leases_goes_on_while_the_machine_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = {time.CLOCK_MONOTONIC: 20.0, time.CLOCK_BOOTTIME: 50.0}
    monkeypatch.setattr(time, "clock_gettime", now.__getitem__)
    assert since_boot() == 50.0


async def test_why_a_lease_cannot_be_had_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    server, time = Server(), Time()
    server.fault = errors.UnreachableError("get leases", 0, "refused")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(elector(server, time, "one").run())
        await time.advance(60)
        task.cancel()
    assert len(caplog.records) == 1
