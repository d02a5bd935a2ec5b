"""Where the requests of one session go, and what their heads hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from mcpgroup_gateway import __version__
from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http1 import HttpCall
from mcpgroup_gateway.members.http_address import (
    RESERVED_FIELDS,
    check_field,
    encode_fields,
    redirect,
)
from mcpgroup_gateway.members.http_answers import EVENT_STREAM
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mcpgroup_gateway.members.http1 import Signal
    from mcpgroup_gateway.members.http_address import Address
    from mcpgroup_gateway.members.http_connection import Head
    from mcpgroup_gateway.members.http_pool import Pool

Fields = tuple[tuple[str, str], ...]

#: What asks for an event stream with GET.
STREAM_FIELDS: Final[Fields] = (("Accept", EVENT_STREAM), ("Cache-Control", "no-store"))
_POST_FIELDS: Final = (
    ("Content-Type", "application/json"),
    ("Accept", "application/json, text/event-stream"),
)


class Pools(Protocol):
    """Has the connections to every origin of a member."""

    def pool(self, address: Address) -> Pool: ...


class HttpTarget:
    """One URL of a member and the header fields of every request to it.

    `fields` are the configured ones and win over ours. `moved_to` is where the member redirected
    a request while it was not yet `settle`d.
    """

    def __init__(
        self,
        pools: Pools,
        address: Address,
        fields: Sequence[tuple[str, str]],
    ) -> None:
        self.address = address
        self.moved_to: Address | None = None
        self._pools = pools
        self._pool = pools.pool(address)
        self._fields = tuple(fields)
        self._taken = RESERVED_FIELDS | {"host", "user-agent"} | {n.lower() for n, _ in fields}
        self._protocol_fields: Fields = ()
        self._settled = False
        self._post_head = self._head("POST", address, _POST_FIELDS)

    def speak(self, protocol_fields: Fields) -> None:
        """Send these fields with every request from now on."""
        self._protocol_fields = protocol_fields
        self._post_head = self._head("POST", self.address, _POST_FIELDS)

    def settle(self) -> None:
        """Send what follows straight to where the member is."""
        self._settled = True
        if self.moved_to is not None:
            self.address = self.moved_to
            self._pool = self._pools.pool(self.address)
        self._post_head = self._head("POST", self.address, _POST_FIELDS)

    def sendable(self, fields: Iterable[tuple[str, str]]) -> Fields:
        """Those of a client's fields that can be sent: not ours, not configured, well formed."""
        found = []
        for name, value in fields:
            if name.lower() in self._taken:
                continue
            try:
                check_field(name, value)
            except ValueError:
                continue
            found.append((name, value))
        return tuple(found)

    def post(
        self, body: bytes, signal: Signal, *, safe: bool, fresh: bool = False, fields: Fields = ()
    ) -> HttpCall:
        """Send a message; the bytes are written at once when there is a connection for it."""
        head = self._post_head + encode_fields(fields) if fields else self._post_head
        extra = _POST_FIELDS + fields
        call = HttpCall(
            self._pool,
            b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body),
            signal,
            safe=safe,
            fresh=fresh,
            redirect=lambda head: self._redirected(head, "POST", extra, body),
        )
        call.start()
        return call

    def call(self, method: str, fields: Fields, signal: Signal, *, fresh: bool = False) -> HttpCall:
        """Send a request without a body."""
        call = HttpCall(
            self._pool,
            self._head(method, self.address, fields) + b"\r\n",
            signal,
            safe=True,
            fresh=fresh,
            redirect=lambda head: self._redirected(head, method, fields, None),
        )
        call.start()
        return call

    def _head(self, method: str, address: Address, extra: Fields) -> bytes:
        """A request head without its closing line."""
        configured = {name.lower() for name, _ in self._fields}
        own = [("Host", address.host_field), ("User-Agent", f"mcpgroup/{__version__}")]
        if address.authorization is not None:
            own.append(("Authorization", address.authorization))
        fields = [field for field in own if field[0].lower() not in configured]
        fields += [*self._fields, *extra, *self._protocol_fields]
        return f"{method} {address.target} HTTP/1.1\r\n".encode("ascii") + encode_fields(fields)

    def _redirected(
        self, head: Head, method: str, extra: Fields, body: bytes | None
    ) -> tuple[Pool, bytes]:
        try:
            address = redirect(self.address, head.field(b"location"))
        except ValueError as fault:
            raise MemberFailure(
                Failure.HTTP_ERROR, str(fault), sent=True, status=head.status
            ) from fault
        request = self._head(method, address, extra)
        if body is not None:
            request += b"Content-Length: %d\r\n" % len(body)
        if not self._settled:
            self.moved_to = address
        return self._pools.pool(address), request + b"\r\n" + (body or b"")
