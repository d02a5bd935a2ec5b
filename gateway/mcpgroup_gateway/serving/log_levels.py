"""Log levels: kept per client session, applied to the upstream sessions that serve it.

A session that clients share gets the most verbose level that any of them asked for, and each
client's messages are filtered (DESIGN-MCP section 4). Modern members are told with each request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.wire.envelope import encode_json
from mcpgroup_gateway.wire.protocol import LOG_LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mcpgroup_gateway.members.upstream import Upstream

_SECONDS: Final = 5.0


class LogLevels:
    """`asked` gives the levels of all client sessions; owns the tasks that tell members."""

    def __init__(self, asked: Callable[[], Iterable[str]]) -> None:
        self._asked = asked
        self._told: WeakKeyDictionary[Upstream, str] = WeakKeyDictionary()
        self._telling: set[asyncio.Task[None]] = set()

    def set(self, upstream: Upstream, level: str) -> None:
        """Tell a legacy member in the background."""
        self._told[upstream] = level
        task = asyncio.create_task(tell_level(upstream, level), name="set log level")
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def set_shared(self, upstream: Upstream) -> None:
        """Give a shared session the most verbose level of all."""
        level = min(self._asked(), key=LOG_LEVELS.index, default=None)
        if level is not None:
            self.set(upstream, level)

    async def raise_for(self, upstream: Upstream, level: str | None) -> None:
        """See that the session gives messages of a modern caller's level, too."""
        if level is None or upstream.handshake.modern:
            return
        told = self._told.get(upstream)
        if told is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(told):
            self._told[upstream] = level
            await tell_level(upstream, level)

    async def close(self) -> None:
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)


async def tell_level(upstream: Upstream, level: str) -> None:
    """Within 5 s, or not at all: a log level is not worth more."""
    if upstream.handshake.modern or b'"logging"' not in upstream.handshake.capabilities:
        return
    upstream.hold_stream()  # members log outside of calls too
    exchange = upstream.request("logging/setLevel", b'{"level":%b}' % encode_json(level), safe=True)
    try:
        async with asyncio.timeout(_SECONDS):
            while not (await exchange.next()).is_response:
                pass
    except (MemberFailure, TimeoutError):
        return
    finally:
        exchange.close()
