"""kopf as the informer: every event of a watched kind, handed over to our loop.

kopf runs in a thread with a loop of its own, because when it ends it cancels every task of its
loop. `traffic` keeps it from losing watches; should it lose one all the same, it is stopped and
started again without anything else noticing. Nothing but this module and its thread knows kopf.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import kopf

from mcpgroup_operator import connection, errors
from mcpgroup_operator.kinds import GROUP, OWNED_AND_WATCHED, WATCHED
from mcpgroup_operator.names import GROUP_LABEL
from mcpgroup_operator.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from mcpgroup_operator.client import Client
    from mcpgroup_operator.kinds import Kind
    from mcpgroup_operator.watches import Scope, Watch, WatchListener, WatchMonitor

_LOG: Final = logging.getLogger(__name__)

_STOP_SECONDS: Final = 10.0
_CHECK_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 0.25
_SERVED_SECONDS: Final = 2.0
_MAX_PAUSE_SECONDS: Final = 10.0
_STEADY_SECONDS: Final = 300.0
_SERVER_TIMEOUT_SECONDS: Final = 300
# With pauses of `traffic`, which has deadlines of its own.
_REQUEST_SECONDS: Final = 120.0


class Informer:
    """`on_event(kind, type, object)` is called in our loop, `listener` in kopf's."""

    def __init__(
        self,
        kubeconfig: Path | None,
        scope: Scope,
        monitor: WatchMonitor,
        client: Client,
        on_event: Callable[[Kind, str, dict[str, Any]], None],
        listener: WatchListener,
        random: Random,
        *,
        inactivity_seconds: float,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._scope = scope
        self._monitor = monitor
        self._client = client
        self._on_event = on_event
        self._listener = listener
        self._random = random
        self._inactivity_seconds = inactivity_seconds

    async def run(self) -> None:
        """Keeps kopf running until cancelled."""
        pause = 0.5
        while True:
            await self._until_groups_are_served()
            started = asyncio.get_running_loop().time()
            self._monitor.started()
            for watch, reason in (await self._run_once()).items():
                _LOG.warning("%s: %s; the informer starts again", watch, reason)
                self._listener.restarted(watch)
            steady = asyncio.get_running_loop().time() - started > _STEADY_SECONDS
            pause = 0.5 if steady else min(pause * 2, _MAX_PAUSE_SECONDS)
            await asyncio.sleep(pause)

    async def _until_groups_are_served(self) -> None:
        """kopf leaves out, for good, a kind that is not there when it starts."""
        told = ""
        while True:
            try:
                if await self._client.serves(GROUP):
                    return
                reason = f"the API server does not know {GROUP.resource}: apply its CRD"
            except errors.ApiError as error:
                reason = str(error)
            if reason != told:
                _LOG.warning("waiting: %s", reason)
                told = reason
            await asyncio.sleep(_SERVED_SECONDS)

    async def _run_once(self) -> dict[Watch, str]:
        """Until a watch is lost for good, or kopf itself ends."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        stop = threading.Event()

        def body() -> None:
            try:
                asyncio.run(self._kopf(loop, stop))
            except Exception:  # noqa: BLE001 - whatever it is, kopf is started again
                _LOG.exception("the informer ended with a fault")
            finally:
                loop.call_soon_threadsafe(ended.set)

        thread = threading.Thread(target=body, name="kopf", daemon=True)
        thread.start()
        try:
            while True:
                try:
                    async with asyncio.timeout(_CHECK_SECONDS):
                        await ended.wait()
                except TimeoutError:
                    if lost := self._monitor.lost(3 * self._inactivity_seconds):
                        return lost
                else:
                    return dict.fromkeys(self._scope.watches(), "the informer ended")
        finally:
            stop.set()
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await ended.wait()
            except TimeoutError:
                _LOG.warning("the informer does not end; another one takes its place")

    async def _kopf(self, ours: asyncio.AbstractEventLoop, stop: threading.Event) -> None:
        configuration = await connection.load(self._kubeconfig)
        credentials = connection.Credentials(configuration, self._kubeconfig)
        traffic = Traffic(
            self._monitor,
            self._listener,
            self._random,
            inactivity_seconds=self._inactivity_seconds,
            prefix=urlsplit(configuration.host).path,
        )
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            # kopf closes a session that broke in some ways, and asks for another one.
            session = connection.open_session(configuration, credentials, traffic)
            return kopf.AiohttpSession(server=configuration.host, aiohttp_session=session)

        for kind in WATCHED:
            _register(registry, kind, self._hand_over(ours, kind, stop))
        try:
            await kopf.operator(
                registry=registry,
                settings=_settings(self._scope, self._inactivity_seconds),
                standalone=True,
                clusterwide=not self._scope.namespaces,
                namespaces=self._scope.namespaces,
                stop_flag=stop,
            )
        finally:
            await credentials.close()
            # Connections over TLS are closed by the loop, a moment after their session.
            await asyncio.sleep(_CLOSE_SECONDS)

    def _hand_over(
        self, ours: asyncio.AbstractEventLoop, kind: Kind, stop: threading.Event
    ) -> Callable[..., Any]:
        async def hand_over(event: dict[str, Any], **_: Any) -> None:
            # What an informer that was given up still says is old.
            if not stop.is_set():
                ours.call_soon_threadsafe(self._on_event, kind, event["type"], event["object"])

        return hand_over


def _register(registry: kopf.OperatorRegistry, kind: Kind, handler: Callable[..., Any]) -> None:
    watched = kopf.on.event(
        kind.group, kind.version, kind.plural, id=kind.plural, registry=registry
    )
    watched(handler)


def _settings(scope: Scope, inactivity_seconds: float) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None
    settings.networking.request_timeout = _REQUEST_SECONDS
    settings.networking.connect_timeout = 5
    settings.networking.error_backoffs = ()
    settings.watching.server_timeout = _SERVER_TIMEOUT_SECONDS
    settings.watching.inactivity_timeout = inactivity_seconds
    settings.watching.chunk_size = 1
    # A task for each object that changed, kept for the next change.
    settings.queueing.idle_timeout = 0.1
    settings.queueing.exit_timeout = 0.1
    for kind in OWNED_AND_WATCHED:
        settings.watching.label_selectors[kind.group, kind.version, kind.plural] = GROUP_LABEL
    if scope.group_selector:
        settings.watching.label_selectors[GROUP.group, GROUP.version, GROUP.plural] = (
            scope.group_selector
        )
    return settings
