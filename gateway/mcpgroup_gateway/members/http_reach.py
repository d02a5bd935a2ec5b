"""How one HTTP endpoint is reached, whatever is spoken there: URLs, headers, TLS and pools.

HttpReach       used by the connectors of both HTTP transports
tries_next      whether another URL of the member may do better after a failed start
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final, TypeVar

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http_address import RESERVED_FIELDS, Address, check_field
from mcpgroup_gateway.members.http_dialling import LATE_SECONDS
from mcpgroup_gateway.members.http_pool import Pool
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

_Session = TypeVar("_Session")

CONNECT_SECONDS: Final = 2.0
RESPONSE_LIMIT: Final = 8 * 1024 * 1024
_TRY_NEXT: Final = frozenset({Failure.REFUSED, Failure.CONNECT_TIMEOUT, Failure.TLS, Failure.RESET})


class HttpReach:
    """`url`, then `fallback_urls` in order, are tried for a new session.

    `headers` are sent with every request; a callable is asked again for every session, so that
    rotated secrets are used. `ca_pem` replaces the system's authorities. `connect_seconds` bounds
    resolving, connecting and TLS; `response_limit` is bytes a message.

    Raises `ValueError` for a URL, header or authority that cannot work; its text has no secrets.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        fallback_urls: Sequence[str] = (),
        headers: Sequence[tuple[str, str]] | Callable[[], Sequence[tuple[str, str]]] = (),
        ca_pem: bytes | None = None,
        insecure_skip_verify: bool = False,
        connect_seconds: float = CONNECT_SECONDS,
        response_limit: int = RESPONSE_LIMIT,
    ) -> None:
        self.name = name
        self.response_limit = response_limit
        self._addresses = [Address.parse(each) for each in (url, *fallback_urls)]
        self._headers = headers
        self._ca_pem = ca_pem
        self._verify = not insecure_skip_verify
        self._connect_seconds = connect_seconds
        self._pools: dict[tuple[str, str, int], Pool] = {}
        self._tls: ssl.SSLContext | None = None
        if not callable(headers):
            check_headers(headers)
        if ca_pem is not None:
            self._tls_context()

    async def first(
        self, attempt: Callable[[Address], Awaitable[_Session]], deadline: float
    ) -> _Session:
        """The session that `attempt` opened on the first URL that works, within `deadline` seconds.

        Raises `MemberFailure`, never `sent`: that of the last URL that was tried.
        """
        loop = asyncio.get_running_loop()
        due = loop.time() + deadline
        try:
            async with asyncio.timeout_at(due):
                return await self._walk(attempt)
        except TimeoutError:
            late = loop.time() - due > LATE_SECONDS
            reason = f"{self.name} opened no session within {deadline:g} s"
            failure = MemberFailure(Failure.START_FAILED, reason, sent=False, late=late)
        except MemberFailure as fault:
            failure = fault
            failure.sent = False
        raise failure

    async def _walk(self, attempt: Callable[[Address], Awaitable[_Session]]) -> _Session:
        for address in self._addresses[:-1]:
            try:
                return await attempt(address)
            except MemberFailure as failure:
                if not tries_next(failure):
                    raise
        return await attempt(self._addresses[-1])

    def headers(self) -> list[tuple[str, str]]:
        """What is sent with every request of a new session. Raises `MemberFailure`."""
        if not callable(self._headers):
            return list(self._headers)
        headers = list(self._headers())
        try:
            check_headers(headers)
        except ValueError as fault:
            raise MemberFailure(Failure.START_FAILED, str(fault), sent=False) from fault
        return headers

    def pool(self, address: Address) -> Pool:
        """The connections to the origin of an address."""
        pool = self._pools.get(address.origin)
        if pool is None:
            pool = self._pools[address.origin] = Pool(
                address,
                connect_seconds=self._connect_seconds,
                tls=self._tls_context,
                loop=asyncio.get_running_loop(),
            )
        return pool

    async def close(self) -> None:
        """Close the pools; sessions must have been closed before."""
        pools = tuple(self._pools.values())
        self._pools.clear()
        for pool in pools:
            await pool.close()

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            try:
                authorities = None if self._ca_pem is None else self._ca_pem.decode("ascii")
                context = ssl.create_default_context(cadata=authorities)
            except (ssl.SSLError, UnicodeDecodeError, ValueError) as fault:
                raise ValueError("the CA is not a PEM certificate") from fault
            if not self._verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            context.set_alpn_protocols(["http/1.1"])
            self._tls = context
        return self._tls


def tries_next(failure: MemberFailure) -> bool:
    """Whether it says that this URL does not work, rather than something about the member."""
    server_error = failure.status is not None and failure.status >= 500
    return server_error or failure.failure in _TRY_NEXT


def check_headers(headers: Sequence[tuple[str, str]]) -> None:
    """Raises `ValueError` for a header that cannot be sent or that belongs to the protocol."""
    for name, value in headers:
        check_field(name, value)
        if name.lower() in RESERVED_FIELDS:
            raise ValueError(f"the header {name} belongs to the protocol and cannot be configured")
