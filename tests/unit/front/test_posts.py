"""What a POSTed message does, without HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.front import ScriptedService, call
from tests.harness.messages import request

from mcpgroup_gateway.front.checks import Accepts
from mcpgroup_gateway.front.load import Load
from mcpgroup_gateway.front.posts import Head, PostHandler
from mcpgroup_gateway.front.settings import FrontSettings
from mcpgroup_gateway.serving.sessions import SessionTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.front.replies import Reply
    from mcpgroup_gateway.serving.session import Session


class Channel:
    """Remembers what was sent; `gone` is the client's disconnect."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_open = False
        self.is_gone = False
        self.gone_at = 0.0
        self.ended = False
        self.gone: Callable[[], None] | None = None

    @property
    def sink(self) -> Channel:
        return self

    def begin(self, *, stream: bool, session: Session | None = None) -> None:
        self.streams = stream

    def push(self, message: bytes) -> bool:
        self.sent.append(message)
        return True

    def on_gone(self, callback: Callable[[], None]) -> None:
        self.gone = callback

    async def send(self, message: bytes) -> None:
        self.is_open = True
        self.sent.append(message)

    async def finish(self, message: bytes | None) -> None:
        if message is not None:
            await self.send(message)

    def end(self) -> None:
        self.ended = True


class Observed:
    def __init__(self) -> None:
        self.answered: list[tuple[str, str]] = []
        self.refused: list[str] = []

    def request_answered(self, method: str, outcome: str, seconds: float) -> None:
        self.answered.append((method, outcome))

    def request_refused(self, reason: str) -> None:
        self.refused.append(reason)


class Bench:
    def __init__(self, **settings: Any) -> None:
        self.service = ScriptedService()
        self.sessions = SessionTable(max_sessions=1, idle_seconds=100, clock=lambda: 0.0)
        self.observed = Observed()
        self.load = Load(self.service, FrontSettings(**settings), self.observed)
        self.handler = PostHandler(
            self.service, self.sessions, self.load, self.observed, lambda: 0.0
        )

    async def post(
        self,
        message: bytes | dict[str, Any],
        channel: Channel | None = None,
        session_id: str | None = None,
    ) -> Reply | None:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        accepts = Accepts(json=True, events=True, names_events=True)
        head = Head(session_id, accepts, None, "", {})
        return await self.handler.handle(head, body, channel or Channel())


@given(st.binary(max_size=200))
def test_no_bytes_make_the_handler_fail(body: bytes) -> None:
    reply = asyncio.run(Bench().post(body))
    assert reply is not None
    assert reply.status in (200, 202, 400)


@given(
    st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0"), "method": st.text(max_size=20)},
        optional={
            "id": st.one_of(st.integers(), st.text(), st.none(), st.booleans(), st.floats(0, 1)),
            "params": st.recursive(
                st.one_of(st.none(), st.integers(), st.text()),
                lambda inner: st.dictionaries(st.text(), inner),
                max_leaves=5,
            ),
        },
    )
)
def test_no_message_makes_the_handler_fail(message: dict[str, Any]) -> None:
    reply = asyncio.run(Bench().post(message))
    assert reply is not None
    assert reply.status in (200, 202, 400)


async def test_the_front_reports_what_it_answers_itself() -> None:
    bench = Bench(requests_in_flight=0)
    await bench.post(request("ping", 1))
    await bench.post(request("initialize", 1))
    await bench.post(request("initialize", 1, protocolVersion="2025-11-25"))
    await bench.post(request("initialize", 1, protocolVersion="2025-11-25"))
    await bench.post(call("echo"))
    assert bench.observed.answered == [
        ("ping", "ok"),
        ("initialize", "invalid"),
        ("initialize", "ok"),
        ("initialize", "overloaded"),
        ("tools/call", "overloaded"),
    ]
    assert bench.observed.refused == ["overloaded", "overloaded"]


async def test_nobody_gets_a_session_who_left_before_it_was_open() -> None:
    bench, channel = Bench(), Channel()
    channel.is_gone = True
    await bench.post(request("initialize", 1, protocolVersion="2025-11-25"), channel)
    assert len(bench.sessions) == 0


@pytest.mark.parametrize("with_session", [True, False])
async def test_only_without_a_session_a_disconnect_cancels(with_session: bool) -> None:
    bench, channel = Bench(), Channel()
    session = bench.sessions.open("2025-11-25")
    assert session is not None
    posted = asyncio.create_task(
        bench.post(call("hold"), channel, session.id if with_session else None)
    )
    await bench.service.holding.wait()
    assert (channel.gone is None) == with_session
    assert bench.load.running == 1
    if channel.gone is not None:
        channel.gone()
    else:
        bench.service.held[0].released.set()
    reply = await posted
    assert reply is not None
    assert bool(reply.body) == with_session
    assert channel.ended
    assert bench.load.running == 0
