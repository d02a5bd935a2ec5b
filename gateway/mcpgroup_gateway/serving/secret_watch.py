"""Which Secrets the group lacks, and which members run on values that are not those of today."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.endpoint import State
from mcpgroup_gateway.secret_files import members_with

if TYPE_CHECKING:
    from mcpgroup_gateway.secret_files import SecretFiles
    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.serving.rollout import Rollout
    from mcpgroup_gateway.serving.status import ConfigState


class SecretWatch:
    """Keeps `config.missing_secrets` true, and starts members anew that waited for a Secret."""

    def __init__(
        self, files: SecretFiles, context: Context, config: ConfigState, rollout: Rollout
    ) -> None:
        self._files = files
        self._context = context
        self._config = config
        self._rollout = rollout

    async def look(self) -> dict[str, str]:
        """The members to be replaced, because their Secrets have other values than when they were
        started, with the fingerprints of these. Files are read in a thread."""
        group = self._rollout.group
        missing, fingerprints = await asyncio.to_thread(
            lambda: (
                self._files.missing(group),
                {member.name: self._files.fingerprint(member) for member in group.spec.members},
            )
        )
        if self._rollout.group is not group:
            return {}  # another configuration, which has been looked at
        came = set(self._config.missing_secrets) - set(missing)
        self._config.missing_secrets = missing
        rotated = self._rollout.take_secrets(fingerprints)
        self._retry(members_with(group, came) | rotated.waiting)
        return {name: fingerprints[name] or "" for name in rotated.running}

    def _retry(self, members: set[str]) -> None:
        """What lacked a Secret failed for that alone; its next try may be a minute away."""
        for supervisor in self._context.supervisors.values():
            endpoint = supervisor.endpoint
            waits = endpoint.state is State.FAILED and not endpoint.leaving
            if waits and endpoint.member in members:
                supervisor.start()
