"""What one gateway pod said of itself: its answer to `GET /status`, as far as a status needs it.

Pods may run any version of the gateway, and whoever controls a member controls some of the words.
So keys that are not known are ignored, what is known must have its type, and everything that is
kept is bounded. What moves all the time (times, sessions, selections, latencies) is not kept: two
reports are equal when nothing happened that a status would show.

Source: DESIGN section 9.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from mcpgroup_api.patterns import CONFIG_HASH

State = Literal["Inactive", "Degraded", "Partial", "Healthy"]

STATES: Final[tuple[State, ...]] = ("Inactive", "Degraded", "Partial", "Healthy")
"""Worst first."""

MAX_BYTES: Final = 1024 * 1024
MAX_MEMBERS: Final = 256
MAX_NAMES: Final = 64
_MAX_NAME: Final = 253
_MAX_SENTENCE: Final = 600
_MAX_COUNT: Final = 1_000_000
_HASH: Final = re.compile(CONFIG_HASH)


class UnreadableReportError(Exception):
    """The answer is no report. The text says why in a few words, without what was read."""


@dataclass(frozen=True, slots=True)
class MemberReport:
    """One member as this replica sees it; endpoints of one member count as one.

    `catalogue_hash` and `tools` (a number) are None while the replica was never told. `shadowed`
    has the names for which another member's definition is served, sorted, the first ones only.
    """

    name: str
    in_rotation: bool
    catalogue_hash: str | None
    tools: int | None
    shadowed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodReport:
    """One replica. `rejected` says why the newest file is refused while an older one serves;
    `ignored` names keys of the file that this version does not know; `missing_secrets` has
    `name/key` of what members need and nobody provides. Counts are of members (endpoints)."""

    pod: str
    namespace: str
    config_hash: str
    generation: int | None
    rejected: str | None
    ignored: tuple[str, ...]
    missing_secrets: tuple[str, ...]
    state: State
    available: bool
    circuit_open: bool
    total: int
    in_rotation: int
    healthy: int
    selectable: int
    members: tuple[MemberReport, ...]

    @property
    def rotation(self) -> frozenset[str]:
        """The names of the members that this replica may select."""
        return frozenset(member.name for member in self.members if member.in_rotation)


@dataclass(frozen=True, slots=True)
class Poll:
    """How asking one pod went: the last report that there was, and what came after it.

    `misses` counts the polls without a report since then, in a row; `error` says why the latest
    of them that was news failed.
    """

    report: PodReport | None = None
    misses: int = 0
    error: str = ""

    @property
    def asked(self) -> bool:
        """Whether a poll ended at all, well or not."""
        return self.report is not None or self.misses > 0


def parse_report(content: bytes) -> PodReport:
    """The report in the body of an answer. Raises `UnreadableReportError`."""
    if len(content) > MAX_BYTES:
        raise UnreadableReportError(f"the answer is longer than {MAX_BYTES} bytes")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise UnreadableReportError("the answer is no JSON") from None
    document = _object(document, "the answer")
    config = _object(document.get("config"), "config")
    circuit = _object(document.get("circuit"), "circuit")
    counts = _object(document.get("counts"), "counts")
    state = document.get("state")
    if state not in STATES:
        raise UnreadableReportError("state is none of " + ", ".join(STATES))
    return PodReport(
        pod=_name(document.get("pod"), "pod"),
        namespace=_name(document.get("namespace"), "namespace"),
        config_hash=_hash(config.get("hash"), "config.hash"),
        generation=_optional_count(config.get("generation"), "config.generation"),
        rejected=_sentence(config.get("rejected"), "config.rejected"),
        ignored=_names(config.get("ignored"), "config.ignored"),
        missing_secrets=_names(config.get("missingSecrets"), "config.missingSecrets"),
        state=cast("State", state),
        available=_flag(document.get("available"), "available"),
        circuit_open=_flag(circuit.get("open"), "circuit.open"),
        total=_count(counts.get("total"), "counts.total"),
        in_rotation=_count(counts.get("inRotation"), "counts.inRotation"),
        healthy=_count(counts.get("healthy"), "counts.healthy"),
        selectable=_count(counts.get("selectable"), "counts.selectable"),
        members=_members(document.get("members")),
    )


def _members(value: object) -> tuple[MemberReport, ...]:
    found: dict[str, MemberReport] = {}
    for item in _list(value, "members")[:MAX_MEMBERS]:
        entry = _object(item, "a member")
        name = _name(entry.get("name"), "a member's name")
        catalogue = entry.get("catalogueHash")
        member = MemberReport(
            name=name,
            in_rotation=_flag(entry.get("inRotation"), "a member's inRotation"),
            catalogue_hash=(
                None if catalogue is None else _name(catalogue, "a member's catalogueHash")
            ),
            tools=_optional_count(entry.get("tools"), "a member's tools"),
            shadowed=_names(entry.get("shadowed"), "a member's shadowed"),
        )
        known = found.get(name)
        found[name] = member if known is None else _joined(known, member)
    return tuple(found[name] for name in sorted(found))


def _joined(one: MemberReport, other: MemberReport) -> MemberReport:
    """Two endpoints of one member, which share its catalogue."""
    return MemberReport(
        name=one.name,
        in_rotation=one.in_rotation or other.in_rotation,
        catalogue_hash=one.catalogue_hash or other.catalogue_hash,
        tools=other.tools if one.tools is None else one.tools,
        shadowed=tuple(sorted({*one.shadowed, *other.shadowed})[:MAX_NAMES]),
    )


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnreadableReportError(f"{what} is no object")
    return value


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise UnreadableReportError(f"{what} is no list")
    return value


def _flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise UnreadableReportError(f"{what} is neither true nor false")
    return value


def _count(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_COUNT:
        raise UnreadableReportError(f"{what} is no count")
    return value


def _optional_count(value: object, what: str) -> int | None:
    return None if value is None else _count(value, what)


def _name(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise UnreadableReportError(f"{what} is no text")
    return _clean(value, _MAX_NAME)


def _hash(value: object, what: str) -> str:
    """One that may stand in a status: the API server would refuse the whole of it otherwise."""
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise UnreadableReportError(f"{what} is no hash of a configuration")
    return value


def _sentence(value: object, what: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise UnreadableReportError(f"{what} is no text")
    return _clean(value, _MAX_SENTENCE) or None


def _names(value: object, what: str) -> tuple[str, ...]:
    """Sorted, so that another order is no news. An older version may not say it at all."""
    if value is None:
        return ()
    return tuple(sorted({_name(item, f"an entry of {what}") for item in _list(value, what)}))[
        :MAX_NAMES
    ]


def _clean(text: str, limit: int) -> str:
    """Without what would break a line, or the encoding of a request to the API server."""
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"
