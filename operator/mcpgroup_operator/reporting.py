"""Writes the status of groups, and posts Events when it changes.

A status is written when it differs from the one that is there, at most once in a while for each
group, the last state winning; a transition of `Ready` is written at once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from mcpgroup_api import config_hash
from mcpgroup_operator import conditions, errors, names
from mcpgroup_operator.events import Notice, event, managed_by_other, transitions
from mcpgroup_operator.kinds import CONFIG_MAP, DEPLOYMENT, GROUP, POD
from mcpgroup_operator.observation import Observed, is_gateway, observe_pod
from mcpgroup_operator.polling import Target
from mcpgroup_operator.status import build_status
from mcpgroup_operator.throttle import EventBudget, StatusThrottle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mcpgroup_operator.client import Client
    from mcpgroup_operator.conditions import Finding
    from mcpgroup_operator.metrics import Metrics
    from mcpgroup_operator.polling import Poller
    from mcpgroup_operator.store import Key, Store

_LOG: Final = logging.getLogger(__name__)

_UNSETTLED_SECONDS: Final = 1.0
_RELOAD_SECONDS: Final = 10.0
"""For how long replicas are asked often, so that a new file that they took is in one status."""

Manifest = dict[str, Any]


class Reporter:
    """`clock` is monotonic, `wall_clock` gives Unix time; `identity` stands in Events."""

    def __init__(
        self,
        client: Client,
        store: Store,
        poller: Poller,
        metrics: Metrics,
        *,
        identity: str,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._store = store
        self._poller = poller
        self._metrics = metrics
        self._identity = identity
        self._clock = clock
        self._wall_clock = wall_clock
        self._throttle: StatusThrottle[Key] = StatusThrottle()
        self._budget: EventBudget[Key] = EventBudget()
        self._told_of_others: dict[Key, str] = {}
        self._config_hashes: dict[Key, str] = {}

    def observe(self, key: Key, accepted: Finding) -> Observed:
        """What is known of a group now; its pods are polled from here on."""
        pods = [pod for pod in self._store.children(key, POD) if is_gateway(pod, key.name)]
        self._poller.set_pods(key, [t for pod in pods if (t := _target(pod)) is not None])
        name = names.child(key.name)
        config_map = self._store.child(CONFIG_MAP, key.namespace, name)
        text = ((config_map or {}).get("data") or {}).get(names.CONFIG_KEY)
        wanted = config_hash(text.encode()) if text is not None else None
        self._expect(key, wanted)
        return Observed(
            accepted=accepted,
            deployment=self._store.child(DEPLOYMENT, key.namespace, name),
            config_hash=wanted,
            pods=tuple(
                observe_pod(pod, self._poller.poll_of(key, pod["metadata"]["uid"])) for pod in pods
            ),
        )

    async def report(self, key: Key, group: Manifest, observed: Observed) -> float | None:
        """Writes the status if it must be; seconds after which to come back for it, if so. `group`
        is what was reconciled, and what the status speaks of: it may have been edited meanwhile.

        Raises the errors of the client.
        """
        current = self._store.group(key)
        if current is None or current["metadata"]["uid"] != group["metadata"]["uid"]:
            return None
        now = self._wall_clock()
        previous = _ours(current.get("status") or {})
        if not observed.is_settled() and previous.get("conditions"):
            # An operator that has just started knows less than the status that is there says.
            self._measure(key, group, previous)
            return _UNSETTLED_SECONDS
        status = build_status(group, observed, previous, now)
        self._measure(key, group, status)
        due = observed.due_in(now)
        if status == previous:
            return due
        wait = self._throttle.wait(key, previous, status, self._clock())
        if wait > 0:
            return wait if due is None else min(wait, due)
        await self._write(key, group, status)
        self._throttle.written(key, self._clock())
        before = previous.get("conditions") or []
        await self._post(key, group, transitions(before, status["conditions"]))
        return due

    async def managed_by_other(self, key: Key, mark: str) -> None:
        """Says, once for each group, that another operator has it, and leaves it to that one."""
        self._poller.remove(key)
        self._metrics.groups.forget(key)
        group = self._store.group(key)
        if group is None or group["metadata"]["uid"] == self._told_of_others.get(key):
            return
        _LOG.warning("%s/%s belongs to the operator %s: nothing is written", *key, mark)
        await self._post(key, group, [managed_by_other(mark)], once=True)
        self._told_of_others[key] = group["metadata"]["uid"]

    def forget(self, key: Key) -> None:
        """The group is gone."""
        self._poller.remove(key)
        self._throttle.forget(key)
        self._budget.forget(key)
        self._metrics.groups.forget(key)
        self._config_hashes.pop(key, None)
        self._told_of_others.pop(key, None)

    def _expect(self, key: Key, wanted: str | None) -> None:
        """After a change of the file its replicas have news soon."""
        known = self._config_hashes.get(key)
        if known is not None and wanted != known:
            self._poller.watch_closely(key, _RELOAD_SECONDS)
        if wanted is not None:
            self._config_hashes[key] = wanted

    async def _write(self, key: Key, group: Manifest, status: Manifest) -> None:
        manifest = {
            "apiVersion": GROUP.api_version,
            "kind": GROUP.name,
            "metadata": {
                "namespace": key.namespace,
                "name": key.name,
                "uid": group["metadata"]["uid"],
            },
            "status": status,
        }
        try:
            written = await self._client.apply(manifest, force=True, subresource="status")
        except errors.ApiError:
            self._metrics.status_written(ok=False)
            raise
        self._metrics.status_written(ok=True)
        # With other labels it may be nobody's to serve any more: then the watch has told, or will,
        # that it is gone, at an older version than this one.
        if written["metadata"].get("labels") == group["metadata"].get("labels"):
            self._store.put(GROUP, written)

    async def _post(
        self, key: Key, group: Manifest, notices: Iterable[Notice], *, once: bool = False
    ) -> None:
        """Events are for people: one that cannot be posted is counted and not tried again."""
        for notice in notices:
            if not self._budget.take(key, self._clock()):
                return
            manifest = event(
                group, notice, now=self._wall_clock(), instance=self._identity, once=once
            )
            try:
                await self._client.create(manifest)
            except errors.ConflictError:
                continue  # it stands there already
            except errors.ApiError as error:
                _LOG.warning("%s", error)
                self._metrics.event_posted(ok=False)
            else:
                self._metrics.event_posted(ok=True)

    def _measure(self, key: Key, group: Manifest, status: Manifest) -> None:
        config_map = self._store.child(CONFIG_MAP, key.namespace, names.child(key.name))
        annotations = (config_map or {}).get("metadata", {}).get("annotations") or {}
        generation = annotations.get(names.CONTENT_GENERATION_ANNOTATION, "")
        self._metrics.groups.set(
            key,
            desired=int((group.get("spec") or {}).get("replicas", 0)),
            ready=sum(1 for row in status.get("gateways", ()) if row["ready"]),
            generation=int(generation) if generation.isdecimal() else None,
            conditions={
                name: conditions.status_of(status["conditions"], name) or "Unknown"
                for name in conditions.TYPES
            },
        )


def _ours(status: Manifest) -> Manifest:
    """Without conditions of others, who may add some, and in our order: a merged one may differ."""
    found = {entry["type"]: entry for entry in status.get("conditions") or ()}
    return {**status, "conditions": [found[name] for name in conditions.TYPES if name in found]}


def _target(pod: Manifest) -> Target | None:
    """A pod that can be asked: it runs, and is not on its way out."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    ip = status.get("podIP")
    if not ip or metadata.get("deletionTimestamp") or status.get("phase") != "Running":
        return None
    ready = any(entry.get("status") == "True" for entry in status.get("conditions") or [])
    return Target(metadata["namespace"], metadata["name"], metadata["uid"], ip, ready)
