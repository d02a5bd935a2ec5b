"""What modern members say of themselves: one `subscriptions/listen` a member, held by us.

It carries the changes of lists and of every resource that clients follow there. When they follow
other resources it is opened anew before the old one ends; when it ends by itself, after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.wire.envelope import (
    MalformedMessage,
    Raw,
    encode_json,
    parse_list,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.protocol import LISTEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.members.upstream import Upstream
    from mcpgroup_gateway.wire.envelope import Message

_log = logging.getLogger(__name__)

_SHORTEST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
#: What a member may take to acknowledge before the listen that it replaces ends anyway.
_ACKNOWLEDGE_SECONDS: Final = 10.0


class _Listening:
    """What is listened to in one control session. `asked` and `honoured` are URIs, as the member
    acknowledged them last; `news` is told of each acknowledgement and of the end."""

    def __init__(self, control: Upstream) -> None:
        self.control = control
        self.changed = asyncio.Event()
        self.news = asyncio.Condition()
        self.asked: frozenset[str] = frozenset()
        self.honoured: frozenset[str] = frozenset()
        self.ended = False
        self.task: asyncio.Task[None] | None = None


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
        self._open: dict[str, _Listening] = {}

    def open(self, endpoint: Endpoint, control: Upstream) -> None:
        """A control session was opened; the one before it is not listened to any more."""
        self.close_endpoint(endpoint.id)
        if not control.handshake.modern:
            return
        listening = self._open[endpoint.id] = _Listening(control)
        listening.task = asyncio.create_task(
            self._listen(endpoint, listening), name=f"listen to {endpoint.id}"
        )

    def close_endpoint(self, endpoint_id: str) -> None:
        listening = self._open.pop(endpoint_id, None)
        if listening is not None and listening.task is not None:
            listening.task.cancel()

    def look_again(self) -> None:
        """Clients may follow other resources than before."""
        for listening in self._open.values():
            listening.changed.set()

    async def covers(self, endpoint: Endpoint, control: Upstream, uri: str) -> bool:
        """Whether the member tells of this resource, which is followed: its own word for it.

        Waits for the member; the caller bounds the time. Raises `MemberFailure`.
        """
        listening = self._open.get(endpoint.id)
        if listening is None or listening.control is not control:
            raise MemberFailure(Failure.SESSION_LOST, "the session was replaced", sent=False)
        listening.changed.set()
        async with listening.news:
            while uri not in listening.asked:
                if listening.ended:
                    raise MemberFailure(Failure.SESSION_LOST, "listening ended", sent=False)
                await listening.news.wait()
            return uri in listening.honoured

    async def close(self) -> None:
        tasks = [each.task for each in self._open.values() if each.task is not None]
        self._open.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, endpoint: Endpoint, listening: _Listening) -> None:
        control, changed = listening.control, listening.changed
        pause = _SHORTEST_PAUSE
        loop = asyncio.get_running_loop()
        hearing: list[asyncio.Task[None]] = []  # the newest last; those before it end
        try:
            while not control.lost:
                began = loop.time()
                changed.clear()
                uris = self._followed(control)
                acknowledged = asyncio.Event()
                current = asyncio.create_task(self._hear(endpoint, listening, uris, acknowledged))
                hearing.append(current)
                await _either(current, acknowledged, _ACKNOWLEDGE_SECONDS)
                await _end(hearing[:-1])
                del hearing[:-1]
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
            listening.ended = True
            await _end(hearing)
            async with listening.news:
                listening.news.notify_all()

    async def _hear(
        self,
        endpoint: Endpoint,
        listening: _Listening,
        uris: list[str],
        acknowledged: asyncio.Event,
    ) -> None:
        exchange = listening.control.request(LISTEN, _params(uris), safe=True)
        try:
            while not (message := await exchange.next()).is_response:
                if message.method != "notifications/subscriptions/acknowledged":
                    self._heard(endpoint, message)
                    continue
                listening.asked, listening.honoured = frozenset(uris), _honoured(message)
                acknowledged.set()
                async with listening.news:
                    listening.news.notify_all()
        except MemberFailure as failure:
            _log.debug("member %s: listening ended: %s", endpoint.member, failure.reason)
        finally:
            exchange.close()


async def _either(task: asyncio.Task[None], event: asyncio.Event, seconds: float | None) -> None:
    """Until the task ends or the event is set, at most so long."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _honoured(message: Message) -> frozenset[str]:
    """The URIs that an acknowledgement names."""
    try:
        honoured = parse_object(parse_object(message.params).get("notifications", Raw(b"")))
        uris = parse_list(honoured.get("resourceSubscriptions", Raw(b"[]")))
    except MalformedMessage:
        return frozenset()
    return frozenset(uri for uri in map(parse_string, uris) if uri is not None)


def _params(uris: list[str]) -> bytes:
    wanted: dict[str, object] = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
    }
    if uris:
        wanted["resourceSubscriptions"] = uris
    return encode_json({"notifications": wanted})
