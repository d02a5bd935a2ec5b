"""Ten thousand damaged requests: no 500, no hang, and the front serves on."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
from tests.harness.front import Stage, Wire, staged, until
from tests.harness.messages import request
from tests.harness.mutations import damaged_modern_request, damaged_request, send_damaged_requests

from mcpgroup_gateway.wire.param_headers import ParamHeader

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 20261130
MUTATIONS = 10_000
CLIENTS = 16
#: A damaged length lets the server wait for a body that never comes; this bounds that wait.
BODY_SECONDS = 0.05


async def try_one(stage: Stage, data: bytes) -> int:
    """Send it and take the status of the first answer; 0 when the connection was closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
    wire = Wire(reader, writer)
    try:
        wire.send(data)
        status, _ = await wire.head()
        if status == 100:
            status, _ = await wire.head()
        return status
    except (asyncio.IncompleteReadError, ConnectionError):
        # The head never ended; or under load it came so late that the connection had been closed
        # as overdue, which answers what is sent to it with a reset.
        return 0
    finally:
        wire.abort()


@pytest.mark.timeout(110)
@pytest.mark.parametrize("damage", [damaged_request, damaged_modern_request])
async def test_ten_thousand_mutations_of_valid_requests_give_no_500_and_no_hang(
    damage: Callable[[random.Random, str], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(SEED)  # noqa: S311  # repeatable on purpose
    async with staged(
        body_seconds=BODY_SECONDS, head_seconds=BODY_SECONDS, max_sessions=100_000
    ) as stage:
        session_id = await stage.session()
        stage.service.declared = (ParamHeader(("region",), "Region", "string"),)
        await send_damaged_requests(
            rng, session_id, MUTATIONS, CLIENTS, lambda data: try_one(stage, data), damage
        )
        assert (await stage.ask(request("ping", 1), mcp_session_id=session_id)).status == 200
        await until(lambda: stage.front.in_flight == 0)
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]
