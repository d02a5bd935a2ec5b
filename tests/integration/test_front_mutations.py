"""Ten thousand damaged requests: no 500, no hang, and the front serves on."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.harness.front import Stage, Wire, request, staged, until
from tests.harness.mutations import damaged_request

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
    except asyncio.IncompleteReadError:
        return 0  # the head never ended
    finally:
        wire.abort()


@pytest.mark.timeout(110)
async def test_ten_thousand_mutations_of_valid_requests_give_no_500_and_no_hang(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rng = random.Random(SEED)  # noqa: S311  # repeatable on purpose
    async with staged(
        body_seconds=BODY_SECONDS, head_seconds=BODY_SECONDS, max_sessions=100_000
    ) as stage:
        session_id = await stage.session()
        cases = [damaged_request(rng, session_id) for _ in range(MUTATIONS)]
        queue = iter(cases)
        statuses: dict[int, int] = {}

        async def client() -> None:
            for data in queue:
                status = await try_one(stage, data)
                assert status < 500, (status, data)
                statuses[status] = statuses.get(status, 0) + 1

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(client())
        assert sum(statuses.values()) == MUTATIONS
        # The damage was real, but not all of it: both sides of the line were tried.
        assert statuses[200] > 500
        assert statuses[400] > 500
        assert (await stage.ask(request("ping", 1), mcp_session_id=session_id)).status == 200
        await until(lambda: stage.front.in_flight == 0)
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]
