"""What modern members say of themselves: one `subscriptions/listen` a member, held by us.

It carries the changes of lists and of every resource that clients follow there. When they follow
other resources it is opened anew before the old one ends; when it ends by itself, after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.wire.envelope import encode_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.members.upstream import Exchange, Upstream
    from mcpgroup_gateway.wire.envelope import Message

_log = logging.getLogger(__name__)

_SHORTEST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
#: What a member may take to acknowledge before the listen that it replaces ends anyway.
_ACKNOWLEDGE_SECONDS: Final = 10.0


class Listeners:
    """Owns one task a modern control session.

    `followed` gives the URIs for a session, `heard` takes what a member says; `missed` is told
    when listening goes on after a gap.
    """

    def __init__(
        self,
        followed: Callable[[Upstream], list[str]],
        heard: Callable[[Endpoint, Message], None],
        missed: Callable[[Endpoint, Upstream], None],
    ) -> None:
        self._followed = followed
        self._heard = heard
        self._missed = missed
        self._tasks: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}

    def open(self, endpoint: Endpoint, control: Upstream) -> None:
        """A control session was opened; the one before it is not listened to any more."""
        self.close_endpoint(endpoint.id)
        if not control.handshake.modern:
            return
        changed = asyncio.Event()
        task = asyncio.create_task(
            self._listen(endpoint, control, changed), name=f"listen to {endpoint.id}"
        )
        self._tasks[endpoint.id] = (task, changed)

    def close_endpoint(self, endpoint_id: str) -> None:
        held = self._tasks.pop(endpoint_id, None)
        if held is not None:
            held[0].cancel()

    def look_again(self) -> None:
        """Clients may follow other resources than before."""
        for _, changed in self._tasks.values():
            changed.set()

    async def close(self) -> None:
        tasks = [task for task, _ in self._tasks.values()]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, endpoint: Endpoint, control: Upstream, changed: asyncio.Event) -> None:
        pause = _SHORTEST_PAUSE
        loop = asyncio.get_running_loop()
        current: asyncio.Task[None] | None = None
        try:
            while not control.lost:
                began = loop.time()
                changed.clear()
                uris = self._followed(control)
                acknowledged = asyncio.Event()
                fresh = asyncio.create_task(self._hear(endpoint, control, uris, acknowledged))
                await _either(fresh, acknowledged, _ACKNOWLEDGE_SECONDS)
                old, current = current, fresh
                await _ended(old)
                while not current.done() and self._followed(control) == uris:
                    changed.clear()
                    await _either(current, changed, None)
                if not current.done():
                    continue  # other resources: at once, and the old one ends after
                if loop.time() - began > _LONGEST_PAUSE:
                    pause = _SHORTEST_PAUSE
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                if not control.lost:  # else what follows it is told once that is taken up again
                    self._missed(endpoint, control)
        finally:
            await _ended(current)

    async def _hear(
        self, endpoint: Endpoint, control: Upstream, uris: list[str], acknowledged: asyncio.Event
    ) -> None:
        exchange = control.request("subscriptions/listen", _params(uris), safe=True)
        try:
            await self._read(endpoint, exchange, acknowledged)
        except MemberFailure as failure:
            _log.debug("member %s: listening ended: %s", endpoint.member, failure.reason)
        finally:
            exchange.close()

    async def _read(
        self, endpoint: Endpoint, exchange: Exchange, acknowledged: asyncio.Event
    ) -> None:
        while True:
            message = await exchange.next()
            if message.is_response:
                return
            if message.method == "notifications/subscriptions/acknowledged":
                acknowledged.set()
            else:
                self._heard(endpoint, message)


async def _either(task: asyncio.Task[None], event: asyncio.Event, seconds: float | None) -> None:
    """Until the task ends or the event is set, at most so long."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


async def _ended(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _params(uris: list[str]) -> bytes:
    wanted: dict[str, object] = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
    }
    if uris:
        wanted["resourceSubscriptions"] = uris
    return encode_json({"notifications": wanted})
