"""The last look at the lease, at the moment at which a write leaves.

Between the decision to write and the first byte a connection is made, and a process that stands
still meanwhile (a paused machine, SIGSTOP) goes on where it stopped: half a minute later, when
another operator leads. aiohttp keeps the head of a request back until its body gives the first
bytes, so a body that gives none keeps all of it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

from mcpgroup_operator import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.abc import AbstractStreamWriter


class FencedBody(aiohttp.BytesPayload):
    """The body of a write, sent only if `may_leave()` says so then; `held_back` tells that it did
    not. The request then ends with an `aiohttp.ClientConnectionError`."""

    def __init__(self, body: bytes, content_type: str, may_leave: Callable[[], bool]) -> None:
        super().__init__(body, content_type=content_type)
        self._may_leave = may_leave
        self.held_back = False

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        """Raises `NotLeadingError` before anything is written."""
        if not self._may_leave():
            self.held_back = True
            raise errors.NotLeadingError
        await super().write_with_length(writer, content_length)
