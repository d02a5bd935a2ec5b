"""Lists that a member shows only to some clients.

Servers offer more to clients that can do more, and may change the lists of a single session. What
clients with equal capabilities see of a member is read once, in the first upstream session that
declares them; what one session sees differently is an overlay for that session alone (DESIGN-MCP
section 2). Members that clients share have one list for all.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.members.upstream import GATEWAY_IDENTITY, Forwarded, MemberFailure
from mcpgroup_gateway.serving.catalogues import FIRST_CATALOGUE_SECONDS
from mcpgroup_gateway.serving.discovery import read_catalogue
from mcpgroup_gateway.wire.capabilities import canonical_capabilities

if TYPE_CHECKING:
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.members.upstream import Upstream
    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.serving.interface import Caller
    from mcpgroup_gateway.serving.sessions import Session

_log = logging.getLogger(__name__)

#: How long what was read counts as fresh, and how long a change waits for more of its kind.
_FRESH_SECONDS: Final = 60.0
_COALESCE_SECONDS: Final = 1.0
#: Nobody waits again so soon for a member that did not give its lists, or lost them.
_AGAIN_SECONDS: Final = 5.0
_MAX_READING: Final = 64
_MAX_REMEMBERED: Final = 1024


class ClientLists:
    """Reads in callers' upstream sessions; owns the tasks that do so. `close` it at the end."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reading: dict[tuple[str, bytes], asyncio.Task[None]] = {}
        #: When it was tried last, whatever came of it.
        self._read_at: dict[tuple[str, bytes], float] = {}
        self._looking: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def ensure(self, caller: Caller) -> None:
        """See that the lists are known which the caller's capabilities unlock; at most 10 s."""
        key = canonical_capabilities(caller.client.capabilities)
        if key == canonical_capabilities(GATEWAY_IDENTITY.capabilities):
            return
        now = self._context.clock()
        first: list[asyncio.Task[None]] = []
        for endpoint in self._context.group.endpoints.values():
            settings = self._context.settings.get(endpoint.id)
            if settings is None or settings.shared or not endpoint.ready:
                continue
            if not endpoint.may_serve:
                continue
            read_at = self._read_at.get((endpoint.id, key))
            known = self._context.catalogues.has_for(endpoint.member, key)
            patience = _FRESH_SECONDS if known else _AGAIN_SECONDS
            if read_at is not None and now - read_at < patience:
                continue
            if len(self._reading) >= _MAX_READING:
                continue  # clients choose what they declare: a flood of sets gets the common lists
            task = self._read(endpoint, key, caller)
            if not known:
                first.append(task)
        if first:
            await asyncio.wait(first, timeout=FIRST_CATALOGUE_SECONDS)

    def changed_in(self, session: Session, endpoint: Endpoint, upstream: Upstream) -> None:
        """A session's own upstream session said that its lists changed."""
        place = (session.id, endpoint.id)
        if place in self._looking:
            return  # it looks in a moment
        task = asyncio.create_task(
            self._look(session, endpoint, upstream), name=f"lists of {endpoint.id}"
        )
        self._looking[place] = task
        task.add_done_callback(lambda _: self._looking.pop(place, None))

    async def close(self) -> None:
        tasks = [*self._reading.values(), *self._looking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _read(self, endpoint: Endpoint, key: bytes, caller: Caller) -> asyncio.Task[None]:
        place = (endpoint.id, key)
        task = self._reading.get(place)
        if task is None:
            task = asyncio.create_task(
                self._read_for(endpoint, key, caller), name=f"lists of {endpoint.id}"
            )
            self._reading[place] = task
            task.add_done_callback(lambda _: self._reading.pop(place, None))
        return task

    async def _read_for(self, endpoint: Endpoint, key: bytes, caller: Caller) -> None:
        context = self._context
        settings = context.settings.get(endpoint.id)
        if settings is None:
            return  # removed meanwhile
        try:
            claim = context.claim(endpoint, caller)
        except MemberFailure:
            return
        waiting = claim.upstream
        if len(self._read_at) >= _MAX_REMEMBERED:
            self._read_at.clear()
        try:
            async with asyncio.timeout(settings.startup_timeout):
                upstream = await waiting if isinstance(waiting, asyncio.Future) else waiting
                forwarded = Forwarded(client=caller.client)
                catalogue = await read_catalogue(endpoint.member, upstream, forwarded)
        except (MemberFailure, TimeoutError) as fault:
            reason = fault.reason if isinstance(fault, MemberFailure) else "no answer in time"
            _log.warning("member %s: lists for a client: %s", endpoint.member, reason)
            return
        finally:
            if isinstance(waiting, asyncio.Future):
                waiting.cancel()
            context.release(claim)
            self._read_at[(endpoint.id, key)] = context.clock()
        context.catalogues.update_for(endpoint.member, key, catalogue)

    async def _look(self, session: Session, endpoint: Endpoint, upstream: Upstream) -> None:
        await asyncio.sleep(_COALESCE_SECONDS)
        context = self._context
        try:
            async with asyncio.timeout(context.settings[endpoint.id].startup_timeout):
                catalogue = await read_catalogue(endpoint.member, upstream)
        except (MemberFailure, TimeoutError, KeyError):
            return  # what is known stays; the next call in this session learns more
        key = canonical_capabilities(session.client.capabilities)
        if not session.closed:
            context.catalogues.overlay(session.id, endpoint.member, key, catalogue)
