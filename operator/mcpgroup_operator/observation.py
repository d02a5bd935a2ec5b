"""What is known of one group at one moment: its Deployment, its pods, and what these said.

A pod is *counted* when it is Ready and not terminating. A counted pod has *told* when a report is
there and it was not missed three times since, and is *unreachable* when it was, or was missed three
times since it became Ready. It is *silent* when that is so although it was Ready for 30 s. In
between it is *awaited*.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from mcpgroup_operator.names import selector
from mcpgroup_operator.reports import Poll

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcpgroup_operator.conditions import Finding
    from mcpgroup_operator.reports import PodReport

MAX_MISSES: Final = 3
"""Polls without an answer in a row, after which the last answer is worth nothing."""
SILENCE_SECONDS: Final = 30.0
"""For how long a pod must be Ready before its silence is a doubt about the others, too."""

_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """One gateway pod; `ready_since` is a Unix time, None while it is not Ready.

    `terminating` also means one that has ended and is only still listed (evicted, for example).
    """

    name: str
    uid: str
    ip: str | None = None
    ready_since: float | None = None
    terminating: bool = False
    poll: Poll = field(default_factory=Poll)

    @property
    def ready(self) -> bool:
        """As Kubernetes says it."""
        return self.ready_since is not None

    @property
    def counted(self) -> bool:
        """Whether traffic goes there."""
        return self.ready and not self.terminating

    @property
    def report(self) -> PodReport | None:
        """What it said, while that is worth something."""
        return self.poll.report if self.poll.misses < MAX_MISSES else None

    def is_silent(self, now: float) -> bool:
        """Whether it should answer, and does not."""
        return self.unreachable and self._silent_at() <= now

    def silence_in(self, now: float) -> float | None:
        """Seconds until it counts as silent if nothing else happens; None when it will not."""
        at = self._silent_at()
        return at - now if self.unreachable and at > now else None

    @property
    def awaited(self) -> bool:
        """Whether the next polls will tell more than is known now, within seconds."""
        return self.counted and not self.unreachable and self.poll.report is None

    @property
    def unreachable(self) -> bool:
        """Whether it cannot be asked."""
        return self.counted and (self.poll.misses >= MAX_MISSES or self.ip is None)

    def _silent_at(self) -> float:
        return (self.ready_since or 0.0) + SILENCE_SECONDS


@dataclass(frozen=True, slots=True)
class Observed:
    """`accepted` is what the reconcile found of spec and children (`conditions.ACCEPTED`).

    `deployment` is the object as last read, None when there is none. `config_hash` is that of the
    file in the ConfigMap, None when there is no file yet.
    """

    accepted: Finding
    deployment: Mapping[str, Any] | None = None
    config_hash: str | None = None
    pods: tuple[ObservedPod, ...] = ()

    @property
    def counted(self) -> list[ObservedPod]:
        """By name."""
        return sorted((pod for pod in self.pods if pod.counted), key=lambda pod: pod.name)

    def is_settled(self) -> bool:
        """Whether every counted pod was asked often enough to judge it.

        Just after a start of the operator nothing was: a status made then would take back what
        is true. This lasts a few seconds at most, then every pod has answered or has not.
        """
        return not any(pod.awaited for pod in self.pods)

    def due_in(self, now: float) -> float | None:
        """Seconds until the status changes by the passing of time alone; None when it will not."""
        waits = [wait for pod in self.pods if (wait := pod.silence_in(now)) is not None]
        return min(waits, default=None)


def is_gateway(pod: Mapping[str, Any], group: str) -> bool:
    """Whether the group's Service leads to this pod: the label of the group alone, which all that
    belongs to it carries, makes no gateway."""
    labels = pod["metadata"].get("labels") or {}
    return selector(group).items() <= labels.items()


def observe_pod(pod: Mapping[str, Any], poll: Poll | None) -> ObservedPod:
    """A pod as the API server shows it, and how asking it went (None: never asked)."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    return ObservedPod(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        ip=status.get("podIP") or None,
        ready_since=_ready_since(status),
        terminating=(
            metadata.get("deletionTimestamp") is not None or status.get("phase") in _ENDED
        ),
        poll=poll or Poll(),
    )


def _ready_since(status: Mapping[str, Any]) -> float | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return _unix_time(condition.get("lastTransitionTime"))
    return None


def _unix_time(text: object) -> float:
    """0, long ago, for what is no time in RFC 3339."""
    if not isinstance(text, str):
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
