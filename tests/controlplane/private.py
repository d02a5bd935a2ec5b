"""Control planes of one test, which it may stop, kill and start again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self

from tests.controlplane.cluster import Cluster
from tests.controlplane.plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class PrivatePlane(contextlib.AsyncExitStack):
    """`plane, cluster = await private.start()`: some 5 s. Each ends with the test."""

    def __init__(self, programs: Mapping[str, Path], folder: Path) -> None:
        super().__init__()
        self._programs = programs
        self._folder = folder
        self._count = 0

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    async def start(self, *, controllers: bool = True) -> tuple[ControlPlane, Cluster]:
        """`controllers=False`: nobody makes pods of Deployments or collects garbage."""
        self._count += 1
        folder = self._folder / f"private-{self._count}"
        plane = ControlPlane(folder, self._programs, controllers=controllers)
        await self.enter_async_context(plane)
        cluster = Cluster.of_plane(folder, self._programs["kubectl"], folder)
        return plane, cluster
