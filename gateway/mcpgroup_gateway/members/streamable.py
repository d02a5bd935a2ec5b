"""The connector for members over streamable HTTP: URLs, headers, TLS and pools of one endpoint."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http_address import RESERVED_FIELDS, Address, check_field
from mcpgroup_gateway.members.http_dialling import LATE_SECONDS
from mcpgroup_gateway.members.http_pool import Pool
from mcpgroup_gateway.members.streamable_session import StreamableUpstream
from mcpgroup_gateway.members.upstream import GATEWAY_IDENTITY, MemberFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from mcpgroup_gateway.members.upstream import ClientIdentity
    from mcpgroup_gateway.wire.envelope import Message

CONNECT_SECONDS: Final = 2.0
RESPONSE_LIMIT: Final = 8 * 1024 * 1024
#: Failures of `initialize` after which the next URL is tried.
_TRY_NEXT: Final = frozenset({Failure.REFUSED, Failure.CONNECT_TIMEOUT, Failure.TLS, Failure.RESET})


class StreamableConnector:
    """Opens sessions with one HTTP endpoint, see `members.upstream.Connector`.

    `url`, then `fallback_urls` in order, are tried for a new session; it stays on the URL that it
    opened. `headers` are sent with every request; a callable is asked again for every session, so
    that rotated secrets are used. `ca_pem` replaces the system's authorities. `connect_seconds`
    bounds resolving, connecting and TLS; `response_limit` is bytes a message.

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

    async def open(
        self,
        *,
        on_notification: Callable[[Message], None],
        on_lost: Callable[[MemberFailure], None],
        control: bool,
        deadline: float,
        client: ClientIdentity = GATEWAY_IDENTITY,
        on_request: Callable[[Message], None] | None = None,
    ) -> StreamableUpstream:
        loop = asyncio.get_running_loop()
        due = loop.time() + deadline
        fields = self._current_headers()

        async def attempt(address: Address) -> StreamableUpstream:
            session = StreamableUpstream(
                self,
                address,
                fields,
                loop,
                on_notification=on_notification,
                on_lost=on_lost,
                on_request=on_request,
            )
            try:
                await session.shake_hands(client)
            except MemberFailure:
                await session.close()
                raise
            except BaseException:
                session.abandon()
                raise
            if control or on_request is not None:
                session.start_listening()
            return session

        try:
            async with asyncio.timeout_at(due):
                return await self._first(attempt)
        except TimeoutError:
            late = loop.time() - due > LATE_SECONDS
            reason = f"{self.name} opened no session within {deadline:g} s"
            failure = MemberFailure(Failure.START_FAILED, reason, sent=False, late=late)
        except MemberFailure as fault:
            failure = fault
            failure.sent = False
        raise failure

    async def close(self) -> None:
        pools = tuple(self._pools.values())
        self._pools.clear()
        for pool in pools:
            await pool.close()

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

    async def _first(
        self, attempt: Callable[[Address], Coroutine[None, None, StreamableUpstream]]
    ) -> StreamableUpstream:
        """The session on the first URL that works; the failure of the last one that did not."""
        for address in self._addresses[:-1]:
            try:
                return await attempt(address)
            except MemberFailure as failure:
                server_error = failure.status is not None and failure.status >= 500
                if failure.failure not in _TRY_NEXT and not server_error:
                    raise
        return await attempt(self._addresses[-1])

    def _current_headers(self) -> list[tuple[str, str]]:
        if not callable(self._headers):
            return list(self._headers)
        headers = list(self._headers())
        try:
            check_headers(headers)
        except ValueError as fault:
            raise MemberFailure(Failure.START_FAILED, str(fault), sent=False) from fault
        return headers

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


def check_headers(headers: Sequence[tuple[str, str]]) -> None:
    """Raises `ValueError` for a header that cannot be sent or that belongs to the protocol."""
    for name, value in headers:
        check_field(name, value)
        if name.lower() in RESERVED_FIELDS:
            raise ValueError(f"the header {name} belongs to the protocol and cannot be configured")
