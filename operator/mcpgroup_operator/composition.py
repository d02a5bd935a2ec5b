"""The one place that puts the operator together.

both instances      informer ─► store ◄─ lister         elector
the leading one     store ─► work queue ─► reconciler ─► API server
                    poller ─► work queue
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mcpgroup_operator import connection
from mcpgroup_operator.children import ChildSettings
from mcpgroup_operator.client import Client
from mcpgroup_operator.deploying import Deployer
from mcpgroup_operator.health import Health
from mcpgroup_operator.informer import Informer
from mcpgroup_operator.leases import Elector, since_boot
from mcpgroup_operator.listing import Lister
from mcpgroup_operator.metrics import Metrics
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
    from collections.abc import Callable

    from mcpgroup_operator.kinds import Kind
    from mcpgroup_operator.polling import Fetch
    from mcpgroup_operator.settings import Settings
    from mcpgroup_operator.watches import Watch

_WORKERS: Final = 16
_POLL_TIMEOUT_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What `runtime` starts and ends."""

    client: Client
    store: Store
    workers: Workers[Key]
    elector: Elector
    lister: Lister
    informer: Informer
    deployer: Deployer
    health: Health
    metrics: Metrics


async def compose(settings: Settings, version: str, stack: contextlib.AsyncExitStack) -> Parts:
    """Everything, not yet started; `stack` closes what was opened. Raises `NoClusterError`."""
    clock, jitter = time.monotonic, random.Random()  # noqa: S311
    metrics, store = Metrics(version), Store()
    scope = Scope(settings.watch_namespaces, settings.watch_selector)
    queue: WorkQueue[Key] = WorkQueue(jitter, metrics)

    async def work(key: Key) -> None:
        await reconciler.work(key, workers)

    workers = Workers(queue, work, clock, _WORKERS)

    configuration = await connection.load(settings.kubeconfig)
    credentials = connection.Credentials(configuration, settings.kubeconfig)
    stack.push_async_callback(credentials.close)
    session = connection.open_session(configuration, credentials)
    stack.push_async_callback(session.close)
    elector = Elector(
        Client(configuration.host, session, _Open(), metrics, clock=clock),
        namespace=settings.namespace,
        name=settings.release,
        identity=settings.identity,
        clock=since_boot,
        wall=lambda: datetime.datetime.now(datetime.UTC),
    )
    client = Client(configuration.host, session, elector, metrics, clock=clock)

    lister = Lister(
        client,
        store,
        scope,
        metrics,
        workers.add,
        jitter,
        resync_seconds=settings.resync_seconds,
    )
    monitor = WatchMonitor(scope.watches())

    def observe(kind: Kind, event: str, item: dict[str, Any]) -> None:
        metrics.watch_event(kind.plural)
        change = store.remove if event == "DELETED" else store.put
        for key in change(kind, item):
            workers.add(key)

    informer = Informer(
        settings.kubeconfig,
        scope,
        monitor,
        client,
        observe,
        _Listener(asyncio.get_running_loop(), lister, metrics),
        jitter,
        inactivity_seconds=settings.watch_inactivity_seconds,
    )

    def proxied() -> Client:
        # Pods that hang must not hold connections that anything else waits for, such as the lease.
        asking = connection.open_session(configuration, credentials, connections=0)
        stack.push_async_callback(asking.close)
        return Client(configuration.host, asking, _Open(), metrics, clock=clock)

    poller = Poller(
        _pod_access(settings, proxied, stack),
        workers.add,
        observe=metrics.polled,
        interval=settings.poll_seconds,
        timeout=_POLL_TIMEOUT_SECONDS,
        random=jitter,
    )
    stack.push_async_callback(poller.close)
    mark = operator_mark(settings.namespace, settings.release)
    deployer = Deployer(
        client,
        store,
        metrics,
        ChildSettings(mark, settings.namespace, settings.gateway_image),
        clock,
    )
    reporter = Reporter(
        client,
        store,
        poller,
        metrics,
        identity=settings.identity,
        clock=clock,
        wall_clock=time.time,
    )
    reconciler = Reconciler(
        client,
        store,
        deployer,
        ConfigRefresher(client, store, metrics, clock),
        reporter,
        metrics,
        jitter,
        clock,
        lister.knows,
        resync_seconds=settings.resync_seconds,
    )
    health = Health(
        store,
        queue,
        elector,
        lister,
        monitor,
        clock,
        deaf_seconds=6 * settings.watch_inactivity_seconds,
    )
    metrics.collect_live(health.gauges)
    return Parts(client, store, workers, elector, lister, informer, deployer, health, metrics)


class _Open:
    """The gate of requests that need no lease: those about the lease itself."""

    def allows(self, seconds: float) -> bool:
        return seconds >= 0


def _pod_access(
    settings: Settings, proxied: Callable[[], Client], stack: contextlib.AsyncExitStack
) -> Fetch:
    port = settings.pod_admin_port
    if settings.pods == "proxy":
        # The poller gives up first, so that it always gives the same reason.
        return ProxiedAccess(proxied().raw_get, port, seconds=2 * _POLL_TIMEOUT_SECONDS)
    access = DirectAccess(port)
    stack.push_async_callback(access.close)
    return access


class _Listener:
    """From kopf's thread into ours; nothing more to say once ours has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lister: Lister, metrics: Metrics) -> None:
        self._loop = loop
        self._lister = lister
        self._metrics = metrics

    def listed(self, watch: Watch) -> None:
        self._soon(self._lister.request, watch)

    def failed(self, watch: Watch) -> None:
        self._soon(self._metrics.watch_failed, watch.kind.plural)

    def restarted(self, watch: Watch) -> None:
        self._soon(self._metrics.watch_restarted, watch.kind.plural)

    def _soon(self, call: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *arguments)
