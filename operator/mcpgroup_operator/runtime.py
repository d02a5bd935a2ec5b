"""The one place that puts the operator together, starts it and ends it.

    both instances      informer ─► store ◄─ lister         elector
    the leading one     store ─► work queue ─► reconciler ─► API server
                        poller ─► work queue

Everything here runs in one loop and is owned by one task group; kopf has a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import random
import signal
import time
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from mcpgroup_operator import connection, errors
from mcpgroup_operator.admin import build_app
from mcpgroup_operator.children import ChildSettings
from mcpgroup_operator.client import Client
from mcpgroup_operator.deploying import Deployer
from mcpgroup_operator.informer import Informer
from mcpgroup_operator.kinds import GROUP, WATCHED, Kind
from mcpgroup_operator.leases import Elector, LeadershipLostError
from mcpgroup_operator.listing import Lister
from mcpgroup_operator.metrics import Metrics, live_gauges
from mcpgroup_operator.names import operator_mark
from mcpgroup_operator.pod_access import DirectAccess, ProxiedAccess
from mcpgroup_operator.polling import Poller
from mcpgroup_operator.reconciling import Reconciler
from mcpgroup_operator.refreshing import ConfigRefresher
from mcpgroup_operator.reporting import Reporter
from mcpgroup_operator.store import Key, Store
from mcpgroup_operator.watches import Scope, WatchMonitor
from mcpgroup_operator.workqueue import Workers, WorkQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from kubernetes.aio.client import Configuration
    from prometheus_client.core import Metric

    from mcpgroup_operator.polling import Fetch
    from mcpgroup_operator.settings import Settings

_LOG: Final = logging.getLogger(__name__)

_WORKERS: Final = 16
_POLL_TIMEOUT_SECONDS: Final = 2.0
_REFRESH_SECONDS: Final = 30.0
_STUCK_SECONDS: Final = 300.0
_DEAF_TIMES: Final = 6
_KIND_CHECK_SECONDS: Final = 5.0


class _StoppedError(Exception):
    """How a task ends the group of all tasks."""


class _Open:
    """The gate of requests that need no lease: those about the lease itself."""

    def allows(self, seconds: float) -> bool:
        return seconds >= 0


class Operator:
    """One process, until `stop`."""

    def __init__(self, settings: Settings, version: str) -> None:
        self._settings = settings
        self._clock = time.monotonic
        self._random = random.Random()  # noqa: S311 - jitter
        self._metrics = Metrics(version)
        self._store = Store()
        self._scope = Scope(settings.watch_namespaces, settings.watch_selector)
        self._queue: WorkQueue[Key] = WorkQueue(self._random, self._metrics)
        self._workers = Workers(self._queue, self._work, self._clock, _WORKERS)
        self._stopped = asyncio.Event()
        self._elector: Elector
        self._lister: Lister
        self._reconciler: Reconciler
        self._monitor: WatchMonitor

    def stop(self) -> None:
        """End in good order."""
        self._stopped.set()

    async def run(self) -> None:
        """Raises `NoClusterError`, and a group of what ended it: `LeadershipLostError`, say."""
        async with contextlib.AsyncExitStack() as stack:
            configuration = await connection.load(self._settings.kubeconfig)
            await self._run(stack, configuration)

    async def _run(self, stack: contextlib.AsyncExitStack, configuration: Configuration) -> None:
        settings, loop = self._settings, asyncio.get_running_loop()
        credentials = connection.Credentials(configuration)
        stack.push_async_callback(credentials.close)
        session = connection.open_session(configuration, credentials)
        stack.push_async_callback(session.close)
        lease_client = self._client(configuration, session, _Open())
        self._elector = Elector(
            lease_client,
            namespace=settings.namespace,
            name=settings.release,
            identity=settings.identity,
            clock=self._clock,
            wall=lambda: datetime.datetime.now(datetime.UTC),
        )
        client = self._client(configuration, session, self._elector)
        self._lister = Lister(
            client,
            self._store,
            self._scope,
            self._metrics,
            self._workers.add,
            self._random,
            resync_seconds=settings.resync_seconds,
        )
        self._monitor = WatchMonitor(
            self._scope.watches(),
            listed=lambda watch: _soon(loop, self._lister.request, watch),
            failed=lambda watch: _soon(loop, self._metrics.watch_failed, watch.kind.plural),
        )
        informer = Informer(
            settings.kubeconfig,
            self._scope,
            self._monitor,
            self._observe,
            lambda watch: self._metrics.watch_restarted(watch.kind.plural),
            inactivity_seconds=settings.watch_inactivity_seconds,
        )
        poller = Poller(
            await self._pod_access(stack, client),
            self._workers.add,
            wall_clock=time.time,
            observe=self._metrics.polled,
            interval=settings.poll_seconds,
            timeout=_POLL_TIMEOUT_SECONDS,
            random=self._random,
        )
        stack.push_async_callback(poller.close)
        deployer = Deployer(
            client,
            self._store,
            self._metrics,
            ChildSettings(
                operator_mark(settings.namespace, settings.release),
                settings.namespace,
                settings.gateway_image,
            ),
        )
        self._reconciler = Reconciler(
            client,
            self._store,
            deployer,
            ConfigRefresher(client, self._store, self._metrics, self._clock),
            Reporter(
                client,
                self._store,
                poller,
                self._metrics,
                identity=settings.identity,
                clock=self._clock,
                wall_clock=time.time,
            ),
            self._metrics,
            self._random,
            self._clock,
            resync_seconds=settings.resync_seconds,
        )
        self._metrics.collect_live(self._live)
        await stack.enter_async_context(self._admin())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._until_stopped(), name="stop")
                group.create_task(self._watch(client, informer), name="informer")
                group.create_task(self._elector.run(), name="lease")
                group.create_task(self._lister.run(), name="lists")
                group.create_task(self._lead(deployer), name="leader")
        finally:
            # Everything that writes has ended: whoever takes the lease now is alone.
            await self._elector.release()

    async def _pod_access(self, stack: contextlib.AsyncExitStack, client: Client) -> Fetch:
        port = self._settings.pod_admin_port
        if self._settings.pods == "proxy":
            return ProxiedAccess(client.raw_get, port, seconds=_POLL_TIMEOUT_SECONDS)
        access = DirectAccess(port)
        stack.push_async_callback(access.close)
        return access

    async def _until_stopped(self) -> None:
        await self._stopped.wait()
        raise _StoppedError

    async def _watch(self, client: Client, informer: Informer) -> None:
        await self._until_kind_is_served(client)
        await informer.run()

    async def _until_kind_is_served(self, client: Client) -> None:
        """kopf would leave out a kind that is not there when it starts."""
        told = False
        while True:
            try:
                if await client.serves(GROUP):
                    return
                reason = f"the API server does not know {GROUP.resource}: apply the CRD"
            except errors.ApiError as error:
                reason = str(error)
            if not told:
                _LOG.warning("waiting: %s", reason)
                told = True
            await asyncio.sleep(_KIND_CHECK_SECONDS)

    async def _lead(self, deployer: Deployer) -> None:
        await self._lister.synced.wait()
        await self._elector.leading.wait()
        await self._refresh()
        await self._learn_optional_kinds(deployer)
        for key in self._store.groups():
            self._workers.add(key)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_learning_kinds(deployer), name="optional kinds")
            group.create_task(self._workers.run(), name="workers")

    async def _refresh(self) -> None:
        """What changed hands may have changed since it was listed. A kind that cannot be listed
        now was listed once, and its watch goes on."""
        try:
            async with asyncio.timeout(_REFRESH_SECONDS):
                await self._lister.refresh()
        except TimeoutError:
            _LOG.warning("not every kind could be listed anew: starting with what is known")

    async def _keep_learning_kinds(self, deployer: Deployer) -> None:
        while True:
            await asyncio.sleep(self._settings.resync_seconds)
            await self._learn_optional_kinds(deployer)

    async def _learn_optional_kinds(self, deployer: Deployer) -> None:
        try:
            await deployer.learn_optional_kinds()
        except errors.ApiError as error:
            _LOG.warning("%s", error)

    async def _work(self, key: Key) -> None:
        await self._reconciler.work(key, self._workers)

    def _observe(self, kind: Kind, event: str | None, item: dict[str, Any]) -> None:
        self._metrics.watch_event(kind.plural)
        change = self._store.remove if event == "DELETED" else self._store.put
        for key in change(kind, item):
            self._workers.add(key)

    def _client(self, configuration: Configuration, session: Any, gate: Any) -> Client:
        return Client(configuration.host, session, gate, self._metrics, clock=self._clock)

    # --- health

    def not_ready(self) -> str:
        """Ready means: knows what there is. Whether it leads does not matter."""
        unlisted = self._lister.unlisted()
        return f"not listed yet: {', '.join(unlisted)}" if unlisted else ""

    def not_alive(self) -> str:
        """A restart helps when a watch stays deaf though it was opened anew, or work hangs."""
        limit = _DEAF_TIMES * self._settings.watch_inactivity_seconds
        deaf = [w.kind.plural for w, age in self._monitor.ages().items() if age > limit]
        if deaf and self._lister.synced.is_set():
            return f"watches are deaf: {', '.join(sorted(set(deaf)))}"
        stuck = self._queue.longest_running(self._clock())
        return f"a reconcile has taken {stuck:.0f} s" if stuck > _STUCK_SECONDS else ""

    def _live(self) -> Iterable[Metric]:
        return live_gauges(
            leading=self._elector.is_leading,
            queue_depth=self._queue.depth,
            unfinished_seconds=self._queue.longest_running(self._clock()),
            objects={kind.plural: self._store.count(kind) for kind in WATCHED},
            watch_ages=self._monitor.ages(),
        )

    @contextlib.asynccontextmanager
    async def _admin(self) -> AsyncIterator[None]:
        runner = web.AppRunner(build_app(self, self._metrics), access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._settings.admin_host, self._settings.admin_port)
            await site.start()
            for address in runner.addresses:
                _LOG.info("metrics and probes at http://%s:%d", *address[:2])
            yield
        finally:
            await runner.cleanup()


def _soon(loop: asyncio.AbstractEventLoop, call: Any, *arguments: Any) -> None:
    """From kopf's thread into ours; nothing more to say once ours has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)


async def serve(settings: Settings, version: str) -> int:
    """Runs until SIGTERM or SIGINT; the exit code."""
    operator = Operator(settings, version)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, operator.stop)
    try:
        await operator.run()
    except connection.NoClusterError as error:
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
