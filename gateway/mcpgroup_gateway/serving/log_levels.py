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
        self._telling: dict[Upstream, asyncio.Task[None]] = {}

    def set(self, upstream: Upstream, level: str) -> None:
        """Tell a legacy member in the background; of what comes meanwhile, the newest."""
        self._told[upstream] = level
        if upstream not in self._telling:
            task = asyncio.create_task(self._tell(upstream), name="set log level")
            self._telling[upstream] = task
            task.add_done_callback(lambda _: self._telling.pop(upstream, None))

    async def _tell(self, upstream: Upstream) -> None:
        said = ""
        while (level := self._told[upstream]) != said:
            said = level
            await tell_level(upstream, level)

    def set_shared(self, upstream: Upstream) -> None:
        """Give a shared session the most verbose level of all."""
        level = min(self._asked(), key=LOG_LEVELS.index, default=None)
        if level is not None:
            self.set(upstream, level)

    def raise_for(self, upstream: Upstream, level: str | None) -> asyncio.Future[None] | None:
        """See that the session gives messages of a modern caller's level, too.

        A future of that, None when there is nothing to wait for. Cancel it to stop waiting.
        """
        if level is None or upstream.handshake.modern:
            return None
        told = self._told.get(upstream)
        if told is not None and LOG_LEVELS.index(level) >= LOG_LEVELS.index(told):
            return None
        self.set(upstream, level)
        raised: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(_: asyncio.Task[None]) -> None:
            if not raised.done():
                raised.set_result(None)

        self._telling[upstream].add_done_callback(done)
        return raised

    async def close(self) -> None:
        tasks = list(self._telling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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
