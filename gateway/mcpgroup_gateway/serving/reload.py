"""Watches the content of the manifest and of Secrets, and has each valid change carried out
(DESIGN section 8)."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from mcpgroup_api import config_hash
from mcpgroup_gateway import manifest
from mcpgroup_gateway.manifest import ManifestError

if TYPE_CHECKING:
    from mcpgroup_gateway.manifest import Manifest
    from mcpgroup_gateway.serving.records import Records
    from mcpgroup_gateway.serving.rollout import Rollout
    from mcpgroup_gateway.serving.secret_watch import SecretWatch
    from mcpgroup_gateway.serving.status import ConfigState

_log = logging.getLogger(__name__)

#: How often the content is looked at: a change is taken within a second.
_LOOK_SECONDS = 0.5
#: Not everybody writes a file in one step: what is acted upon was the same twice.
_SETTLE_SECONDS = 0.1
#: Characters of a log line that names fields.
_MAX_TEXT = 1000


class Reload:
    """Owns two tasks: one looks at files, one carries a change out, which may take its time.

    What serves and what was refused is told in `config`. A change of the file gives up the one
    before it that is still being carried out; an invalid file does not. The file may be a link
    that is made to point elsewhere, as in a volume of Kubernetes: only content counts. Standard
    input is read once. `rendered`: see `manifest`.

    Members whose Secrets have new values are replaced by and by; where a replacement does not
    become ready, the old one serves on, and event and log say so.
    """

    def __init__(
        self,
        path: str,
        rollout: Rollout,
        secrets: SecretWatch,
        config: ConfigState,
        records: Records,
        *,
        rendered: bool = False,
    ) -> None:
        self._path = path
        self._rendered = rendered
        self._rollout = rollout
        self._secrets = secrets
        self._config = config
        self._records = records
        self._seen = config.digest
        self._refused: str | None = None  # why the file is not taken
        self._stuck: str | None = None  # why what was taken does not serve yet
        self._told_ignored: tuple[str, ...] = ()
        self._watching: asyncio.Task[None] | None = None
        self._changing: asyncio.Task[None] | None = None
        self._changing_to = ""
        self._is_renewing = False

    def start(self) -> None:
        """Watch the files from now on."""
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
            for look in (self._look, self._look_at_secrets):
                try:
                    await look()
                except Exception:  # noqa: BLE001 - logged; the next look may be right
                    _log.exception("the manifest and its Secrets could not be looked at")

    async def _look_at_secrets(self) -> None:
        rotated = await self._secrets.look()
        if not rotated:
            return
        to = f"new values of Secrets: {sorted(rotated.items())}"
        if self._changing_to == to:
            return  # that is being done, or cannot be done
        if self._changing is not None and not self._changing.done():
            if not self._is_renewing:
                return  # first the change of the file
            await self._give_up()
        self._changing_to, self._is_renewing = to, True
        self._changing = asyncio.create_task(self._renew(sorted(rotated)), name="renew members")

    async def _look(self) -> None:
        if self._path == manifest.STDIN:
            return
        content = await asyncio.to_thread(_content, self._path)
        if content == self._seen:
            return
        await asyncio.sleep(_SETTLE_SECONDS)
        if await asyncio.to_thread(_content, self._path) != content:
            return
        self._seen = content
        try:
            loaded = await asyncio.to_thread(manifest.read, self._path, rendered=self._rendered)
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
        self._changing_to, self._is_renewing = loaded.digest, False
        self._changing = asyncio.create_task(self._change(loaded), name="roll out")

    def _refuse(self, reason: str) -> None:
        self._refused = reason
        self._tell()
        self._records.metrics.config_reloaded("rejected")
        self._records.events.config(to="rejected", reason=reason)

    def tell_ignored(self) -> None:
        """Log the fields that the configuration holds and this gateway does not know, once."""
        ignored = self._config.ignored
        if ignored and ignored != self._told_ignored:
            fields = ", ".join(ignored)[:_MAX_TEXT]
            _log.warning("fields that this gateway does not know are ignored: %s", fields)
            self._records.events.config(to="ignored", reason=f"unknown fields: {fields}")
        self._told_ignored = ignored

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
        self._config.take(loaded, time.time())
        self._stuck = None
        self._changing_to = ""
        self._tell()
        self._records.metrics.config_reloaded("applied")
        self._records.events.config(to="applied", hash=loaded.digest)
        self.tell_ignored()
        for note in loaded.for_pods:
            _log.info("%s", note.at(loaded.source))

    async def _renew(self, members: list[str]) -> None:
        """What serves, with the values of today."""
        events, digest = self._records.events, self._config.digest
        because = f"new values of Secrets for {', '.join(members)}"

        def stuck(reason: str) -> None:
            text = f"{because}, with which not all become ready: {reason}"
            _log.warning("%s", text)
            events.config(to="failed", reason=text, hash=digest)

        try:
            await self._rollout.renew(members, stuck)
        except Exception:  # noqa: BLE001 - logged and told; what serves serves on
            _log.exception("new values of Secrets could not be applied")
            events.config(to="failed", reason=f"{because}: an internal error", hash=digest)
            return
        self._changing_to = ""
        events.config(to="applied", reason=because, hash=digest)

    def _failed(self, loaded: Manifest, reason: str) -> None:
        self._stuck = reason
        self._tell()
        self._records.metrics.config_reloaded("failed")
        self._records.events.config(to="failed", reason=reason, hash=loaded.digest)


def _content(path: str) -> str:
    """Equal for equal content, and then the digest of the manifest in it."""
    try:
        with open(path, "rb") as file:
            return config_hash(file.read(manifest.MAX_BYTES + 1))
    except OSError as error:
        return f"unreadable: {error}"
