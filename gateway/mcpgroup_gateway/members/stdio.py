"""Members that are processes of the gateway: MCP over stdin and stdout, one JSON message a line."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.handshake import initialize_params
from mcpgroup_gateway.members.modern_requests import ModernRequests
from mcpgroup_gateway.members.negotiation import PATIENCE_SHARE, Era, negotiate
from mcpgroup_gateway.members.spawning import member_environment, spawn
from mcpgroup_gateway.members.stdio_session import StdioUpstream
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.wire.protocol import DISCOVER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mcpgroup_gateway.members.upstream import ClientIdentity, Handshake, Opening
    from mcpgroup_gateway.wire.envelope import Message

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
_log = logging.getLogger(__name__)


class StdioConnector:
    """Starts a member's process. See `Connector`.

    `env` is what the manifest declares, secrets resolved; the process gets that and the safe-list.
    `memory_limit_mib` is the private memory of each of its processes, 0 for no limit. `eof_seconds`
    and `term_seconds` are the patience of `StdioUpstream.close`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None,
        working_dir: str | None = None,
        memory_limit_mib: int = 0,
        max_line_bytes: int = MAX_LINE_BYTES,
        eof_seconds: float = 2.0,
        term_seconds: float = 2.0,
        era: Era = Era.AUTO,
    ) -> None:
        self._name = name
        self._command = list(command)
        self._env = env or {}
        self._working_dir = working_dir
        self._memory_limit_mib = memory_limit_mib
        self._max_line_bytes = max_line_bytes
        self._eof_seconds = eof_seconds
        self._term_seconds = term_seconds
        self._era = era
        self._known: Handshake | None = None
        self._has_sessions = True  # as far as is known, beside its modern side
        self._open: set[StdioUpstream] = set()

    async def open(self, opening: Opening, deadline: float) -> StdioUpstream:
        """Start the process and shake hands; every session is a process of its own.

        `opening.control` makes no difference: stdout carries everything.
        """
        loop = asyncio.get_running_loop()
        due = loop.time() + deadline
        era, known = self._era, self._known
        beside = (
            opening.with_session
            and era is Era.AUTO
            and known is not None
            and known.modern
            and self._has_sessions
        )
        try:
            async with asyncio.timeout_at(due):
                if beside:
                    try:
                        async with asyncio.timeout(deadline / PATIENCE_SHARE):
                            return await self._start(opening, deadline, Era.LEGACY)
                    except (MemberFailure, TimeoutError):
                        self._has_sessions = False  # it is modern only
                try:
                    upstream = await self._start(opening, deadline, era)
                except MemberFailure as fault:
                    is_legacy = known is not None and not known.modern
                    if era is not Era.AUTO or is_legacy or fault.failure is not Failure.EXIT:
                        raise
                    # Some servers end at a first message that they do not know.
                    _log.info("%s %s; starting it with initialize", self._name, fault.reason)
                    upstream = await self._start(opening, deadline, Era.LEGACY)
        except TimeoutError as fault:
            self._forget()
            reason = f"{self._name} did not answer initialize within {deadline:g} s"
            late = loop.time() - due > 1.0
            raise MemberFailure(Failure.START_FAILED, reason, sent=False, late=late) from fault
        except MemberFailure as fault:
            self._forget()
            if fault.failure in (Failure.START_FAILED, Failure.COMMAND_NOT_FOUND):
                raise
            reason = f"{fault.reason} before it was ready"
            raise MemberFailure(Failure.START_FAILED, reason, sent=False) from fault
        self._known = upstream.handshake
        return upstream

    def _forget(self) -> None:
        self._known = None
        self._has_sessions = True

    async def close(self) -> None:
        """End the processes that are still open."""
        await asyncio.gather(*(upstream.close() for upstream in self._open))

    async def _start(self, opening: Opening, deadline: float, era: Era) -> StdioUpstream:
        """One process, ready to serve. Raises `MemberFailure`; no process is left then."""
        environment = member_environment(self._env() if callable(self._env) else self._env)
        popen = spawn(self._command, environment, self._working_dir, self._memory_limit_mib)
        started = False

        def lost(failure: MemberFailure) -> None:
            if started:
                opening.on_lost(failure)

        upstream = StdioUpstream(
            self._name,
            popen,
            opening.on_notification,
            lost,
            opening.on_request,
            max_line_bytes=self._max_line_bytes,
            eof_seconds=self._eof_seconds,
            term_seconds=self._term_seconds,
        )
        self._open.add(upstream)
        upstream.when_reaped(lambda: self._open.discard(upstream))
        try:
            member = _StdioHandshake(upstream, opening.client)
            handshake = await negotiate(member, era, self._known, deadline)
            upstream.adopt(handshake, opening.client)
            if not handshake.modern:
                await upstream.notify("notifications/initialized", b"")
            if upstream.loss is not None:
                raise upstream.loss
            started = True
        finally:
            if not started:
                upstream.kill(MemberFailure(Failure.START_FAILED, "not started", sent=False))
                await upstream.close()
        return upstream


class _StdioHandshake:
    """What `negotiate` asks: both questions go to the same process."""

    def __init__(self, upstream: StdioUpstream, client: ClientIdentity) -> None:
        self._upstream = upstream
        self._client = client

    async def discover(self, version: str) -> Message:
        params, _ = ModernRequests(version, self._client).complete(DISCOVER, b"")
        return await self._ask(DISCOVER, params)

    async def initialize(self) -> Message:
        return await self._ask("initialize", initialize_params(self._client))

    async def _ask(self, method: str, params: bytes) -> Message:
        exchange = self._upstream.request(method, params)
        try:
            return await exchange.next()
        finally:
            exchange.close()
