"""A write decided on while the lease was certain does not leave when it is not any more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web

from mcpgroup_operator.client import Client
from mcpgroup_operator.errors import NotLeadingError
from mcpgroup_operator.kinds import CONFIG_MAP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MANIFEST = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"namespace": "team", "name": "demo"},
    "data": {"a": "ä" * 100_000},
}


class Lease:
    """Certain so many times that it is asked."""

    def __init__(self, times: int) -> None:
        self._times = times

    def allows(self, seconds: float) -> bool:
        assert seconds >= 0
        self._times -= 1
        return self._times >= 0


class Observer:
    def __init__(self) -> None:
        self.codes: list[str] = []

    def requested(self, verb: str, resource: str, code: str, seconds: float) -> None:
        assert (verb, resource) in {("patch", "configmaps"), ("get", "configmaps")}
        assert seconds >= 0
        self.codes.append(code)


class Server:
    """Answers with what it was sent."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.content_type}")
        text = await request.text() or "{}"
        return web.Response(text=text, content_type="application/json")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


async def test_a_lease_that_stays_certain_lets_a_write_through(server: Server) -> None:
    observer = Observer()
    async with aiohttp.ClientSession() as session:
        client = Client(server.url, session, Lease(2), observer, clock=time.monotonic)
        assert await client.apply(MANIFEST, force=True) == MANIFEST
    assert server.asked == ["PATCH application/apply-patch+yaml"]
    assert observer.codes == ["200"]


async def test_nothing_is_sent_once_the_lease_is_not_certain(server: Server) -> None:
    """It was when the request was made, and not when the connection was there."""
    observer = Observer()
    async with aiohttp.ClientSession() as session:
        client = Client(server.url, session, Lease(1), observer, clock=time.monotonic)
        with pytest.raises(NotLeadingError):
            await client.apply(MANIFEST, force=True)
        assert observer.codes == ["error"]
        # The connection is not used for what comes next, and reads go on.
        await client.get(CONFIG_MAP, "team", "demo")
    assert server.asked == ["GET application/octet-stream"]
