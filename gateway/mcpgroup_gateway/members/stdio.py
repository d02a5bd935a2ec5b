"""Members that are processes of the gateway: MCP over stdin and stdout, one JSON message a line."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.handshake import initialize_params, read_handshake
from mcpgroup_gateway.members.spawning import member_environment, spawn
from mcpgroup_gateway.members.stdio_session import StdioUpstream
from mcpgroup_gateway.members.upstream import GATEWAY_IDENTITY, MemberFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mcpgroup_gateway.members.upstream import ClientIdentity, Handshake
    from mcpgroup_gateway.wire.envelope import Message

MAX_LINE_BYTES: Final = 16 * 1024 * 1024


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
    ) -> None:
        self._name = name
        self._command = list(command)
        self._env = env or {}
        self._working_dir = working_dir
        self._memory_limit_mib = memory_limit_mib
        self._max_line_bytes = max_line_bytes
        self._eof_seconds = eof_seconds
        self._term_seconds = term_seconds
        self._open: set[StdioUpstream] = set()

    async def open(
        self,
        *,
        on_notification: Callable[[Message], None],
        on_lost: Callable[[MemberFailure], None],
        control: bool,
        deadline: float,
        client: ClientIdentity = GATEWAY_IDENTITY,
        on_request: Callable[[Message], None] | None = None,
    ) -> StdioUpstream:
        """Start the process and shake hands; every session is a process of its own.

        `control` makes no difference: stdout carries everything.
        """
        loop = asyncio.get_running_loop()
        due = loop.time() + deadline
        environment = member_environment(self._env() if callable(self._env) else self._env)
        popen = spawn(self._command, environment, self._working_dir, self._memory_limit_mib)
        started = False

        def lost(failure: MemberFailure) -> None:
            if started:
                on_lost(failure)

        upstream = StdioUpstream(
            self._name,
            popen,
            on_notification,
            lost,
            on_request,
            max_line_bytes=self._max_line_bytes,
            eof_seconds=self._eof_seconds,
            term_seconds=self._term_seconds,
        )
        self._open.add(upstream)
        upstream.when_reaped(lambda: self._open.discard(upstream))
        try:
            async with asyncio.timeout_at(due):
                upstream.handshake = await self._shake_hands(upstream, client)
            if upstream.loss is not None:
                raise upstream.loss
            started = True
        except TimeoutError as fault:
            reason = f"{self._name} did not answer initialize within {deadline:g} s"
            late = loop.time() - due > 1.0
            raise MemberFailure(Failure.START_FAILED, reason, sent=False, late=late) from fault
        except MemberFailure as fault:
            if fault.failure is Failure.START_FAILED:
                raise
            reason = f"{fault.reason} before it was ready"
            raise MemberFailure(Failure.START_FAILED, reason, sent=False) from fault
        finally:
            if not started:
                upstream.kill(MemberFailure(Failure.START_FAILED, "not started", sent=False))
                await upstream.close()
        return upstream

    async def close(self) -> None:
        """End the processes that are still open."""
        await asyncio.gather(*(upstream.close() for upstream in self._open))

    async def _shake_hands(self, upstream: StdioUpstream, client: ClientIdentity) -> Handshake:
        exchange = upstream.request("initialize", initialize_params(client))
        try:
            answer = await exchange.next()
        finally:
            exchange.close()
        handshake = read_handshake(answer)
        await upstream.notify("notifications/initialized", b"")
        return handshake
