"""HTTP members that restart or forget: callers see nothing of it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

import pytest
from tests.harness.gateway import Gateway
from tests.harness.members import FaultyHttp

if TYPE_CHECKING:
    from tests.harness.members import CallLog


@pytest.mark.parametrize("isolation", ["Shared", "PerSession"])
@pytest.mark.parametrize("status", ["404", "400"])
async def test_a_restarted_member_costs_one_initialize_and_no_caller_an_error(
    status: str, isolation: str, call_log: CallLog
) -> None:
    async with (
        FaultyHttp("a", "--unknown-session", status, *call_log.flags) as a,
        Gateway(members=[a.spec(isolation=isolation)]) as gateway,
    ):
        await gateway.all_ready()
        session = await gateway.open_session()
        assert "error" not in (await gateway.call("count", session=session)).message
        await a.restart()
        replies = await asyncio.gather(*(gateway.call("count", session=session) for _ in range(20)))
        assert [reply.message.get("error") for reply in replies] == [None] * 20
        assert call_log.count("count") == 21
        # The control session, and with `PerSession` the caller's own: each once.
        sessions = 1 if isolation == "Shared" else 2
        await call_log.until(2 * sessions, event="initialize")
        assert len(call_log.entries("initialize")) == 2 * sessions
        assert (await gateway.member("a"))["inRotation"]
        assert await gateway.metric("mcpgroup_evictions_total") == 0


async def test_connections_that_the_member_closed_while_idle_fail_no_unsafe_call(
    call_log: CallLog,
) -> None:
    async with (
        FaultyHttp("a", "--keep-alive-seconds", "0.2", *call_log.flags) as a,
        Gateway(members=[a.spec()]) as gateway,
    ):
        await gateway.all_ready()
        session = await gateway.open_session()
        for n in range(30):
            reply = await gateway.call("count", session=session)
            assert "error" not in reply.message, reply.message
            # Around the moment at which the member closes.
            await asyncio.sleep(0.19 + (n % 5) * 0.005)
        assert call_log.count("count") == 30


async def test_a_forgotten_control_session_is_opened_again_without_any_call(
    call_log: CallLog,
) -> None:
    async with (
        FaultyHttp("a", *call_log.flags) as a,
        Gateway(members=[a.spec(isolation="Shared")], health={"intervalSeconds": 1}) as gateway,
    ):
        await gateway.all_ready()
        await a.restart()
        await call_log.until(2, event="initialize")
        assert "error" not in (await gateway.call("count")).message
        assert len(call_log.entries("initialize")) == 2
        assert await gateway.metric("mcpgroup_evictions_total") == 0


async def test_a_session_is_not_opened_on_a_connection_from_before_its_member_hung(
    call_log: CallLog,
) -> None:
    """The accept queue is full, but an idle connection to the member is still established."""
    async with (
        FaultyHttp("a", *call_log.flags) as a,
        FaultyHttp("b", *call_log.flags) as b,
        Gateway(
            members=[server.spec(connectTimeoutSeconds=1) for server in (a, b)],
            health={"intervalSeconds": 60},
        ) as gateway,
    ):
        await gateway.all_ready()
        sessions = [await gateway.open_session() for _ in range(8)]
        os.kill(a.pid, signal.SIGSTOP)
        fillers: list[socket.socket] = []
        try:
            for _ in range(300):
                filler = socket.socket()
                fillers.append(filler)
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", a.port))
            began = time.monotonic()
            replies = await asyncio.gather(
                *(gateway.call("count", session=session) for session in sessions)
            )
            assert time.monotonic() - began < 1 + 1
            assert [reply.message.get("error") for reply in replies] == [None] * 8
            assert call_log.count("count") == 8
            assert await gateway.metric("mcpgroup_failovers_total", reason="connect") > 0
        finally:
            for filler in fillers:
                filler.close()
            os.kill(a.pid, signal.SIGCONT)
