"""From what each member offers to what a name means; see `catalogue` for the rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mcpgroup_gateway.wire.envelope import Raw, encode_json, encode_object, parse_object
from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mcpgroup_gateway.core.entries import Entry, MemberCatalogue
    from mcpgroup_gateway.core.filters import Filters
    from mcpgroup_gateway.core.policy import NamesPolicy
    from mcpgroup_gateway.wire.param_headers import ParamHeader

#: MCP 2025-11-25 wants names of at most 128 characters; clients refuse longer ones.
MAX_NAME_LENGTH = 128
_PREFIXED_KINDS = frozenset({Kind.TOOL, Kind.PROMPT})

#: What a member offers of one kind by name; None for a name that only its manifest promises.
Offers = dict[str, "Entry | None"]


@dataclass(frozen=True, slots=True)
class Member:
    """One member's part of the catalogue.

    `catalogue` is None until the member was first reached; until then `provides` names what its
    manifest promises: enough to try it, not enough to list it. `awaited` is false when it is
    stopped or evicted, so that nobody waits for its first catalogue.
    """

    name: str
    catalogue: MemberCatalogue | None
    provides: Mapping[Kind, frozenset[str]] = field(default_factory=dict)
    awaited: bool = True

    def offers(self, kind: Kind, filters: Filters) -> Offers:
        """By name, without what the filters hide."""
        offers: Offers = {}
        if self.catalogue is None:
            for name in sorted(self.provides.get(kind, ())):
                offers[name] = None
        else:
            for entry in self.catalogue.entries.get(kind, ()):
                offers[entry.name] = entry
        return {name: e for name, e in offers.items() if filters.admits(kind, self.name, name)}


@dataclass(frozen=True, slots=True)
class Report:
    """Something that a list does not show as the member has it, and why."""

    kind: Kind
    member: str
    name: str
    reason: str  # shadowed, tooLong, repeated


@dataclass(frozen=True, slots=True)
class Resolution:
    """Who may serve a name.

    `name` is bare: what the member is asked for, and what filters, routes and metrics see.
    `members` are the candidates in manifest order, `safe_on` those of them on which the call may
    run twice. `pinned` is the member that a prefix names. `param_headers` are those of the
    definition, which all candidates share.
    """

    name: str
    members: tuple[str, ...]
    safe_on: frozenset[str]
    pinned: str | None = None
    definition: str = ""
    param_headers: tuple[ParamHeader, ...] = ()


@dataclass(slots=True)
class Meaning:
    """What a bare name means in one view. `entry` is None while only promises name it."""

    definition: str
    entry: Entry | None
    members: list[str]


def merge(kind: Kind, offers: Mapping[str, Offers]) -> tuple[dict[str, Meaning], list[Report]]:
    """Choose one definition a name; `offers` by member in manifest order.

    The second list reports the members that are shadowed for a name.
    """
    variants: dict[str, dict[str, list[tuple[str, Entry]]]] = {}
    promised: dict[str, list[str]] = {}
    for member, own in offers.items():
        for name, entry in own.items():
            if entry is None:
                promised.setdefault(name, []).append(member)
            else:
                of_name = variants.setdefault(name, {})
                of_name.setdefault(entry.definition, []).append((member, entry))
    meanings: dict[str, Meaning] = {}
    shadowed: list[Report] = []
    for name, by_definition in variants.items():
        # Of equally common definitions `max` takes the first, which is the first in the manifest.
        winner = max(by_definition.values(), key=len)
        entry = winner[0][1]
        meanings[name] = Meaning(entry.definition, entry, [member for member, _ in winner])
        shadowed += [
            Report(kind, member, name, "shadowed")
            for definition, others in by_definition.items()
            if definition != entry.definition
            for member, _ in others
        ]
    for name, members in promised.items():
        meanings.setdefault(name, Meaning("", None, [])).members += members
    return meanings, shadowed


def join_last_resort(meanings: Mapping[str, Meaning], canary: str, own: Offers) -> None:
    """Let the canary stand behind the stable members for names that it defines as they do."""
    for name, entry in own.items():
        meaning = meanings.get(name)
        if meaning is not None and (
            entry is None or meaning.entry is None or entry.definition == meaning.definition
        ):
            meaning.members.append(canary)


def put_first(meanings: dict[str, Meaning], canary: str, own: Offers) -> None:
    """Let the canary's entries define their names; the stable members stay to fall back to."""
    for name, entry in own.items():
        meaning = meanings.setdefault(name, Meaning("", None, []))
        meaning.members.append(canary)
        if entry is not None:
            meaning.definition = entry.definition
            meaning.entry = entry


def list_entries(
    kind: Kind,
    meanings: Mapping[str, Meaning],
    offers: Mapping[str, Offers],
    shadowed: Iterable[Report],
    names: NamesPolicy,
) -> tuple[dict[str, bytes], list[Report]]:
    """The raw entries by listed name, and what had to be left out."""
    listed: dict[str, bytes] = {}
    left_out: list[Report] = []
    prefixed: Iterable[tuple[str, Entry]] = ()
    is_prefixed_kind = kind in _PREFIXED_KINDS
    if not (is_prefixed_kind and names.prefix == "Always"):
        for name, meaning in meanings.items():
            if meaning.entry is None:
                continue
            if is_prefixed_kind and len(name) > MAX_NAME_LENGTH:
                left_out.append(Report(kind, meaning.members[0], name, "tooLong"))
            else:
                listed[name] = meaning.entry.raw
    if is_prefixed_kind and names.prefix == "Always":
        prefixed = [(member, e) for member, own in offers.items() for e in own.values() if e]
    elif is_prefixed_kind and names.prefix == "OnConflict":
        found = [(report.member, offers[report.member][report.name]) for report in shadowed]
        prefixed = [(member, entry) for member, entry in found if entry]
    for member, entry in prefixed:
        name = f"{member}{names.separator}{entry.name}"
        if len(name) > MAX_NAME_LENGTH:
            left_out.append(Report(kind, member, entry.name, "tooLong"))
        elif name in meanings or name in listed:
            # The bare name wins when it is called, so the prefixed one would mean another tool.
            left_out.append(Report(kind, member, entry.name, "repeated"))
        else:
            listed[name] = _renamed(entry.raw, name)
    return listed, left_out


def _renamed(raw: bytes, name: str) -> bytes:
    members = parse_object(raw)
    members["name"] = Raw(encode_json(name))
    return encode_object(members)
