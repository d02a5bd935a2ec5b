"""One group, from what it asks for to what its status says.

Level-triggered: whatever the reason to look at a group, all of it is compared, and only
differences are written.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from mcpgroup_operator import conditions, errors
from mcpgroup_operator.applying import GroupGoneError, OtherOperatorError
from mcpgroup_operator.conditions import Finding, Reason
from mcpgroup_operator.kinds import GROUP

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from mcpgroup_operator.client import Client
    from mcpgroup_operator.deploying import Deployer
    from mcpgroup_operator.metrics import Metrics
    from mcpgroup_operator.refreshing import ConfigRefresher
    from mcpgroup_operator.reporting import Reporter
    from mcpgroup_operator.store import Key, Store
    from mcpgroup_operator.workqueue import Workers

_LOG: Final = logging.getLogger(__name__)

Manifest = dict[str, Any]

BLOCKED_SECONDS: Final = 30.0
"""Until another try when nothing will tell: a foreign object may have gone, a verb been granted."""

PATIENCE_SECONDS: Final = 10.0
"""Children that cannot be written for longer keep the status from being written no more."""


class Reconciler:
    """`work(key)` never raises: what fails is told in the log and in metrics, and tried again."""

    def __init__(
        self,
        client: Client,
        store: Store,
        deployer: Deployer,
        refresher: ConfigRefresher,
        reporter: Reporter,
        metrics: Metrics,
        random: Random,
        clock: Callable[[], float],
        knows: Callable[[str], bool],
        *,
        resync_seconds: float,
    ) -> None:
        self._client = client
        self._store = store
        self._deployer = deployer
        self._refresher = refresher
        self._reporter = reporter
        self._metrics = metrics
        self._random = random
        self._clock = clock
        self._knows = knows
        self._resync_seconds = resync_seconds
        self._failing_since: dict[Key, float] = {}

    async def work(self, key: Key, workers: Workers[Key]) -> None:
        """Reconciles a group and says to `workers` when to look at it again."""
        started = self._clock()
        try:
            look_in = await self.reconcile(key)
        except errors.NamespaceEndingError:
            workers.forgive(key)
        except errors.NotLeadingError:
            self._metrics.reconcile_failed("not_leading")
            workers.add_failed(key)
        except errors.ApiError as error:
            wait = error.retry_after if isinstance(error, errors.BusyError) else None
            delay = workers.add_failed(key, wait or 0.0)
            self._metrics.reconcile_failed(error.reason)
            _LOG.warning("%s/%s: %s; again in %.1f s", *key, error, delay)
        except Exception:  # noqa: BLE001 - a fault of ours in one group must not stop the others
            self._metrics.reconcile_failed("internal")
            _LOG.exception("%s/%s: a fault of the operator", *key)
            workers.add_failed(key)
        else:
            workers.forgive(key)
            if look_in is None:
                workers.forget(key)
            else:
                workers.add_after(key, look_in)
        finally:
            self._metrics.reconciled(self._clock() - started)

    async def reconcile(self, key: Key) -> float | None:
        """Seconds after which to look again whatever happens; None when the group is gone, or when
        not all of its children are known yet (`knows`, by namespace).

        Raises the errors of the client.
        """
        if not self._knows(key.namespace):
            return None
        group = self._store.group(key)
        if group is None or group["metadata"].get("deletionTimestamp"):
            self._forget(key)
            return None
        try:
            deployed = await self._deployer.deploy(key, group)
        except OtherOperatorError as error:
            await self._reporter.managed_by_other(key, error.mark)
            return self._resync_seconds
        except errors.NamespaceEndingError:
            raise
        except errors.ApiError as error:
            await self._report_failure(key, group, error)
            raise
        except GroupGoneError:
            live = await self._client.find(GROUP, *key)
            if live is None:
                self._store.remove(GROUP, group)
            else:
                self._store.put(GROUP, live)
            if live is None or live["metadata"].get("deletionTimestamp"):
                self._forget(key)
                return None
            return 0.0  # another group of that name: from the start
        self._failing_since.pop(key, None)
        observed = self._reporter.observe(key, deployed.accepted)
        # The status first: it is to tell the truth also when pods may not be patched.
        waits = [
            await self._reporter.report(key, group, observed),
            await self._refresher.refresh(key, observed),
            self._resync_seconds * (0.8 + 0.2 * self._random.random()),
        ]
        if _is_edited(group, self._store.group(key)):
            # The answer to a request of ours may have shown that: then its event is no news.
            return 0.0
        if deployed.blocked:
            waits.append(BLOCKED_SECONDS * (0.8 + 0.4 * self._random.random()))
        return min(wait for wait in waits if wait is not None)

    async def _report_failure(self, key: Key, group: Manifest, error: errors.ApiError) -> None:
        """A webhook that is down, for example, may refuse children for hours, while replicas serve
        and fail. What was accepted stays so; a newer spec cannot be told to be."""
        now = self._clock()
        if now - self._failing_since.setdefault(key, now) < PATIENCE_SECONDS:
            return
        observed = self._reporter.observe(key, _verdict(group, error))
        try:
            await self._reporter.report(key, group, observed)
        except errors.ApiError as other:
            _LOG.warning("%s/%s: %s", *key, other)

    def _forget(self, key: Key) -> None:
        self._failing_since.pop(key, None)
        self._deployer.forget(key)
        self._refresher.forget(key)
        self._reporter.forget(key)


def _is_edited(reconciled: Manifest, current: Manifest | None) -> bool:
    """Whether a group is not any more what was reconciled, apart from its status."""
    return current is None or _written_by_others(reconciled) != _written_by_others(current)


def _written_by_others(group: Manifest) -> Manifest:
    ours = ("resourceVersion", "managedFields")
    metadata = {name: value for name, value in group["metadata"].items() if name not in ours}
    return {"metadata": metadata, "spec": group.get("spec")}


def _verdict(group: Manifest, error: errors.ApiError) -> Finding:
    """That of this very generation when there is one, else that it is not known yet."""
    for condition in (group.get("status") or {}).get("conditions") or ():
        if condition["type"] == conditions.ACCEPTED and condition.get(
            "observedGeneration"
        ) == group["metadata"].get("generation"):
            return Finding(condition["status"], condition["reason"], condition["message"])
    return conditions.unknown(Reason.NOT_WRITTEN, f"tried until it works: {error}")
