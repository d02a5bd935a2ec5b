"""Upstream sessions of callers, with connectors that only pretend."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import Handshake, MemberFailure
from mcpgroup_gateway.serving.upstreams import UpstreamSessions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcpgroup_gateway.members.upstream import Exchange, Upstream


class FakeSession:
    pid: int | None = None
    handshake = Handshake("2025-11-25", b"{}", b"{}", None)

    def __init__(self) -> None:
        self.in_flight = 0
        self.lost = False
        self.closed = False

    def request(self, *_: Any, **__: Any) -> Exchange:
        raise AssertionError("nothing is sent here")

    def hold_stream(self) -> None:
        raise AssertionError

    def respond(self, body: bytes) -> None:
        raise AssertionError("nothing is sent here")

    async def notify(self, method: str, params: bytes) -> None:
        raise AssertionError("nothing is sent here")

    async def close(self) -> None:
        self.closed = True


class FakeConnector:
    """Opens at once; fails when it was given a failure."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.opened: list[FakeSession] = []
        self.failure = failure

    async def open(self, *_: Any) -> Upstream:
        if self.failure is not None:
            raise self.failure
        self.opened.append(FakeSession())
        return self.opened[-1]

    async def close(self) -> None:
        return


async def _nothing(*_: Any) -> None:
    return


@pytest.fixture
async def sessions() -> AsyncIterator[UpstreamSessions]:
    held = UpstreamSessions(
        maximum=2,
        idle_seconds=60,
        opened=_nothing,
        message=lambda *_: None,
        requested=lambda *_: None,
        lost=lambda *_: None,
    )
    yield held
    await held.close()


async def use(
    sessions: UpstreamSessions, owner: str, endpoint: str, connector: FakeConnector
) -> Upstream:
    got = sessions.get(owner, endpoint, connector, 5)
    return await got if isinstance(got, asyncio.Future) else got


async def test_at_its_bound_an_endpoint_closes_the_session_that_was_idle_longest(
    sessions: UpstreamSessions,
) -> None:
    connector = FakeConnector()
    for owner in ("one", "two", "one", "three"):
        await use(sessions, owner, "a", connector)
    assert sessions.peek("two") == []
    assert sessions.peek("one") == connector.opened[:1]
    assert sessions.peek("three") == connector.opened[2:]


async def test_members_do_not_take_room_from_each_other(sessions: UpstreamSessions) -> None:
    connectors = [FakeConnector() for _ in range(5)]
    for number, connector in enumerate(connectors):
        for owner in ("one", "two"):
            await use(sessions, owner, str(number), connector)
    assert len(sessions) == 10


async def test_a_session_with_a_call_in_flight_is_not_closed_for_room(
    sessions: UpstreamSessions,
) -> None:
    connector = FakeConnector()
    await use(sessions, "one", "a", connector)
    connector.opened[0].in_flight = 1
    await use(sessions, "two", "a", connector)
    await use(sessions, "three", "a", connector)
    assert sessions.peek("one") == connector.opened[:1]
    assert sessions.peek("two") == []


async def test_what_an_owner_had_is_closed_with_it_and_nothing_else(
    sessions: UpstreamSessions,
) -> None:
    a, b = FakeConnector(), FakeConnector()
    for owner in ("one", "two"):
        await use(sessions, owner, "a", a)
        await use(sessions, owner, "b", b)
    sessions.close_owner("one")
    assert sessions.peek("one") == []
    assert len(sessions.peek("two")) == 2
    sessions.close_endpoint("a")
    assert sessions.peek("two") == [b.opened[1]]
    assert sessions.last_used("a") is None
    assert sessions.last_used("b") is not None


async def test_a_session_that_cannot_be_opened_leaves_no_trace(sessions: UpstreamSessions) -> None:
    failing = FakeConnector(MemberFailure(Failure.REFUSED, "refused", sent=False))
    with pytest.raises(MemberFailure, match="refused"):
        await use(sessions, "one", "a", failing)
    assert len(sessions) == 0
    failing.failure = None
    await use(sessions, "one", "a", failing)
    assert len(sessions) == 1


async def test_nobody_waits_for_a_session_that_a_fault_of_ours_keeps_from_opening(
    sessions: UpstreamSessions, caplog: pytest.LogCaptureFixture
) -> None:
    broken = FakeConnector(ValueError("a fault of ours"))
    async with asyncio.timeout(2):
        with pytest.raises(MemberFailure) as raised:
            await use(sessions, "one", "a", broken)
    assert raised.value.failure is Failure.START_FAILED
    assert not raised.value.sent
    assert "could not be opened" in caplog.text
    # The next call opens one.
    connector = FakeConnector()
    assert await use(sessions, "one", "a", connector) is connector.opened[0]


async def test_what_a_call_reserved_is_not_freed_by_one_whose_session_did_not_open(
    sessions: UpstreamSessions,
) -> None:
    failing = FakeConnector(MemberFailure(Failure.REFUSED, "refused", sent=False))
    first = sessions.reserve("anonymous", "a", "anonymous")
    with pytest.raises(MemberFailure):
        await use(sessions, first.owner, "a", failing)
    second = sessions.reserve("anonymous", "a", "anonymous")
    assert second.owner == first.owner  # the name is free again
    sessions.release(first)
    third = sessions.reserve("anonymous", "a", "anonymous")
    assert third.owner != second.owner


async def test_callers_without_a_session_who_declare_ever_more_keep_few_sessions_open() -> None:
    connector = FakeConnector()
    held = UpstreamSessions(
        maximum=10_000,
        idle_seconds=60,
        opened=_nothing,
        message=lambda *_: None,
        requested=lambda *_: None,
        lost=lambda *_: None,
    )
    for number in range(100):
        for tenant in ("one", "two"):
            got = held.get(f"{tenant}:{number}", "a", connector, 5, shared_by=tenant)
            if isinstance(got, asyncio.Future):
                await got
    assert len(held) == 64
    for number in range(100):
        await use(held, f"session {number}", "a", connector)
    assert len(held) == 164  # client sessions are counted for themselves
    await held.close()


async def test_nobody_gets_a_session_before_what_is_to_be_said_first_was_said() -> None:
    opened, said = asyncio.Event(), asyncio.Event()

    async def first(*_: Any) -> None:
        opened.set()
        await said.wait()

    sessions = UpstreamSessions(
        maximum=2,
        idle_seconds=60,
        opened=first,
        message=lambda *_: None,
        requested=lambda *_: None,
        lost=lambda *_: None,
    )
    connector = FakeConnector()
    one = asyncio.create_task(use(sessions, "one", "a", connector))
    async with asyncio.timeout(2):
        await opened.wait()
        another = asyncio.create_task(use(sessions, "one", "a", connector))
        await asyncio.sleep(0)
        assert not one.done()
        assert not another.done()
        said.set()
        assert await one is await another is connector.opened[0]
    await sessions.close()
