"""The end of a replica after SIGTERM: serve what still comes, end what runs (DESIGN section 8)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mcpgroup_gateway.front.front import Front
    from mcpgroup_gateway.serving.service import GroupService

#: The replica ends when nothing arrived for so long; new calls are refused in the last so many
#: seconds.
_QUIET_SECONDS: Final = 2.0
_REFUSE_SECONDS: Final = 2.0
#: How long the answers of what was ended may take to leave.
_ANSWER_SECONDS: Final = 2.0


async def drain(front: Front, service: GroupService, seconds: float) -> None:
    """Return once nothing is in flight and nothing arrives, at the latest after `seconds`.

    What runs then is answered; the members are still up.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    service.draining = True
    front.begin_drain()
    service.end_listening()
    began, refusing = time.monotonic(), False
    while (now := loop.time()) < end:
        idle_since = front.idle_since
        quiet_since = None if idle_since is None else max(idle_since, began)
        if quiet_since is not None and time.monotonic() - quiet_since >= _QUIET_SECONDS:
            break
        if end - now <= _REFUSE_SECONDS and not refusing:
            refusing = True
            front.refuse()
        await asyncio.sleep(0.05)
    service.end_calls()
    answered = loop.time() + _ANSWER_SECONDS
    while loop.time() < answered:
        if not front.in_flight:
            break
        await asyncio.sleep(0.02)
