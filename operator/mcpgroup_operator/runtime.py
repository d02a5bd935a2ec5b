"""Starts the operator and ends it: which tasks there are, and in which order they stop.

Everything runs in one loop and is owned by one task group; kopf has a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from typing import TYPE_CHECKING, Final

from aiohttp import web

from mcpgroup_operator import errors
from mcpgroup_operator.admin import build_app
from mcpgroup_operator.composition import compose
from mcpgroup_operator.connection import NoClusterError
from mcpgroup_operator.leases import LeadershipLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcpgroup_operator.composition import Parts
    from mcpgroup_operator.deploying import Deployer
    from mcpgroup_operator.settings import Settings

_LOG: Final = logging.getLogger(__name__)

_REFRESH_SECONDS: Final = 30.0


class _StoppedError(Exception):
    """How a task ends the group of all tasks."""


class _CannotListenError(Exception):
    """The admin port is taken, or the address is not ours."""


async def serve(settings: Settings, version: str) -> int:
    """Runs until SIGTERM or SIGINT; the exit code."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    try:
        async with contextlib.AsyncExitStack() as stack:
            parts = await compose(settings, version, stack)
            await stack.enter_async_context(_admin(settings, parts))
            await _run(parts, stopped, settings.resync_seconds)
    except (NoClusterError, _CannotListenError) as error:
        _LOG.error("%s", error)
        return 2
    except BaseExceptionGroup as group:
        lost, rest = group.split(LeadershipLostError)
        if rest is not None and rest.split(_StoppedError)[1] is not None:
            raise
        if lost is not None:
            _LOG.error("leadership lost: another operator may lead, so this one ends")
            return 1
    return 0


async def _run(parts: Parts, stopped: asyncio.Event, resync_seconds: float) -> None:
    """Never returns: raises a group of what ended it."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_until(stopped), name="stop")
            group.create_task(parts.informer.run(), name="informer")
            group.create_task(parts.elector.run(), name="lease")
            group.create_task(parts.lister.run(), name="lists")
            group.create_task(_lead(parts, resync_seconds), name="leader")
    finally:
        # Everything that writes has ended: whoever takes the lease now is alone.
        await parts.elector.release()


async def _until(stopped: asyncio.Event) -> None:
    await stopped.wait()
    raise _StoppedError


async def _lead(parts: Parts, resync_seconds: float) -> None:
    await parts.lister.synced.wait()
    await parts.elector.leading.wait()
    # What changed hands may have changed since it was listed. A kind that cannot be listed now
    # was listed once, and its watch goes on.
    try:
        async with asyncio.timeout(_REFRESH_SECONDS):
            await parts.lister.refresh()
    except TimeoutError:
        _LOG.warning("not every kind could be listed anew: starting with what is known")
    await _learn_optional_kinds(parts.deployer)
    for key in parts.store.groups():
        parts.workers.add(key)
    async with asyncio.TaskGroup() as group:
        group.create_task(_keep_learning(parts.deployer, resync_seconds), name="optional kinds")
        group.create_task(parts.workers.run(), name="workers")


async def _keep_learning(deployer: Deployer, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        await _learn_optional_kinds(deployer)


async def _learn_optional_kinds(deployer: Deployer) -> None:
    try:
        await deployer.learn_optional_kinds()
    except errors.ApiError as error:
        _LOG.warning("%s", error)


@contextlib.asynccontextmanager
async def _admin(settings: Settings, parts: Parts) -> AsyncIterator[None]:
    runner = web.AppRunner(build_app(parts.health, parts.metrics), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.admin_host, settings.admin_port)
        try:
            await site.start()
        except OSError as error:
            raise _CannotListenError(f"admin port: {error.strerror or error}") from error
        for address in runner.addresses:
            _LOG.info("metrics and probes at http://%s:%d", *address[:2])
        yield
    finally:
        await runner.cleanup()
