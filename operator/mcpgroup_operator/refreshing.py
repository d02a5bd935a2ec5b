"""When to make the kubelet look at a changed configuration file at once.

A mounted ConfigMap is refreshed by the kubelet about once a minute, and at once when its pod
changes. So a pod that still tells of an old file gets the hash of the new one as an annotation;
while that does not help, twice more, since the kubelet may have read the ConfigMap from a cache
that was older than the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mcpgroup_operator import errors, names
from mcpgroup_operator.kinds import POD

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mcpgroup_operator.client import Client
    from mcpgroup_operator.metrics import Metrics
    from mcpgroup_operator.observation import Observed, ObservedPod
    from mcpgroup_operator.store import Key, Store

Manifest = dict[str, Any]

REPEAT_SECONDS: Final = (5.0, 15.0)
"""After the first patch."""


@dataclass(slots=True)
class _Refresh:
    config_hash: str
    first: float
    patches: int = 1


@dataclass(frozen=True, slots=True)
class Decision:
    """`patch` is the number of the patch to be made now, from 1; `look_in` says in how many
    seconds to ask again. None: nothing to do."""

    patch: int | None = None
    look_in: float | None = None


class ConfigRefreshes:
    """What was done for which pod; times are of an injected monotonic clock."""

    def __init__(self) -> None:
        self._of_pod: dict[str, _Refresh] = {}

    def decide(
        self, uid: str, *, wanted: str, annotated: str | None, told: str, now: float
    ) -> Decision:
        """`annotated` is the hash in the pod's annotation, `told` the one it last told of. A patch
        that is to be made is asked for again until it is `patched`."""
        if told == wanted:
            self._of_pod.pop(uid, None)
            return Decision()
        known = self._of_pod.get(uid)
        if known is None or known.config_hash != wanted:
            if annotated != wanted:
                return Decision(1, REPEAT_SECONDS[0])
            # An operator that has just started does not know when the annotation was written.
            known = self._of_pod[uid] = _Refresh(wanted, now)
        if known.patches > len(REPEAT_SECONDS):
            return Decision()
        due = known.first + REPEAT_SECONDS[known.patches - 1]
        if now < due:
            return Decision(None, due - now)
        if known.patches == len(REPEAT_SECONDS):
            return Decision(known.patches + 1)
        return Decision(known.patches + 1, known.first + REPEAT_SECONDS[known.patches] - now)

    def patched(self, uid: str, *, wanted: str, patch: int, now: float) -> None:
        """A patch that was decided was made."""
        if patch == 1:
            self._of_pod[uid] = _Refresh(wanted, now)
        else:
            self._of_pod[uid].patches = patch

    def keep(self, uids: Collection[str]) -> None:
        """Forgets every other pod."""
        for uid in self._of_pod.keys() - set(uids):
            del self._of_pod[uid]


class ConfigRefresher:
    """Makes the patches."""

    def __init__(
        self, client: Client, store: Store, metrics: Metrics, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._of_group: dict[Key, ConfigRefreshes] = {}

    async def refresh(self, key: Key, observed: Observed) -> float | None:
        """Patches the pods that need it; seconds until one may need it again.

        Raises the errors of the client.
        """
        if observed.config_hash is None:
            return None
        refreshes = self._of_group.setdefault(key, ConfigRefreshes())
        refreshes.keep({pod.uid for pod in observed.pods})
        waits = []
        for pod in observed.pods:
            if pod.terminating or pod.poll.report is None:
                continue
            live = self._store.child(POD, key.namespace, pod.name)
            annotations = (live or {}).get("metadata", {}).get("annotations") or {}
            decision = refreshes.decide(
                pod.uid,
                wanted=observed.config_hash,
                annotated=annotations.get(names.CONFIG_HASH_ANNOTATION),
                told=pod.poll.report.config_hash,
                now=self._clock(),
            )
            if decision.patch is not None:
                if await self._patch(key, pod, observed.config_hash, decision.patch):
                    waits.append(0.0)
                refreshes.patched(
                    pod.uid, wanted=observed.config_hash, patch=decision.patch, now=self._clock()
                )
            if decision.look_in is not None:
                waits.append(decision.look_in)
        return min(waits, default=None)

    def forget(self, key: Key) -> None:
        """The group is gone."""
        self._of_group.pop(key, None)

    async def _patch(self, key: Key, pod: ObservedPod, wanted: str, number: int) -> bool:
        """Whether the answer shows the pod otherwise than it was known: its event is then no news
        any more, and the group is to be looked at again."""
        annotations = {
            names.CONFIG_HASH_ANNOTATION: wanted,
            # A patch that changes nothing wakes nobody.
            names.CONFIG_REFRESH_ANNOTATION: str(number),
        }
        patch = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        try:
            written = await self._client.merge_patch(POD, key.namespace, pod.name, patch, "status")
        except (errors.NotFoundError, errors.ConflictError):
            return False  # gone, or another one has its name: that one starts with the new file
        known = self._store.child(POD, key.namespace, pod.name)
        self._store.put(POD, written)
        self._metrics.child_written(POD.resource, "refreshed")
        return _seen(known) != _seen(self._store.child(POD, key.namespace, pod.name))


def _seen(pod: Manifest | None) -> tuple[Any, ...]:
    """What a status is made of."""
    if pod is None:
        return ()
    metadata = pod["metadata"]
    return metadata.get("deletionTimestamp"), metadata.get("labels"), pod.get("status")
