"""Whether the replicas of a group say the same: three conditions that compare their reports.

The view of most replicas is the yardstick and the others are named; of two views with equally many
replicas, the better one is. Only replicas that run the current file are compared, because others
may differ for that reason alone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from mcpgroup_operator.conditions import Reason, listed, no, unknown, yes
from mcpgroup_operator.reports import STATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mcpgroup_operator.conditions import Finding
    from mcpgroup_operator.observation import Observed, ObservedPod
    from mcpgroup_operator.reports import MemberReport, PodReport

_MAX_REFUSAL = 300


class Told(NamedTuple):
    """A counted replica and what it says."""

    pod: str
    report: PodReport


def told(pods: Iterable[ObservedPod]) -> list[Told]:
    """Those of `pods` whose report is worth something."""
    return [Told(pod.name, pod.report) for pod in pods if pod.report is not None]


def unreachable(pods: Sequence[ObservedPod]) -> Finding:
    """Unknown, because these do not answer."""
    parts = [
        f"{pod.name} does not answer ({pod.poll.error or 'it has no address'})" for pod in pods
    ]
    return unknown(Reason.REPLICA_UNREACHABLE, listed(parts, "; "))


def config_applied(observed: Observed) -> Finding:
    """Whether every counted replica serves the file that is in the ConfigMap."""
    pods = observed.counted
    if observed.config_hash is None:
        return unknown(Reason.NO_CONFIG, "there is no configuration yet")
    if not pods:
        return unknown(Reason.NO_READY_REPLICAS, "no replica is ready")
    reports = told(pods)
    others = [each for each in reports if each.report.config_hash != observed.config_hash]
    if others:
        refused = any(each.report.rejected for each in others)
        reason = Reason.CONFIG_REJECTED if refused else Reason.CONFIG_OUTDATED
        # Refusals first: nothing but a person mends them.
        others.sort(key=lambda each: (not each.report.rejected, each.pod))
        return no(reason, listed([_outdated(each) for each in others], "; "))
    if lost := [pod for pod in pods if pod.unreachable]:
        return unreachable(lost)
    if not reports:
        return unknown(Reason.NOT_ASKED_YET, "the ready replicas were not asked yet")
    ignored = [
        f"{each.pod} ignores what it does not know: {listed(each.report.ignored)}"
        for each in reports
        if each.report.ignored
    ]
    return yes(Reason.CONFIG_APPLIED, listed(ignored, "; "))


def _outdated(each: Told) -> str:
    generation = each.report.generation
    which = "an older one" if generation is None else f"that of generation {generation}"
    if each.report.rejected:
        return f"{each.pod} refuses it and keeps {which}: {each.report.rejected[:_MAX_REFUSAL]}"
    return f"{each.pod} still has {which}"


def replicas_agree(observed: Observed, now: float) -> Finding:
    """Whether circuit, state and members in rotation are the same on all replicas."""
    reports = _comparable(observed)
    views = {each.pod: _View.of(each.report) for each in reports}
    count = Counter(views.values())
    if len(count) > 1:
        yardstick = max(count, key=lambda view: (count[view], *view.goodness))
        differing = {pod: view for pod, view in views.items() if view != yardstick}
        parts = [f"{pod}: {view.told_beside(yardstick)}" for pod, view in differing.items()]
        same = len(views) - len(differing)
        reason = min(
            (view.reason_beside(yardstick) for view in differing.values()), key=_REASONS.index
        )
        rest = f"{same} other{'s' if same > 1 else ''}: {yardstick}"
        return no(reason, f"{listed(parts, '; ')}; {rest}")
    if silent := [pod for pod in observed.counted if pod.is_silent(now)]:
        return unreachable(silent)
    if len(reports) < 2:
        return yes(Reason.NOTHING_TO_COMPARE, "fewer than two replicas can be compared")
    return yes(Reason.REPLICAS_AGREE)


_REASONS = (Reason.CIRCUITS_DIFFER, Reason.STATES_DIFFER, Reason.ROTATIONS_DIFFER)


class _View(NamedTuple):
    """What replicas should agree on; `rotation` is sorted."""

    circuit_open: bool
    state: str
    rotation: tuple[str, ...]

    @classmethod
    def of(cls, report: PodReport) -> _View:
        return cls(report.circuit_open, report.state, tuple(sorted(report.rotation)))

    def __str__(self) -> str:
        rotation = listed(self.rotation) or "nothing"
        circuit = "open" if self.circuit_open else "closed"
        return f"circuit {circuit}, {self.state}, {rotation} in rotation"

    @property
    def goodness(self) -> tuple[bool, int, int, tuple[str, ...]]:
        return (
            not self.circuit_open,
            STATES.index(self.state) if self.state in STATES else -1,
            len(self.rotation),
            self.rotation,
        )

    def reason_beside(self, other: _View) -> str:
        if self.circuit_open != other.circuit_open:
            return Reason.CIRCUITS_DIFFER
        return Reason.STATES_DIFFER if self.state != other.state else Reason.ROTATIONS_DIFFER

    def told_beside(self, other: _View) -> str:
        """Only what differs."""
        parts = []
        if self.circuit_open != other.circuit_open:
            parts.append(f"circuit {'open' if self.circuit_open else 'closed'}")
        if self.state != other.state:
            parts.append(self.state)
        if lost := sorted(set(other.rotation) - set(self.rotation)):
            parts.append(f"without {listed(lost)} in rotation")
        if more := sorted(set(self.rotation) - set(other.rotation)):
            parts.append(f"with {listed(more)} in rotation")
        return ", ".join(parts)


def members_consistent(observed: Observed, now: float) -> Finding:
    """Whether every name means one thing, and a member offers the same to every replica."""
    reports = _comparable(observed)
    members: dict[str, list[tuple[str, MemberReport]]] = {}
    for each in reports:
        for member in each.report.members:
            members.setdefault(member.name, []).append((each.pod, member))
    if parts := [part for name in sorted(members) if (part := _differing(name, members[name]))]:
        return no(Reason.CATALOGUES_DIFFER, listed(parts, "; "))
    conflicts = [
        f"{name} defines {listed(sorted(shadowed))} in another way than is served"
        for name in sorted(members)
        if (shadowed := {word for _, member in members[name] for word in member.shadowed})
    ]
    if conflicts:
        return no(Reason.NAME_CONFLICT, listed(conflicts, "; "))
    if silent := [pod for pod in observed.counted if pod.is_silent(now)]:
        return unreachable(silent)
    if reports:
        return yes(Reason.MEMBERS_CONSISTENT)
    if told(observed.counted):
        return yes(Reason.NOTHING_TO_COMPARE, "no replica has the newest configuration yet")
    return unknown(Reason.NOTHING_TO_COMPARE, "no replica tells what its members offer")


def _differing(name: str, seen: Sequence[tuple[str, MemberReport]]) -> str:
    """Which replicas see another catalogue of one member than most; empty when none does."""
    count = Counter(m.catalogue_hash for _, m in seen if m.catalogue_hash is not None)
    if len(count) < 2:
        return ""
    tools = {m.catalogue_hash: m.tools or 0 for _, m in seen}
    most = max(count, key=lambda hashed: (count[hashed], tools[hashed], hashed))
    parts = [
        f"{pod} sees {_offer(member.tools, tools[most])}"
        for pod, member in seen
        if member.catalogue_hash not in (None, most)
    ]
    return f"{name}: {listed(parts)}"


def _offer(tools: int | None, elsewhere: int) -> str:
    if tools is None or tools == elsewhere:
        return "another catalogue than most replicas"
    return f"{tools} tools where most replicas see {elsewhere}"


def _comparable(observed: Observed) -> list[Told]:
    wanted = observed.config_hash
    return [each for each in told(observed.counted) if each.report.config_hash == wanted]
