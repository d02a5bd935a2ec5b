"""1,000 open sessions and 64 callers at once, and what a session costs the gateway's memory."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.harness.gateway import Gateway
from tests.harness.members import faulty
from tests.harness.processes import ROOT, Running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SESSIONS = 1_000
CALLERS = 64
ECHO = ROOT / "tests" / "bench" / "echo.py"


@contextlib.asynccontextmanager
async def echo_members() -> AsyncIterator[list[dict[str, Any]]]:
    """Three fast HTTP members; each client session has an upstream session of its own there."""
    async with contextlib.AsyncExitStack() as stack:
        members = []
        for name in "abc":
            server = await stack.enter_async_context(
                Running([sys.executable, "-S", str(ECHO), name], {})
            )
            url = (await server.printed(r"(http\S+)"))[1]
            members.append({"name": name, "http": {"url": url}})
        yield members


@contextlib.asynccontextmanager
async def shared_processes() -> AsyncIterator[list[dict[str, Any]]]:
    """Three processes that all sessions share."""
    yield [faulty("a"), faulty("b"), faulty("c")]


async def each(sessions: list[str], gateway: Gateway) -> None:
    """One call in every session, `CALLERS` at a time; each must give its own text back."""
    left = iter(sessions)

    async def caller() -> None:
        for session in left:
            reply = await gateway.call("echo", {"text": session}, session=session)
            assert reply.status == 200, reply.body
            assert session in reply.text

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


async def opened(gateway: Gateway, number: int) -> list[str]:
    left = iter(range(number))

    async def opener() -> list[str]:
        return [await gateway.open_session() for _ in left]

    batches = await asyncio.gather(*(opener() for _ in range(CALLERS)))
    return [session for batch in batches for session in batch]


@pytest.mark.parametrize(
    ("members", "bytes_a_session"),
    [
        pytest.param(shared_processes, 4_000, id="shared processes"),
        pytest.param(echo_members, 16_000, id="an upstream session each"),
    ],
)
async def test_a_thousand_sessions_and_64_callers_see_no_error(
    members: Any, bytes_a_session: int, record_property: Any
) -> None:
    async with members() as entries, Gateway(members=entries) as gateway:
        await gateway.all_ready()
        process = psutil.Process(gateway.pid)
        for session in await opened(gateway, CALLERS):  # what the first calls alone take
            await each([session], gateway)
            await gateway.close_session(session)
        before = process.memory_info().rss
        sessions = await opened(gateway, SESSIONS)
        await each(sessions, gateway)
        grown = (process.memory_info().rss - before) / SESSIONS

        status = await gateway.status()
        assert status["sessions"]["open"] == SESSIONS
        for _ in range(3):
            await each(sessions, gateway)
        assert await gateway.metric("mcpgroup_requests_total", method="tools/call") == (
            CALLERS + 4 * SESSIONS
        )
        assert await gateway.metric("mcpgroup_requests_total", outcome="ok") == (
            await gateway.metric("mcpgroup_requests_total")
        )
        record_property("bytes a session", round(grown))
        print(f"{grown:.0f} bytes a session, {process.memory_info().rss / 2**20:.0f} MiB in all")
        assert grown <= bytes_a_session
