"""How the API server is reached: from a kubeconfig file, or from inside a pod.

`kubernetes.aio` reads both and keeps tokens fresh. Two loops use it, ours and the one that kopf
runs in, and each loads a configuration of its own: what refreshes a token is bound to one loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.config_exception import ConfigException

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse, ClientSession

_CONNECTIONS = 100


class NoClusterError(Exception):
    """Neither a usable kubeconfig nor the files of a pod; the text says what is wrong."""


async def load(kubeconfig: Path | None) -> Configuration:
    """The configuration of a kubeconfig file or, without one, of the pod around this process.

    Raises `NoClusterError`.
    """
    configuration = Configuration()
    try:
        if kubeconfig is not None:
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=str(kubeconfig),
                client_configuration=configuration,
                persist_config=False,
            )
        else:
            config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
    except ConfigException as error:
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "this is no pod (--kubeconfig FILE?)"
        raise NoClusterError(f"{where}: {error}") from error
    configuration.connection_pool_maxsize = _CONNECTIONS
    # A request that failed is retried by who knows whether it is still wanted.
    configuration.retries = None
    return configuration


class Credentials:
    """What makes a request ours: a bearer token that may change, or nothing beyond TLS."""

    def __init__(self, configuration: Configuration) -> None:
        self._api = ApiClient(configuration)

    async def headers(self) -> dict[str, str]:
        """To be sent with a request made now."""
        headers: dict[str, str] = {}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
        return headers

    async def close(self) -> None:
        """Close what reading a token may have opened."""
        await self._api.close()  # type: ignore[no-untyped-call]


class _Sessions(RESTClientObject):
    """Opens sessions with the TLS of a configuration."""

    def session(self, middlewares: Sequence[Any]) -> ClientSession:
        self.configuration.client_session_kwargs = {"middlewares": tuple(middlewares)}
        return self._create_pool_manager()


def open_session(
    configuration: Configuration,
    credentials: Credentials,
    observed: Callable[[ClientRequest, ClientResponse], None] | None = None,
) -> ClientSession:
    """A session whose every request carries fresh credentials. `observed` sees each answer once
    its headers are there. Must be called in the loop that uses the session."""

    async def authenticate(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        request.headers.update(await credentials.headers())
        response = await handler(request)
        if observed is not None:
            observed(request, response)
        return response

    return _Sessions(configuration).session([authenticate])
