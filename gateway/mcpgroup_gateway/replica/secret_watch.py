"""Which Secrets the group lacks, and what happens when one comes."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.endpoint import State
from mcpgroup_gateway.secret_files import members_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_api import McpServerGroup
    from mcpgroup_gateway.secret_files import SecretFiles
    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.serving.status import ConfigState

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0


class SecretWatch:
    """Keeps `config.missing_secrets` true, and starts members anew that waited for a Secret.

    Files are read in a thread. `run` is a task of its owner.
    """

    def __init__(
        self,
        files: SecretFiles,
        context: Context,
        config: ConfigState,
        group: Callable[[], McpServerGroup],
    ) -> None:
        self._files = files
        self._context = context
        self._config = config
        self._group = group

    async def run(self) -> None:
        """Until cancelled; after a fault, which is logged, the next look comes all the same."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self.look()
            except Exception:  # noqa: BLE001 - logged; whatever is wrong, the next look may be right
                _log.exception("the Secrets could not be looked at")

    async def look(self) -> None:
        group = self._group()
        missing = await asyncio.to_thread(self._files.missing, group)
        if self._group() is not group:
            return  # another configuration, which has been looked at
        came = set(self._config.missing_secrets) - set(missing)
        self._config.missing_secrets = missing
        if came:
            self._retry(members_with(group, came))

    def _retry(self, members: set[str]) -> None:
        """What lacked a Secret failed for that alone; its next try may be a minute away."""
        for supervisor in self._context.supervisors.values():
            endpoint = supervisor.endpoint
            if endpoint.member in members and endpoint.state is State.FAILED:
                supervisor.start()
