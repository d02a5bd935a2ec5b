"""Two ways to a pod's `/status`: at its address, or through the API server's proxy to pods.

In a cluster pods are asked directly. From a laptop their addresses lead nowhere; the API server
can reach them, and whoever may use `pods/proxy` may ask it to.
"""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote

import aiohttp

from mcpgroup_operator.errors import ApiError
from mcpgroup_operator.polling import PodUnreachableError
from mcpgroup_operator.reports import MAX_BYTES

if TYPE_CHECKING:
    from mcpgroup_operator.polling import Target

_PATH: Final = "/status"
_LIMIT: Final = MAX_BYTES + 1
"""One byte more than may be read, so that too long is seen to be."""


class DirectAccess:
    """Asks pods at their addresses. To be closed on the loop that it was made on.

    Every poll has a connection of its own: one that is kept could lead to a pod that is gone, and
    two thousand of them would be open for nothing most of the time.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True, use_dns_cache=False),
            timeout=aiohttp.ClientTimeout(total=None),  # the poller's
            headers={"Accept": "application/json", "User-Agent": "mcpgroup-operator"},
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding",),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,  # a proxy of the operator's environment knows nothing of pods
        )

    async def __call__(self, target: Target) -> bytes:
        """The body of the answer, or the part of it that is already too long."""
        try:
            url = f"http://{_host(target.ip)}:{self._port}{_PATH}"
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status != 200:
                    raise PodUnreachableError(f"it answers with HTTP {response.status}")
                return await _body(response)
        except aiohttp.ClientConnectorError as error:
            raise PodUnreachableError(_refusal(error.os_error)) from None
        except (aiohttp.ClientError, ValueError):
            raise PodUnreachableError("it gives no proper answer") from None

    async def close(self) -> None:
        """Let go of connections."""
        await self._session.close()


class RawGet(Protocol):
    """Reads a path of the API server, at most `limit` bytes of it. Raises `ApiError`."""

    async def __call__(self, path: str, seconds: float, limit: int, /) -> bytes: ...


class ProxiedAccess:
    """Asks pods through the API server. `/status` needs no token, which the proxy would strip."""

    def __init__(self, raw_get: RawGet, port: int, *, seconds: float) -> None:
        self._raw_get = raw_get
        self._port = port
        self._seconds = seconds

    async def __call__(self, target: Target) -> bytes:
        """The body of the answer, or the part of it that is already too long."""
        namespace, name = quote(target.namespace, safe=""), quote(target.name, safe="")
        path = f"/api/v1/namespaces/{namespace}/pods/http:{name}:{self._port}/proxy{_PATH}"
        try:
            return await self._raw_get(path, self._seconds, _LIMIT)
        except ApiError as error:
            code = f"HTTP {error.status}" if error.status else "no answer"
            raise PodUnreachableError(f"{code} through the API server") from None


async def _body(response: aiohttp.ClientResponse) -> bytes:
    chunks, length = [], 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        length += len(chunk)
        if length >= _LIMIT:
            break
    return b"".join(chunks)


def _host(ip: str) -> str:
    """As it stands in a URL. Raises `ValueError` for what is no address."""
    address = ipaddress.ip_address(ip)
    return f"[{address.compressed}]" if address.version == 6 else address.compressed


def _refusal(error: OSError) -> str:
    """What the system says, without the address that asyncio puts into it."""
    return os.strerror(error.errno).lower() if error.errno else "it cannot be connected to"
