"""`python -m tests.controlplane.soak 1000`: the operator with so many groups, in figures.

A control plane of its own without controllers: no pods. Exits with 1 when a bound does not hold.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.controlplane import binaries
from tests.controlplane.crowd import Figures, create, edit, is_settled, settled
from tests.controlplane.operating import Operator
from tests.controlplane.private import PrivatePlane

_NAMESPACE: Final = "default"
_CREATION_SECONDS: Final = 1800
_RESTART_SECONDS: Final = 60.0
_REQUESTS: Final = 6.0
_MEGABYTES: Final = 300.0
_EDITS: Final = 50.0


async def soak(count: int) -> list[str]:
    """What did not hold."""
    with tempfile.TemporaryDirectory(prefix="mcpgroup-soak-") as folder:
        async with PrivatePlane(binaries.control_plane(), Path(folder)) as private:
            _, cluster = await private.start(controllers=False)
            async with cluster.api(_NAMESPACE) as api, Operator(cluster, _NAMESPACE) as operator:
                await operator.metric_reaches("leader", 1)
                empty = await Figures.of(operator)
                began = time.monotonic()
                await create(api, count)
                await settled(api, operator, count, within=_CREATION_SECONDS)
                made = await Figures.of(operator)
                print(f"creation of {count} groups: {time.monotonic() - began:.1f} s, {made}")
                await operator.terminate()
                await operator.start()
                took = operator.ready_after
                took += await settled(api, operator, count, within=10 * _RESTART_SECONDS)
                again = await Figures.of(operator)
                requests = (again.requests - empty.requests) / count
                print(f"restart: {took:.1f} s, {requests:.2f} requests a group, {again}")
                began = time.monotonic()
                changed = await edit(api, count, rate=_EDITS, seconds=10)
                edited = time.monotonic() - began
                while not await is_settled(api, count):  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
                after = await Figures.of(operator)
                print(
                    f"500 edits of {len(changed)} groups: {edited:.1f} s, settled after"
                    f" {time.monotonic() - began - edited:.1f} s more, {after}"
                )
    bounds = {
        f"restart within {_RESTART_SECONDS:g} s": took <= _RESTART_SECONDS,
        f"{_REQUESTS:g} requests a group": requests <= _REQUESTS,
        f"{_MEGABYTES:g} MB": after.megabytes <= _MEGABYTES,
    }
    return [bound for bound, holds in bounds.items() if not holds]


def main(arguments: list[str]) -> None:
    count = int(arguments[0]) if arguments else 1000
    broken = asyncio.run(soak(count))
    for bound in broken:
        print(f"does not hold: {bound}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
