"""How the API server is reached: from a kubeconfig file, or from inside a pod.

`kubernetes.aio` reads both and keeps tokens fresh. Two loops use it, ours and the one that kopf
runs in, and each loads a configuration of its own: what refreshes a token is bound to one loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies_environment

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.config_exception import ConfigException
from yaml import YAMLError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from aiohttp import (
        ClientHandlerType,
        ClientMiddlewareType,
        ClientRequest,
        ClientResponse,
        ClientSession,
    )

_CONNECTIONS = 100
_RENEW_SECONDS = 1.0
_LOAD_SECONDS = 60.0
"""A program that a kubeconfig names may have to ask somebody for a password."""


class NoClusterError(Exception):
    """Neither a usable kubeconfig nor the files of a pod; the text says what is wrong."""


class NoCredentialsError(aiohttp.ClientError):
    """The token cannot be read, for now: to who makes a request one failure like others."""


async def load(kubeconfig: Path | None) -> Configuration:
    """The configuration of a kubeconfig file or, without one, of the pod around this process.

    Raises `NoClusterError`.
    """
    configuration = Configuration()
    where = f"kubeconfig {kubeconfig}" if kubeconfig else "this is no pod (--kubeconfig FILE?)"
    try:
        if kubeconfig is not None:
            async with asyncio.timeout(_LOAD_SECONDS):
                await config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=str(kubeconfig),
                    client_configuration=configuration,
                    persist_config=False,
                )
        else:
            config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
    except TimeoutError as error:
        raise NoClusterError(f"{where}: no credentials within {_LOAD_SECONDS:g} s") from error
    except (ConfigException, OSError, ValueError, YAMLError) as error:
        raise NoClusterError(f"{where}: {error}") from error
    # A request that failed is retried by who knows whether it is still wanted.
    configuration.retries = None
    return configuration


class Credentials:
    """What makes a request ours: a bearer token that may change, or nothing beyond TLS."""

    def __init__(
        self,
        configuration: Configuration,
        kubeconfig: Path | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._configuration = configuration
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._api = ApiClient(configuration)
        self._renewed = clock()
        self._renewing = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        """To be sent with a request made now. Raises `NoCredentialsError`."""
        headers: dict[str, str] = {}
        try:
            await self._api.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
        except (ConfigException, OSError) as error:
            raise NoCredentialsError(f"no token: {error}") from error
        return headers

    async def renew(self, refused: Mapping[str, str]) -> bool:
        """Reads again where a token came from, once a second at most, after the API server refused
        what is in `refused`. Whether there is another one now."""
        async with self._renewing:
            if self._clock() - self._renewed >= _RENEW_SECONDS:
                self._renewed = self._clock()
                with contextlib.suppress(NoClusterError):  # it is being written
                    fresh = await load(self._kubeconfig)
                    self._configuration.api_key = fresh.api_key
                    self._configuration.refresh_api_key_hook = fresh.refresh_api_key_hook
            return await self.headers() != refused

    async def close(self) -> None:
        """Close what reading a token may have opened."""
        await self._api.close()  # type: ignore[no-untyped-call]


class _Sessions(RESTClientObject):
    """Opens sessions with the TLS of a configuration."""

    def session(self, middlewares: Sequence[Any], limit: int) -> ClientSession:
        self.maxsize = limit
        self.configuration.client_session_kwargs = {
            "middlewares": tuple(middlewares),
            # aiohttp looks for a proxy in a thread, at each request.
            "trust_env": bool(getproxies_environment()),
        }
        return self._create_pool_manager()


def open_session(
    configuration: Configuration,
    credentials: Credentials,
    *outer: ClientMiddlewareType,
    connections: int = _CONNECTIONS,
) -> ClientSession:
    """A session whose every request carries fresh credentials; `outer` middlewares see it before.
    Must be called in the loop that uses the session. Requests beyond `connections` wait; 0: never.
    """

    async def authenticate(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        sent = await credentials.headers()
        request.headers.update(sent)
        response = await handler(request)
        if response.status == 401 and await credentials.renew(sent):
            response.release()
            request.headers.update(await credentials.headers())
            response = await handler(request)
        return response

    return _Sessions(configuration).session([*outer, authenticate], connections)
