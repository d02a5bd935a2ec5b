"""The members' catalogues as this replica knows them, merged, and who waits for the first ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.catalogue import Catalogue, Member
from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mcpgroup_gateway.core.catalogue import MemberCatalogue, View
    from mcpgroup_gateway.core.filters import Filters
    from mcpgroup_gateway.core.policy import GroupPolicy

#: Lists and `initialize` wait so long for members' first catalogues (DESIGN-MCP section 2).
FIRST_CATALOGUE_SECONDS: Final = 10.0


class Catalogues:
    """`awaited` tells whether a member without a catalogue is still worth waiting for.

    `changed` is called after each merge with the kinds whose lists look different to somebody.
    """

    def __init__(
        self,
        awaited: Callable[[str], bool],
        changed: Callable[[list[Kind]], None],
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
        self._merge()

    def update(self, member: str, catalogue: MemberCatalogue) -> None:
        """A member's lists were read."""
        if member not in self._members:
            return
        old = self._read.get(member)
        self._read[member] = catalogue
        if old is None or old != catalogue:
            self._merge()
        self.wake()

    def forget(self, member: str) -> None:
        """Another server stands behind this name now."""
        if self._read.pop(member, None) is not None:
            self._merge()

    def of(self, member: str) -> MemberCatalogue | None:
        return self._read.get(member)

    def view(self, *, canary: bool) -> View:
        if self._merged is None:
            raise RuntimeError("not configured")
        if self._unawaited != self._currently_unawaited():
            self._merge()
        return self._merged.view(canary)

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

    def _merge(self) -> None:
        policy, filters = self._policy, self._filters
        if policy is None or filters is None:
            return
        self._unawaited = self._currently_unawaited()
        old = self._merged
        self._merged = Catalogue(
            [
                Member(
                    name,
                    self._read.get(name),
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
        kinds = list(Kind) if old is None else list(_different(old, self._merged))
        if kinds:
            self._changed(kinds)


def _different(old: Catalogue, new: Catalogue) -> Iterable[Kind]:
    for kind in Kind:
        for canary in (False, True):
            if old.view(canary).listing(kind).hash != new.view(canary).listing(kind).hash:
                yield kind
                break
