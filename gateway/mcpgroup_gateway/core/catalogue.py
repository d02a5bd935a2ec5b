"""One catalogue out of those of the members.

A name means one definition: the one that most members offer, ties to manifest order. It is chosen
by what the members say they have and never by which of them is up, so that lists do not flap.
Only members with that definition are candidates for the name; the others are *shadowed* for it,
reported, and reached by `<member><separator><name>`. URIs are never rewritten, never in conflict.

The canary is exempt. Its callers see its entries over those of the stable pool and fall back to the
stable definition; everybody else sees the stable pool alone, in which the canary is a last resort
for names that it defines equally.

    view = Catalogue(members, names=..., filters=..., canary="new").view(canary=False)
    view.listing(Kind.TOOL).page(cursor)      bytes of a `tools/list` result
    view.resolve(Kind.TOOL, "search")         who may run it, None when nobody offers it

Source: DESIGN-MCP sections 1 and 2.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.entries import (
    NOT_CACHED,
    Caching,
    Entry,
    MemberCatalogue,
    parse_entries,
)
from mcpgroup_gateway.core.listing import BadCursor, Listing
from mcpgroup_gateway.core.merging import (
    Meaning,
    Member,
    Offers,
    Report,
    Resolution,
    join_last_resort,
    list_entries,
    merge,
    put_first,
)
from mcpgroup_gateway.core.templates import MAX_URI_LENGTH, UriTemplate
from mcpgroup_gateway.wire.envelope import MalformedMessage, encode_json, parse_object
from mcpgroup_gateway.wire.eras import to_legacy_tool
from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mcpgroup_gateway.core.filters import Filters
    from mcpgroup_gateway.core.policy import NamesPolicy

__all__ = [
    "NOT_CACHED",
    "BadCursor",
    "Caching",
    "Catalogue",
    "Entry",
    "Listing",
    "Member",
    "MemberCatalogue",
    "Report",
    "Resolution",
    "View",
    "parse_entries",
]

#: Capabilities with lists, whose changes the gateway itself announces.
_LISTED_CAPABILITIES = ("tools", "prompts", "resources")
_KEPT_URIS = 1024


class View:
    """The catalogue as one group of callers sees it.

    `shadowed` and `left_out` report what its lists do not show as the members have it.
    """

    def __init__(
        self,
        members: Sequence[Member],
        *,
        canary: str | None,
        sees_canary: bool,
        names: NamesPolicy,
        filters: Filters,
        trust_annotations: bool,
    ) -> None:
        self._members = tuple(members)
        self._filters = filters
        self._separator = names.separator
        self._canary = canary
        self._trust = trust_annotations
        self._order = {member.name: index for index, member in enumerate(members)}
        self._visible = tuple(m for m in members if sees_canary or m.name != canary)
        self._resolutions: dict[Kind, dict[str, Resolution]] = {}
        self._offers: dict[Kind, dict[str, Offers]] = {}
        self._listings: dict[Kind, Listing] = {}
        self.shadowed: tuple[Report, ...] = ()
        self.left_out: tuple[Report, ...] = ()
        for kind in Kind:
            self._merge(kind, sees_canary, names)
        #: The members whose resources can be subscribed to, in manifest order.
        self.subscribable = tuple(
            member.name for member in self._visible if _offers_subscriptions(member)
        )
        self._legacy_tools = _for_legacy(self._listings[Kind.TOOL])
        self._templates = _templates_of(self._members)
        self._match_kept = lru_cache(maxsize=_KEPT_URIS)(self._match)
        self.hash = self._hash()

    def resolve(self, kind: Kind, name: str) -> Resolution | None:
        """Who may serve a tool, prompt, URI or template; None when nobody is known to.

        A bare name wins over the reading as a prefix. A URI goes to the members that list it, else
        to those with a matching template.
        """
        resolution = self._resolutions[kind].get(name)
        if resolution is not None:
            return resolution
        if kind is Kind.RESOURCE:
            return self._match_kept(name) if len(name) <= MAX_URI_LENGTH else None
        if kind is Kind.TEMPLATE:
            return None
        member, separator, bare = name.partition(self._separator)
        own = self._offers[kind].get(member)
        if not separator or own is None or bare not in own:
            return None
        entry = own[bare]
        return Resolution(
            bare,
            (member,),
            frozenset({member}) if self._is_safe(kind, entry) else frozenset(),
            pinned=member,
            definition=entry.definition if entry else "",
            param_headers=entry.param_headers if entry else (),
        )

    def resource_fallback(self, uri: str) -> tuple[str, ...]:
        """Whom to ask for a URI that nobody lists and no template matches, in this order."""
        return tuple(
            name
            for name in self.with_capability("resources")
            if self._filters.admits(Kind.RESOURCE, name, uri)
        )

    def with_capability(self, capability: str) -> tuple[str, ...]:
        """The members that declared it, in manifest order."""
        return tuple(
            member.name
            for member in self._visible
            if member.catalogue is not None and capability in member.catalogue.capabilities
        )

    def declares(self, capability: str) -> bool:
        """Whether clients are told of lists of this kind; see `capabilities`."""
        unknown = any(member.catalogue is None for member in self._visible)
        return unknown or bool(self.with_capability(capability))

    def listing(self, kind: Kind, *, modern: bool = False) -> Listing:
        """As a client of either era may be shown it."""
        if kind is Kind.TOOL and not modern:
            return self._legacy_tools
        return self._listings[kind]

    def caching(self, kind: Kind) -> Caching:
        """What all members that list this kind allow."""
        allowed = [
            member.catalogue.caching.get(kind, NOT_CACHED)
            for member in self._visible
            if member.catalogue is not None and kind in member.catalogue.entries
        ]
        if any(member.catalogue is None for member in self._visible):
            return NOT_CACHED  # its entries are still to come
        return Caching(
            min((each.ttl_ms for each in allowed), default=0),
            bool(allowed) and all(each.public for each in allowed),
        )

    def tool_names(self) -> tuple[str, ...]:
        """The bare names of all tools, in order: the words of metrics."""
        return tuple(sorted(self._resolutions[Kind.TOOL]))

    def capabilities(self) -> bytes:
        """The `capabilities` object of an `initialize` result.

        A member without a catalogue may turn out to have any list, and a client asks only for
        what was declared.
        """
        declared: dict[str, dict[str, bool]] = {
            capability: {"listChanged": True}
            for capability in _LISTED_CAPABILITIES
            if self.declares(capability)
        }
        if self.subscribable:
            declared["resources"]["subscribe"] = True
        for capability in ("logging", "completions"):
            if self.with_capability(capability):
                declared[capability] = {}
        return encode_json(declared)

    def instructions(self) -> str | None:
        """The members' distinct texts in manifest order, with their names if there are several."""
        texts: dict[str, list[str]] = {}
        for member in self._visible:
            if member.catalogue is not None and member.catalogue.instructions:
                texts.setdefault(member.catalogue.instructions, []).append(member.name)
        if len(texts) <= 1:
            return next(iter(texts), None)
        return "\n\n".join(f"## {', '.join(names)}\n\n{text}" for text, names in texts.items())

    def _merge(self, kind: Kind, sees_canary: bool, names: NamesPolicy) -> None:
        offers = {member.name: member.offers(kind, self._filters) for member in self._members}
        canary = self._canary
        stable = {name: own for name, own in offers.items() if name != canary}
        meanings, shadowed = merge(kind, stable)
        if canary is not None and canary in offers:
            join = put_first if sees_canary else join_last_resort
            join(meanings, canary, offers[canary])
        visible = {member.name: offers[member.name] for member in self._visible}
        listed, left_out = list_entries(kind, meanings, visible, shadowed, names)
        self.shadowed += tuple(shadowed)
        self.left_out += tuple(left_out)
        self._offers[kind] = visible
        self._listings[kind] = Listing(kind, listed)
        self._resolutions[kind] = {
            name: self._resolution(kind, name, meaning, offers)
            for name, meaning in meanings.items()
        }

    def _resolution(
        self, kind: Kind, name: str, meaning: Meaning, offers: Mapping[str, Offers]
    ) -> Resolution:
        members = tuple(sorted(meaning.members, key=self._order.__getitem__))
        safe = (m for m in members if self._is_safe(kind, offers[m][name]))
        return Resolution(
            name,
            members,
            frozenset(safe),
            definition=meaning.definition,
            param_headers=meaning.entry.param_headers if meaning.entry else (),
        )

    def _is_safe(self, kind: Kind, entry: Entry | None) -> bool:
        if kind is not Kind.TOOL:
            return True
        return self._trust and entry is not None and entry.safe

    def _match(self, uri: str) -> Resolution | None:
        found = {
            member
            for template, members in self._templates
            if template.matches(uri)
            for member in members
            if self._filters.admits(Kind.RESOURCE, member, uri)
        }
        if not any(member.name in found for member in self._visible):
            return None
        members = tuple(sorted(found, key=self._order.__getitem__))
        return Resolution(uri, members, frozenset(members))

    def _hash(self) -> str:
        state = hashlib.sha256()
        for kind in Kind:
            state.update(self._listings[kind].hash.encode())
        return state.hexdigest()[:32]


class Catalogue:
    """What the members offer together, merged once for the stable pool and once for the canary.

    `members` come in manifest order. Build a new one when a member's catalogue or the
    configuration changes; equal input gives equal bytes on every replica.
    """

    def __init__(
        self,
        members: Sequence[Member],
        *,
        names: NamesPolicy,
        filters: Filters,
        canary: str | None = None,
        trust_annotations: bool = True,
    ) -> None:
        def view(sees_canary: bool) -> View:
            return View(
                members,
                canary=canary,
                sees_canary=sees_canary,
                names=names,
                filters=filters,
                trust_annotations=trust_annotations,
            )

        has_canary = any(member.name == canary for member in members)
        self._for_canary = view(sees_canary=True)
        # Nobody else is shown the canary's entries, unless there is nothing else to show or to
        # wait for.
        stable = [member for member in members if member.name != canary]
        is_alone = not any(m.catalogue is not None or m.awaited for m in stable)
        self._stable = view(sees_canary=False) if has_canary and not is_alone else self._for_canary

    def view(self, canary: bool = False) -> View:
        """What callers of the canary (`canary.sees_canary`) see, or everybody else."""
        return self._for_canary if canary else self._stable


def _for_legacy(tools: Listing) -> Listing:
    """The same listing, without what legacy clients refuse a whole list for."""
    entries = {name: to_legacy_tool(raw) for name, raw in tools.entries.items()}
    if all(entries[name] is raw for name, raw in tools.entries.items()):
        return tools
    return Listing(Kind.TOOL, entries)


def _offers_subscriptions(member: Member) -> bool:
    if member.catalogue is None or "resources" not in member.catalogue.capabilities:
        return False
    try:
        offered = parse_object(member.catalogue.capabilities["resources"])
    except MalformedMessage:
        return False
    return bytes(offered.get("subscribe", b"")) == b"true"


def _templates_of(members: Sequence[Member]) -> list[tuple[UriTemplate, list[str]]]:
    """Each distinct template with its members.

    Also those that a filter hides from the list: a read is judged by its URI.
    """
    owners: dict[str, list[str]] = {}
    for member in members:
        if member.catalogue is not None:
            for entry in member.catalogue.entries.get(Kind.TEMPLATE, ()):
                owners.setdefault(entry.name, []).append(member.name)
    return [(UriTemplate(text), names) for text, names in owners.items()]
