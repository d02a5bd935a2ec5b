"""Making a connection to a member: resolve, connect, TLS, within one time limit."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http_connection import Connection, Keeper
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.members.http_address import Address

#: A time limit that fires this much late (seconds) proves nothing about the member.
LATE_SECONDS: Final = 1.0
#: The gateway itself has run out of something; the member is not to blame.
_OUR_FAULT: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
)
#: Family and what `connect` takes for it.
_SocketAddress = tuple[socket.AddressFamily, tuple[object, ...]]


class Dialler:
    """Connects to one origin. Look-ups are single-flight: a name server that hangs holds one
    thread of the resolver, however many calls wait for the name."""

    def __init__(
        self,
        address: Address,
        *,
        connect_seconds: float,
        tls: Callable[[], ssl.SSLContext],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._address = address
        self._seconds = connect_seconds
        self._tls = tls
        self._loop = loop
        self._lookup: asyncio.Task[list[_SocketAddress]] | None = None

    async def dial(self, keeper: Keeper) -> Connection:
        """Raises `MemberFailure` (refused, connect_timeout, tls; stalled when we are to blame)."""
        due = self._loop.time() + self._seconds
        where = f"{self._address.scheme}://{self._address.host_field}"
        try:
            async with asyncio.timeout_at(due):
                sock = await self._open_socket(due)
                return await self._wrap(sock, keeper)
        except TimeoutError:
            late = self._loop.time() - due > LATE_SECONDS
            reason = f"no connection to {where} within {self._seconds:g} s"
            failure = MemberFailure(Failure.CONNECT_TIMEOUT, reason, sent=False, late=late)
        except ssl.SSLError as fault:
            cause = fault.verify_message if isinstance(fault, ssl.SSLCertVerificationError) else ""
            reason = f"TLS with {where} failed: {cause or fault.reason or 'handshake failure'}"
            failure = MemberFailure(Failure.TLS, reason, sent=False)
        except socket.gaierror:
            reason = f"the name of {where} cannot be resolved"
            failure = MemberFailure(Failure.REFUSED, reason, sent=False)
        except UnicodeError:
            reason = f"the name of {where} is no valid name"
            failure = MemberFailure(Failure.REFUSED, reason, sent=False)
        except OSError as fault:
            kind = Failure.STALLED if fault.errno in _OUR_FAULT else Failure.REFUSED
            cause = os.strerror(fault.errno) if fault.errno else "connection lost"
            failure = MemberFailure(kind, f"cannot connect to {where}: {cause}", sent=False)
        raise failure

    async def close(self) -> None:
        if self._lookup is not None:
            self._lookup.cancel()
            await asyncio.wait([self._lookup])

    async def _open_socket(self, due: float) -> socket.socket:
        addresses = await self._resolve()
        for index, (family, address) in enumerate(addresses):
            left = len(addresses) - index
            now = self._loop.time()
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                # Every address gets its share of the time, so that one that hangs is survived.
                async with asyncio.timeout_at(now + (due - now) / left):
                    await self._loop.sock_connect(sock, address)
            except BaseException as fault:
                sock.close()
                if left == 1 or not isinstance(fault, OSError):
                    raise
            else:
                return sock
        raise socket.gaierror("the name has no address")

    async def _wrap(self, sock: socket.socket, keeper: Keeper) -> Connection:
        encrypted = self._address.scheme == "https"
        try:
            _, connection = await self._loop.create_connection(
                lambda: Connection(keeper, sock, self._loop),
                sock=sock,
                ssl=self._tls() if encrypted else None,
                server_hostname=self._address.host if encrypted else None,
            )
        except ConnectionError as fault:
            if not encrypted:
                raise
            # The TCP connection stood: whoever ended it did not like the handshake.
            reason = f"{self._address.host_field} ended the connection during the TLS handshake"
            raise MemberFailure(Failure.TLS, reason, sent=False) from fault
        return connection

    async def _resolve(self) -> list[_SocketAddress]:
        host, port = self._address.host, self._address.port
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                socket.inet_pton(family, host)
            except OSError:
                continue
            return [(family, (host, port))]
        if self._lookup is None:
            self._lookup = self._loop.create_task(self._look_up(host, port))
            self._lookup.add_done_callback(self._looked_up)
        return await asyncio.shield(self._lookup)

    async def _look_up(self, host: str, port: int) -> list[_SocketAddress]:
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in found]

    def _looked_up(self, lookup: asyncio.Task[list[_SocketAddress]]) -> None:
        self._lookup = None
        if not lookup.cancelled():
            lookup.exception()  # those who waited may be gone
