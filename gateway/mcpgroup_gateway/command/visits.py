"""Ask every member of a manifest something, directly and at the same time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import MemberFailure, Opening
from mcpgroup_gateway.secret_files import SecretFiles
from mcpgroup_gateway.serving.connectors import build_connector
from mcpgroup_gateway.telemetry.lines import Descriptor, LineWriter
from mcpgroup_gateway.telemetry.logs import configure_logging
from mcpgroup_gateway.telemetry.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from mcpgroup_api import McpServerGroup, Member
    from mcpgroup_gateway.members.upstream import Connector, Upstream
    from mcpgroup_gateway.wire.envelope import Message

_T = TypeVar("_T")

_AT_ONCE: Final = 16
_STDERR: Final = 2


async def visit(
    group: McpServerGroup,
    secrets: Path | None,
    ask: Callable[[Member, Upstream], Awaitable[_T]],
    *,
    told: Callable[[str], None],
) -> dict[str, _T | MemberFailure]:
    """What `ask` returned for each member, or why it could not, in the order of the manifest.

    A start may take `health.startupTimeoutSeconds`, what is asked as long again. `told` hears the
    name of each member that is done. Warnings of members go to stderr, without secrets.
    """
    redactor = Redactor()
    writer = LineWriter(Descriptor(_STDERR))
    configure_logging(writer, redactor, level="Warning", log_format="console")
    files = SecretFiles(secrets)
    slots = asyncio.Semaphore(_AT_ONCE)
    deadline = group.spec.health.startup_timeout_seconds

    async def one(member: Member) -> _T | MemberFailure:
        async with slots:
            try:
                connector = build_connector(member, files, group.spec.limits, redactor.register)
                return await _ask(member, connector, ask, deadline)
            except MemberFailure as failure:
                failure.reason = redactor.text(failure.reason)
                return failure
            finally:
                told(member.name)

    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(member)) for member in group.spec.members]
    finally:
        writer.close()
    return {
        member.name: task.result() for member, task in zip(group.spec.members, running, strict=True)
    }


async def _ask(
    member: Member,
    connector: Connector,
    ask: Callable[[Member, Upstream], Awaitable[_T]],
    deadline: float,
) -> _T:
    try:
        opening = Opening(on_notification=_ignore, on_lost=_ignore, control=True)
        upstream = await connector.open(opening, deadline)
        try:
            async with asyncio.timeout(deadline):
                return await ask(member, upstream)
        except TimeoutError:
            text = f"no answer within {deadline:g} s"
            raise MemberFailure(Failure.DEADLINE, text, sent=True) from None
        finally:
            await upstream.close()
    finally:
        await connector.close()


def _ignore(_: Message | MemberFailure) -> None:
    """Nobody waits for what a member says by itself here; a lost session fails its exchange."""
