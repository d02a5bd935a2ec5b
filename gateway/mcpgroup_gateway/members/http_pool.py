"""Connections to one origin, the latest used one first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http_dialling import Dialler
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from mcpgroup_gateway.members.http1 import HttpCall
    from mcpgroup_gateway.members.http_address import Address
    from mcpgroup_gateway.members.http_connection import Connection

#: Idle connections kept an origin; how many are in use is bounded by the calls.
MAX_IDLE: Final = 64


class Pool:
    """Connections to one origin. The latest used goes out first, so the others can grow old.

    `tls` is asked for the context when the origin is https. `connect_seconds` bounds resolving,
    connecting and the TLS handshake together.
    """

    def __init__(
        self,
        address: Address,
        *,
        connect_seconds: float,
        tls: Callable[[], ssl.SSLContext],
        loop: asyncio.AbstractEventLoop,
        max_idle: int = MAX_IDLE,
    ) -> None:
        self._loop = loop
        self._dialler = Dialler(address, connect_seconds=connect_seconds, tls=tls, loop=loop)
        self._max_idle = max_idle
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._waiting: dict[HttpCall, None] = {}
        self._dials: set[asyncio.Task[Connection]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def take(self, *, safe: bool) -> Connection | None:
        """An idle connection that can carry such a request, None when a new one is needed."""
        idle = self._idle
        now = self._loop.time()
        while idle:
            connection = idle[-1]
            age = now - connection.idle_since
            if not safe and age > connection.trusted_seconds:
                return None  # those below are older still
            del idle[-1]
            if age <= connection.kept_seconds and connection.usable():
                return connection
            connection.discard()
        return None

    def connect_for(self, call: HttpCall) -> None:
        """Dial for a call that waits; it gets this connection or one that comes free earlier."""
        self._waiting[call] = None
        dial = self._loop.create_task(self._dialler.dial(self))
        self._dials.add(dial)
        dial.add_done_callback(lambda done: self._dialled(done, call))

    def forget(self, call: HttpCall) -> None:
        """The call waits no longer; a connection that is being made for it goes to the idle."""
        self._waiting.pop(call, None)

    def released(self, connection: Connection) -> None:
        for call in self._waiting:
            if call.takes_used_connections and connection.usable():
                del self._waiting[call]
                call.connected(connection, reused=True)
                return
        self._keep(connection)

    def ended(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def close(self) -> None:
        """Close all connections and stop dialling. Idempotent."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._dialler.close()
        dials = tuple(self._dials)
        for dial in dials:
            dial.cancel()
        await asyncio.gather(*dials, return_exceptions=True)
        for connection in tuple(self._open):
            connection.discard()
        self._idle.clear()
        await asyncio.sleep(0)  # transports close their sockets in the next turn of the loop

    def _dialled(self, dial: asyncio.Task[Connection], call: HttpCall) -> None:
        self._dials.discard(dial)
        failure = _failure_of(dial)
        if failure is not None:
            if call in self._waiting:
                del self._waiting[call]
                call.connect_failed(failure)
            return
        connection = dial.result()
        self._open.add(connection)
        if self._closed or not connection.usable():
            connection.discard()
            if call in self._waiting:
                del self._waiting[call]
                reason = "the member closed a new connection before anything was sent"
                call.connect_failed(MemberFailure(Failure.REFUSED, reason, sent=False))
            return
        waiting = call if call in self._waiting else next(iter(self._waiting), None)
        if waiting is None:
            self._keep(connection)
        else:
            del self._waiting[waiting]
            waiting.connected(connection, reused=False)

    def _keep(self, connection: Connection) -> None:
        if self._closed:
            connection.discard()
            return
        if len(self._idle) >= self._max_idle:
            self._idle.pop(0).discard()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(connection.kept_seconds, self._expire)

    def _expire(self) -> None:
        """Close what has been idle for too long; one timer serves the pool."""
        self._timer = None
        now = self._loop.time()
        for connection in tuple(self._idle):
            if now - connection.idle_since >= connection.kept_seconds:
                self._idle.remove(connection)
                connection.discard()
        if self._idle:
            due = min(each.idle_since + each.kept_seconds for each in self._idle)
            self._timer = self._loop.call_later(max(due - now, 0.1), self._expire)


def _failure_of(dial: asyncio.Task[Connection]) -> MemberFailure | None:
    if dial.cancelled():
        return MemberFailure(Failure.CANCELLED, "the connections were closed", sent=False)
    fault = dial.exception()
    if fault is None or isinstance(fault, MemberFailure):
        return fault
    reason = f"connecting failed unexpectedly ({type(fault).__name__})"
    return MemberFailure(Failure.REFUSED, reason, sent=False)
