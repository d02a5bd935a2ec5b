"""What a request carries, and what becomes of it when that cannot be read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config.config_exception import ConfigException
from tests.unit.operator.virtual_time import VirtualLoop, run

from mcpgroup_operator import connection
from mcpgroup_operator.connection import Credentials, NoClusterError


def configuration(hook: Any = None) -> Configuration:
    found = Configuration()
    found.api_key = {"BearerToken": "bearer abc"}
    found.refresh_api_key_hook = hook
    return found


async def headers(found: Configuration) -> dict[str, str]:
    credentials = Credentials(found, Path("/nowhere"))
    try:
        return await credentials.headers()
    finally:
        await credentials.close()


def test_a_request_carries_the_token() -> None:
    assert asyncio.run(headers(configuration())) == {"authorization": "bearer abc"}


@pytest.mark.parametrize(
    "fault", [ConfigException("Token file exists but empty."), FileNotFoundError("no token")]
)
def test_a_token_that_cannot_be_read_for_a_moment_is_a_request_that_failed(
    fault: Exception,
) -> None:
    """And nothing worse: who asks tries again, as with any request."""

    def hook(_: Configuration) -> None:
        raise fault

    with pytest.raises(aiohttp.ClientError, match=str(fault)):
        asyncio.run(headers(configuration(hook)))


def test_a_program_that_gives_no_credentials_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hangs(**_: Any) -> None:
        await asyncio.sleep(3600)

    async def scene(loop: VirtualLoop) -> None:
        before = loop.time()
        with pytest.raises(NoClusterError, match="kubeconfig /nowhere: no credentials within 60 s"):
            await connection.load(Path("/nowhere"))
        assert loop.time() - before == 60

    monkeypatch.setattr(config, "load_kube_config", hangs)
    run(scene)
