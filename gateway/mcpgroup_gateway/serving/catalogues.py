"""The members' catalogues as this replica knows them, merged, and who waits for the first ones."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from mcpgroup_gateway.core.catalogue import Catalogue, Member
from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mcpgroup_gateway.core.catalogue import MemberCatalogue, View
    from mcpgroup_gateway.core.filters import Filters
    from mcpgroup_gateway.core.policy import GroupPolicy

#: Lists and `initialize` wait so long for members' first catalogues (DESIGN-MCP section 2).
FIRST_CATALOGUE_SECONDS: Final = 10.0
#: Sets of capabilities, and sessions with lists of their own, that are told apart at once. Each
#: holds a merged catalogue.
_MAX_CAPABILITY_SETS: Final = 16
_MAX_OVERLAYS: Final = 256


class Audience(NamedTuple):
    """Who sees the same lists: clients with these capabilities (canonical), or one session."""

    capabilities: bytes = b"{}"
    session_id: str | None = None


#: A change of what is common to all.
EVERYBODY: Final = Audience()


class Catalogues:
    """`awaited` tells whether a member without a catalogue is still worth waiting for.

    `changed` is called with the kinds whose lists look different, and to whom: clients with some
    capabilities, one session, or everybody; but for the sessions, given by id, that see lists of
    their own in place of those that changed. Of what clients with other capabilities see, and of
    what a single session sees, a bounded number is kept; the oldest is forgotten and read again.
    """

    def __init__(
        self,
        awaited: Callable[[str], bool],
        changed: Callable[[list[Kind], Audience, frozenset[str]], None],
    ) -> None:
        self._awaited = awaited
        self._changed = changed
        self._members: tuple[str, ...] = ()
        self._provides: Mapping[str, Mapping[Kind, frozenset[str]]] = {}
        self._read: dict[str, MemberCatalogue] = {}
        self._policy: GroupPolicy | None = None
        self._filters: Filters | None = None
        self._merged: Catalogue | None = None
        self._unawaited: frozenset[str] = frozenset()
        #: What clients see whose capabilities unlock more, by their canonical form and member.
        self._for: OrderedDict[bytes, dict[str, MemberCatalogue]] = OrderedDict()
        #: What of it is to be read again since what is common to all has changed.
        self._outdated: set[tuple[bytes, str]] = set()
        #: What a single session sees, with its capabilities.
        self._overlays: OrderedDict[str, tuple[bytes, dict[str, MemberCatalogue]]] = OrderedDict()
        self._merged_for: dict[Audience, Catalogue] = {}
        self._waiters: set[asyncio.Future[None]] = set()

    def reconfigure(
        self,
        policy: GroupPolicy,
        filters: Filters,
        provides: Mapping[str, Mapping[Kind, frozenset[str]]],
        renamed: Mapping[str, str],
    ) -> None:
        """Take a new configuration; `renamed` maps old names of members to new ones."""
        known = {renamed.get(name, name): catalogue for name, catalogue in self._read.items()}
        self._members = policy.members
        self._read = {name: known[name] for name in policy.members if name in known}
        self._policy, self._filters, self._provides = policy, filters, provides
        self._for.clear()
        self._outdated.clear()
        self._overlays.clear()
        self._merge()

    def update(self, member: str, catalogue: MemberCatalogue) -> None:
        """A member's lists were read."""
        if member not in self._members:
            return
        old = self._read.get(member)
        self._read[member] = catalogue
        if old is None or old != catalogue:
            for capabilities, known in self._for.items():
                if known.pop(member, None) is not None:  # its other faces may have changed as well
                    self._outdated.add((capabilities, member))
            self._merge(self._with_own(member))
            self._drop_usual(member, b"{}")
        self.wake()

    def has_for(self, member: str, capabilities: bytes) -> bool:
        """Whether it was read what clients with these capabilities see of a member."""
        return member in self._for.get(capabilities, ())

    def update_for(self, member: str, capabilities: bytes, catalogue: MemberCatalogue) -> None:
        """A member's lists were read as clients with these capabilities see them."""
        base = self._read.get(member)
        if base is None:
            return
        self._outdated.discard((capabilities, member))
        known = self._for.setdefault(capabilities, {})
        self._for.move_to_end(capabilities)
        while len(self._for) > _MAX_CAPABILITY_SETS:
            forgotten, _ = self._for.popitem(last=False)
            self._outdated = {each for each in self._outdated if each[0] != forgotten}
        audience = Audience(capabilities)
        old = self._merged_as(audience) if member in known else None
        known[member] = base if catalogue == base else catalogue
        self._merged_for.clear()
        if old is not None:
            own = self._with_own(member)
            self._tell_difference(old, self._merged_as(audience), audience, own)
        self._drop_usual(member, capabilities)

    def overlay(
        self, session_id: str, member: str, capabilities: bytes, catalogue: MemberCatalogue
    ) -> None:
        """A session sees these lists of a member; what others see of it stays."""
        audience = Audience(capabilities, session_id)
        old = self._merged_as(audience)
        usual = self._for.get(capabilities, {}).get(member, self._read.get(member))
        own = self._overlays.pop(session_id, (capabilities, {}))[1]
        had_own = own.pop(member, None) is not None
        if catalogue != usual:
            own[member] = catalogue
        if own:
            self._overlays[session_id] = (capabilities, own)
        while len(self._overlays) > _MAX_OVERLAYS:
            forgotten, (its_capabilities, _) = self._overlays.popitem(last=False)
            self._merged_for.pop(Audience(its_capabilities, forgotten), None)
        self._merged_for.pop(audience, None)
        if had_own or (capabilities, member) not in self._outdated:  # else everybody was told
            self._tell_difference(old, self._merged_as(audience), audience)

    def forget_overlay(self, session_id: str, member: str) -> None:
        """A session sees of a member what others see."""
        capabilities, own = self._overlays.get(session_id, (b"", {}))
        if member not in own:
            return
        audience = Audience(capabilities, session_id)
        old = self._merged_as(audience)
        del own[member]
        if not own:
            del self._overlays[session_id]
        self._merged_for.pop(audience, None)
        self._tell_difference(old, self._merged_as(audience), audience)

    def _with_own(self, member: str) -> frozenset[str]:
        """The sessions that see lists of their own of this member."""
        return frozenset(
            session_id for session_id, (_, own) in self._overlays.items() if member in own
        )

    def _drop_usual(self, member: str, capabilities: bytes) -> None:
        """Sessions that heard of a change first are like all others once it is known."""
        usual = self._for.get(capabilities, {}).get(member, self._read.get(member))
        for session_id in self._with_own(member):
            declared, own = self._overlays[session_id]
            if declared == capabilities and own[member] == usual:
                del own[member]
                self._merged_for.pop(Audience(declared, session_id), None)
                if not own:
                    del self._overlays[session_id]

    def session_ended(self, session_id: str) -> None:
        own = self._overlays.pop(session_id, None)
        if own is not None:
            self._merged_for.pop(Audience(own[0], session_id), None)

    def forget(self, member: str) -> None:
        """Another server stands behind this name now."""
        for known in self._for.values():
            known.pop(member, None)
        if self._read.pop(member, None) is not None:
            self._merge()

    def of(self, member: str) -> MemberCatalogue | None:
        return self._read.get(member)

    def view(
        self, *, canary: bool, capabilities: bytes = b"{}", session_id: str | None = None
    ) -> View:
        """What a caller sees; `capabilities` in their canonical form."""
        if self._merged is None:
            raise RuntimeError("not configured")
        if self._unawaited != self._currently_unawaited():
            self._merge()
        if not self._for and not self._overlays:
            return self._merged.view(canary)
        return self._merged_as(Audience(capabilities, session_id)).view(canary)

    @property
    def are_common(self) -> bool:
        """Whether all callers see the same lists, as far as it is known."""
        canary = self._policy is not None and self._policy.canary is not None
        return not canary and not self._for and not self._overlays

    def missing(self) -> list[str]:
        """Members without a catalogue that may still get one."""
        return [name for name in self._members if name not in self._read and self._awaited(name)]

    def wake(self) -> None:
        """Let those who wait look again: a catalogue came, or a member gave up."""
        for waiter in tuple(self._waiters):
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seconds: float) -> bool:
        """Until `wake`, at most so long; False when the time is over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True

    def _currently_unawaited(self) -> frozenset[str]:
        return frozenset(
            name for name in self._members if name not in self._read and not self._awaited(name)
        )

    def _merge(self, unaffected: frozenset[str] = frozenset()) -> None:
        policy = self._policy
        if policy is None:
            return
        self._unawaited = self._currently_unawaited()
        old = self._merged
        self._merged = self._merged_from(self._read)
        self._merged_for.clear()
        kinds = list(Kind) if old is None else list(_different(old, self._merged))
        if kinds:
            self._changed(kinds, EVERYBODY, unaffected)

    def _merged_as(self, audience: Audience) -> Catalogue:
        assert self._merged is not None  # noqa: S101 - it is configured
        if audience.session_id is not None and audience.session_id not in self._overlays:
            audience = Audience(audience.capabilities)
        own = {
            member: catalogue
            for member, catalogue in self._for.get(audience.capabilities, {}).items()
            if catalogue is not self._read.get(member)
        }
        if audience.session_id is not None:
            own |= self._overlays[audience.session_id][1]
        if not own:
            return self._merged
        merged = self._merged_for.get(audience)
        if merged is None:
            merged = self._merged_for[audience] = self._merged_from({**self._read, **own})
        return merged

    def _merged_from(self, read: Mapping[str, MemberCatalogue]) -> Catalogue:
        policy, filters = self._policy, self._filters
        assert policy is not None  # noqa: S101 - it is configured
        assert filters is not None  # noqa: S101
        return Catalogue(
            [
                Member(
                    name,
                    read.get(name),
                    self._provides.get(name, {}),
                    awaited=name not in self._unawaited,
                )
                for name in self._members
            ],
            names=policy.names,
            filters=filters,
            canary=policy.canary.member if policy.canary is not None else None,
            trust_annotations=policy.retry.trust_annotations,
        )

    def _tell_difference(
        self,
        old: Catalogue,
        new: Catalogue,
        audience: Audience,
        unaffected: frozenset[str] = frozenset(),
    ) -> None:
        kinds = list(_different(old, new))
        if kinds:
            self._changed(kinds, audience, unaffected)


def _different(old: Catalogue, new: Catalogue) -> Iterable[Kind]:
    for kind in Kind:
        for canary in (False, True):
            if old.view(canary).listing(kind).hash != new.view(canary).listing(kind).hash:
                yield kind
                break
