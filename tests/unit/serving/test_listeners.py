"""Listening to modern members, with sessions that only pretend."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import Handshake, MemberFailure
from mcpgroup_gateway.serving.listeners import Listeners
from mcpgroup_gateway.wire.envelope import Message, encode_json, parse_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.members.upstream import Upstream


class Listen:
    """An exchange whose messages the test says."""

    sent = True

    def __init__(self, params: bytes) -> None:
        self.params = params
        self.closed = False
        self._said: asyncio.Queue[Message] = asyncio.Queue()

    async def next(self) -> Message:
        return await self._said.get()

    def acknowledge(self, *uris: str) -> None:
        shown = encode_json({"notifications": {"resourceSubscriptions": uris}}).decode()
        method = "notifications/subscriptions/acknowledged"
        self._said.put_nowait(
            parse_message(f'{{"jsonrpc":"2.0","method":"{method}","params":{shown}}}'.encode())
        )

    def abort(self, failure: MemberFailure) -> None:
        raise AssertionError("a listen is closed")

    def close(self) -> None:
        self.closed = True


class Control:
    handshake = Handshake("2026-07-28", b"{}", b"{}", None)
    lost = False

    def __init__(self) -> None:
        self.listens: list[Listen] = []

    def request(self, method: str, params: bytes, *, safe: bool) -> Listen:
        assert (method, safe) == ("subscriptions/listen", True)
        self.listens.append(Listen(params))
        return self.listens[-1]


@dataclass
class Place:
    id: str = "a-1"
    member: str = "a"


@dataclass
class Stage:
    followed: list[str] = field(default_factory=list)
    heard: list[Message] = field(default_factory=list)
    control: Control = field(default_factory=Control)
    endpoint: Endpoint = field(default_factory=lambda: cast("Endpoint", Place()))

    def __post_init__(self) -> None:
        self.listeners = Listeners(
            followed=lambda _: sorted(self.followed),
            heard=lambda _, message: self.heard.append(message),
            missed=lambda *_: None,
        )

    def open(self) -> None:
        self.listeners.open(self.endpoint, self.upstream)

    @property
    def upstream(self) -> Upstream:
        return cast("Upstream", self.control)

    def covers(self, uri: str) -> asyncio.Task[bool]:
        self.followed.append(uri)
        return asyncio.create_task(self.listeners.covers(self.endpoint, self.upstream, uri))


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    set_up = Stage()
    yield set_up
    await set_up.listeners.close()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_listen_that_was_not_acknowledged_ends_with_its_session(stage: Stage) -> None:
    before = asyncio.all_tasks()
    stage.open()
    await settled()
    [listen] = stage.control.listens
    stage.listeners.close_endpoint("a-1")
    await settled()
    assert listen.closed
    assert asyncio.all_tasks() == before


async def test_what_is_followed_holds_once_the_member_has_acknowledged_it(stage: Stage) -> None:
    stage.open()
    await settled()
    stage.control.listens[0].acknowledge()
    one, other = stage.covers("file:///a"), stage.covers("file:///b")
    await settled()
    assert not one.done()
    assert not other.done()
    listen = stage.control.listens[-1]
    assert b"file:///a" in listen.params
    assert b"file:///b" in listen.params
    listen.acknowledge("file:///a")
    async with asyncio.timeout(2):
        assert await one
        assert not await other
    await settled()
    assert [each.closed for each in stage.control.listens] == [True, False]


async def test_whoever_waits_for_an_acknowledgement_learns_that_the_session_ended(
    stage: Stage,
) -> None:
    stage.open()
    await settled()
    waiting = stage.covers("file:///a")
    await settled()
    stage.listeners.close_endpoint("a-1")
    async with asyncio.timeout(2):
        with pytest.raises(MemberFailure) as raised:
            await waiting
    assert raised.value.failure is Failure.SESSION_LOST
    with pytest.raises(MemberFailure, match="replaced"):
        await stage.listeners.covers(stage.endpoint, stage.upstream, "file:///a")
