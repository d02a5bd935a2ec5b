"""Which of several operators leads: the one that holds a Lease.

A Lease does not fence: a holder that stood still may write before it notices that it lost. So a
write is allowed only as long as the last renewal, counted from when it was *sent*, is younger
than `CERTAIN_SECONDS` by the time the write can have taken; nobody takes a lease over before it
is older than that.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from mcpgroup_operator import errors
from mcpgroup_operator.kinds import LEASE, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

LEASE_SECONDS: Final = 15
CERTAIN_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1.0
RENEW_SECONDS: Final = 2.0

_LOG: Final = logging.getLogger(__name__)

Manifest = dict[str, Any]


def since_boot() -> float:
    """Seconds of a monotonic clock that goes on while the machine sleeps, where there is one: of a
    closed laptop the usual one stands still, and a lease that ran out meanwhile seems certain."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class LeaseClient(Protocol):
    """The requests that an election needs."""

    async def find(self, kind: Kind, namespace: str, name: str) -> Manifest | None: ...

    async def create(self, manifest: Manifest) -> Manifest: ...

    async def replace(self, manifest: Manifest) -> Manifest: ...


class LeadershipLostError(Exception):
    """Somebody else may lead by now. Nothing may be written any more by this process."""


class Elector:
    """`run` ends only by `LeadershipLostError` or cancellation. `clock` is `since_boot`; `wall` is
    used for what people read in the Lease."""

    def __init__(
        self,
        client: LeaseClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float],
        wall: Callable[[], datetime.datetime],
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._certain_until: float | None = None
        self._held: Manifest | None = None
        self._seen: tuple[object, float] = (None, clock())
        self._told = ""
        self.leading = asyncio.Event()

    @property
    def is_leading(self) -> bool:
        """Whether this process holds the lease for certain."""
        return self.allows(0.0)

    def allows(self, seconds: float) -> bool:
        """Whether a write that takes at most so long may start now."""
        return self._certain_until is not None and self._clock() + seconds < self._certain_until

    async def run(self) -> None:
        """Gets the lease, however long that takes, and keeps it."""
        while not await self._try(self._acquire):
            await self._sleep(RETRY_SECONDS)
        _LOG.info("leading: %s holds lease %s/%s", self._identity, self._namespace, self._name)
        self.leading.set()
        while self.is_leading:
            await self._sleep(RENEW_SECONDS)
            if self.is_leading:
                await self._try(self._renew)
        self._certain_until = None
        raise LeadershipLostError(
            f"lease {self._namespace}/{self._name} could not be renewed within"
            f" {CERTAIN_SECONDS:g} s"
        )

    async def release(self) -> None:
        """Lets go, so that the next one need not wait. Nothing may be written afterwards."""
        held, self._held, self._certain_until = self._held, None, None
        if held is None:
            return
        try:
            try:
                await self._let_go(held)
            except errors.ConflictError:
                # Perhaps our own renewal, which arrived and whose answer nobody waited for.
                found = await self._client.find(LEASE, self._namespace, self._name)
                if found is not None and found["spec"].get("holderIdentity") == self._identity:
                    await self._let_go(found)
        except errors.ApiError as error:
            _LOG.warning("the lease is not released, it runs out by itself: %s", error)

    async def _let_go(self, held: Manifest) -> None:
        free = {**held["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        await self._client.replace({**held, "spec": free})

    async def _try(self, step: Callable[[], Any]) -> bool:
        """Whether it succeeded. A lost race is no error worth telling."""
        try:
            done: bool = await step()
        except errors.ConflictError:
            return False
        except errors.ApiError as error:
            if str(error) != self._told:
                self._told = str(error)
                _LOG.warning("lease %s/%s: %s", self._namespace, self._name, error)
            return False
        self._told = ""
        return done

    async def _acquire(self) -> bool:
        found = await self._client.find(LEASE, self._namespace, self._name)
        if found is None:
            if self._seen[0] is not None and self._is_fresh(LEASE_SECONDS):
                return False  # it was deleted; whose it was may write yet, and makes it anew
            await self._write(self._client.create, self._lease(None))
            return True
        spec = found.get("spec") or {}
        self._observe(found)
        holder = spec.get("holderIdentity")
        lease = float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)
        if holder and holder != self._identity and self._is_fresh(lease):
            return False
        await self._write(self._client.replace, self._lease(found))
        return True

    async def _renew(self) -> bool:
        if self._held is None:
            return False
        try:
            await self._write(self._client.replace, self._lease(self._held))
        except errors.ConflictError:
            # Somebody touched the object, or took it. Whose is it?
            found = await self._client.find(LEASE, self._namespace, self._name)
            holder = ((found or {}).get("spec") or {}).get("holderIdentity")
            if found is None or holder != self._identity:
                self._certain_until = None
                return False
            self._held = found
            await self._write(self._client.replace, self._lease(found))
        except errors.NotFoundError:
            # Somebody deleted it, and whoever saw it before waits until it would have run out.
            try:
                await self._write(self._client.create, self._lease(None))
            except errors.ConflictError:
                self._certain_until = None
                return False
        return True

    async def _write(self, write: Callable[[Manifest], Any], lease: Manifest) -> None:
        sent = self._clock()
        self._held = await write(lease)
        self._certain_until = sent + CERTAIN_SECONDS

    def _is_fresh(self, lease: float) -> bool:
        """By our own clock, from when we first saw this very renewal: clocks of two machines
        differ. Looking once a second already costs up to one of the lease's seconds."""
        return self._clock() - self._seen[1] < lease - RETRY_SECONDS

    def _observe(self, found: Manifest) -> None:
        version = found["metadata"].get("resourceVersion")
        if version != self._seen[0]:
            self._seen = (version, self._clock())

    def _lease(self, found: Manifest | None) -> Manifest:
        now = self._wall().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = (found or {}).get("spec") or {}
        ours = old.get("holderIdentity") == self._identity
        transitions = int(old.get("leaseTransitions") or 0)
        metadata = {"namespace": self._namespace, "name": self._name}
        if found is not None:
            metadata = dict(found["metadata"])
            metadata.pop("managedFields", None)
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": LEASE_SECONDS,
                "acquireTime": old.get("acquireTime") if ours else now,
                "renewTime": now,
                "leaseTransitions": transitions if ours or found is None else transitions + 1,
            },
        }
