"""Keeps what is known of one member's lists fresh."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.serving.discovery import read_catalogue

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.core.catalogue import MemberCatalogue
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.members.upstream import Upstream

_log = logging.getLogger(__name__)

#: How long a catalogue counts as fresh, and how long `list_changed` waits for more of its kind.
_FRESH_SECONDS: Final = 60.0
_COALESCE_SECONDS: Final = 1.0


class CatalogueReader:
    """Reads after each start and `list_changed`, and once a minute; a failure keeps the old.

    `control` gives the session to read in, None while there is none; `seconds` what a reading may
    take; `read` hears each catalogue. `run` is the owner task.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        control: Callable[[], Upstream | None],
        seconds: Callable[[], float],
        read: Callable[[Endpoint, MemberCatalogue], None],
    ) -> None:
        self.catalogue: MemberCatalogue | None = None
        self._endpoint = endpoint
        self._control = control
        self._seconds = seconds
        self._read = read
        self._wanted = asyncio.Event()

    def refresh(self) -> None:
        """Read again soon."""
        self._wanted.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_FRESH_SECONDS if self.catalogue else None):
                    await self._wanted.wait()
                if self.catalogue is not None:
                    await asyncio.sleep(_COALESCE_SECONDS)
            except TimeoutError:
                pass
            self._wanted.clear()
            control = self._control()
            if control is None:
                continue
            try:
                await self._read_in(control)
            except Exception:  # noqa: BLE001 - logged; the lists are read again later
                _log.exception("member %s: the catalogue failed", self._endpoint.member)
                await self._read_again(control)

    async def _read_in(self, control: Upstream) -> None:
        try:
            async with asyncio.timeout(self._seconds()):
                catalogue = await read_catalogue(self._endpoint.member, control)
        except (MemberFailure, TimeoutError) as fault:
            reason = fault.reason if isinstance(fault, MemberFailure) else "no answer in time"
            _log.warning("member %s: catalogue: %s", self._endpoint.member, reason)
            await self._read_again(control)
            return
        self._read(self._endpoint, catalogue)
        self.catalogue = catalogue

    async def _read_again(self, control: Upstream) -> None:
        """Soon, when there is nothing to serve by yet."""
        if self.catalogue is None and control is self._control():
            await asyncio.sleep(_COALESCE_SECONDS)
            self._wanted.set()
