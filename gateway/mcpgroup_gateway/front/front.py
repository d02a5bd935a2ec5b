"""The MCP port of a replica, from start to drain."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from aiohttp import web

from mcpgroup_gateway.front.endpoint import Endpoint
from mcpgroup_gateway.front.server import McpServer
from mcpgroup_gateway.front.settings import Unobserved

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.front.settings import FrontSettings, Observer
    from mcpgroup_gateway.serving.interface import Service
    from mcpgroup_gateway.serving.sessions import SessionTable

logger = logging.getLogger(__name__)

_BACKLOG = 1024


class Front:
    """Serves `service` at `/mcp`. Call `start` once, `close` once; the rest in any order between.

    It owns one task, which keeps streams alive, closes overdue connections and expires sessions.
    """

    def __init__(
        self,
        service: Service,
        sessions: SessionTable,
        settings: FrontSettings,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._settings = settings
        self._clock = clock
        self._endpoint = Endpoint(service, sessions, settings, observer or Unobserved(), clock)
        self._server: McpServer | None = None
        self._runner: web.ServerRunner | None = None
        self._upkeep: asyncio.Task[None] | None = None

    @property
    def in_flight(self) -> int:
        """Requests being answered, GET streams not among them."""
        return self._endpoint.in_flight

    @property
    def running(self) -> int:
        """Calls that the service runs; what `requests_in_flight` limits."""
        return self._endpoint.running

    @property
    def idle_since(self) -> float | None:
        """The clock's time of the last arrival or end of a request; None while one is served."""
        return None if self._endpoint.in_flight else self._endpoint.last_active

    @property
    def open_streams(self) -> int:
        """GET streams that are open now."""
        return sum(len(session.streams) for session in self._sessions)

    async def start(self) -> int:
        """Listen; the port that was bound. Raises `OSError` when the address cannot be had."""
        self._server = McpServer(self._endpoint.handle)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=self._settings.close_seconds)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._settings.host, self._settings.port, backlog=_BACKLOG)
        try:
            await site.start()
        except BaseException:
            await self._runner.cleanup()
            raise
        self._upkeep = asyncio.create_task(self._keep_up(), name="front upkeep")
        return site.port

    def update(self, settings: FrontSettings) -> None:
        """Use new limits and policies from the next request on; the address stays."""
        self._settings = settings
        self._endpoint.update(settings)

    def begin_drain(self) -> None:
        """Serve on, but let connections go: answers close theirs, idle ones and GET streams end."""
        self._endpoint.drain()
        self._end_streams()
        if self._server is not None:
            self._server.close_idle()

    def refuse(self) -> None:
        """Answer new requests 503 from now on; those in flight go on."""
        self.begin_drain()
        self._endpoint.refusing = True

    async def close(self) -> None:
        """Stop listening, end the sessions and their calls, close every connection.

        What has not ended within `close_seconds` is cancelled.
        """
        self.refuse()
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.gather(self._upkeep, return_exceptions=True)
        self._sessions.close_all()
        await self._endpoint.streams.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _end_streams(self) -> None:
        for session in self._sessions:
            session.end_streams()

    async def _keep_up(self) -> None:
        while True:
            settings = self._settings
            shortest = min(
                settings.keep_alive_seconds, settings.head_seconds, settings.write_seconds
            )
            await asyncio.sleep(min(1.0, shortest / 4))
            try:
                await self._endpoint.streams.keep_alive(settings.keep_alive_seconds)
                if self._server is not None:
                    self._server.check(settings)
                    if self._endpoint.draining:
                        self._server.close_idle()
                self._sessions.expire()
            except Exception:  # upkeep must outlive any fault of one connection
                logger.exception("the upkeep of connections failed")
