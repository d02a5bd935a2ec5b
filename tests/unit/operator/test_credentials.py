"""What a request carries, and what becomes of it when that cannot be read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes.aio.client import Configuration
from kubernetes.aio.config.config_exception import ConfigException

from mcpgroup_operator.connection import Credentials


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
