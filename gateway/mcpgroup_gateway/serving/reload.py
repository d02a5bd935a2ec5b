"""Watches the manifest's content and has each valid change carried out (DESIGN section 8)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from typing import TYPE_CHECKING

from mcpgroup_gateway import manifest
from mcpgroup_gateway.manifest import ManifestError

if TYPE_CHECKING:
    from mcpgroup_gateway.manifest import Manifest
    from mcpgroup_gateway.serving.records import Records
    from mcpgroup_gateway.serving.rollout import Rollout
    from mcpgroup_gateway.serving.status import ConfigState

_log = logging.getLogger(__name__)

#: How often the content is looked at.
_LOOK_SECONDS = 1.0
#: Not everybody writes a file in one step: what is acted upon was the same twice.
_SETTLE_SECONDS = 0.1


class Reload:
    """Owns two tasks: one looks at the file, one carries a change out, which may take its time.

    What serves and what was refused is told in `config`. A change of the file gives up the one
    before it that is still being carried out; an invalid file does not.
    """

    def __init__(self, path: str, rollout: Rollout, config: ConfigState, records: Records) -> None:
        self._path = path
        self._rollout = rollout
        self._config = config
        self._records = records
        self._seen = config.digest
        self._refused: str | None = None  # why the file is not taken
        self._stuck: str | None = None  # why what was taken does not serve yet
        self._watching: asyncio.Task[None] | None = None
        self._changing: asyncio.Task[None] | None = None
        self._changing_to = ""

    def start(self) -> None:
        self._watching = asyncio.create_task(self._watch(), name="watch manifest")

    def stop(self) -> None:
        """Take no more changes, and give up the one under way."""
        for task in (self._watching, self._changing):
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        self.stop()
        tasks = [task for task in (self._watching, self._changing) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self._look()
            except Exception:  # noqa: BLE001 - logged; whatever is wrong, the next look may be right
                _log.exception("the manifest could not be looked at")

    async def _look(self) -> None:
        content = await asyncio.to_thread(_content, self._path)
        if content == self._seen:
            return
        await asyncio.sleep(_SETTLE_SECONDS)
        if await asyncio.to_thread(_content, self._path) != content:
            return
        self._seen = content
        try:
            loaded = await asyncio.to_thread(manifest.read, self._path)
        except ManifestError as error:
            self._refuse(str(error))
            return
        self._seen = loaded.digest
        if loaded.group.metadata.name != self._rollout.group.metadata.name:
            self._refuse("metadata.name cannot change while the gateway runs")
            return
        self._refused = None
        if self._changing is not None and self._changing_to == loaded.digest:
            self._tell()  # it was unreadable or invalid for a moment
            return
        await self._give_up()
        self._changing_to = loaded.digest
        self._changing = asyncio.create_task(self._change(loaded), name="roll out")

    def _refuse(self, reason: str) -> None:
        self._refused = reason
        self._tell()
        self._records.metrics.config_reloaded("rejected")
        self._records.events.config(to="rejected", reason=reason)

    def _tell(self) -> None:
        self._config.rejected = self._refused or self._stuck

    async def _give_up(self) -> None:
        task, self._changing = self._changing, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._stuck = None

    async def _change(self, loaded: Manifest) -> None:
        try:
            await self._rollout.apply(
                loaded.group,
                lambda reason: self._failed(
                    loaded, f"none of the new members became ready: {reason}"
                ),
            )
        except Exception:  # noqa: BLE001 - logged and told; what serves serves on
            _log.exception("a valid configuration could not be applied")
            self._failed(loaded, "an internal error of the gateway; its log says more")
            return
        config = self._config
        config.digest = loaded.digest
        config.generation = loaded.group.metadata.generation
        config.loaded_at = time.time()
        self._stuck = None
        self._changing_to = ""
        self._tell()
        self._records.metrics.config_reloaded("applied")
        self._records.events.config(to="applied", hash=loaded.digest)

    def _failed(self, loaded: Manifest, reason: str) -> None:
        self._stuck = reason
        self._tell()
        self._records.metrics.config_reloaded("failed")
        self._records.events.config(to="failed", reason=reason, hash=loaded.digest)


def _content(path: str) -> str:
    """Equal for equal content, and then the digest of the manifest in it."""
    try:
        with open(path, "rb") as file:
            return f"sha256:{hashlib.sha256(file.read(manifest.MAX_BYTES + 1)).hexdigest()}"
    except OSError as error:
        return f"unreadable: {error}"
