"""What we say in a session over the old HTTP+SSE transport: requests and messages as POSTs.

Source: MCP 2024-11-05, transports, "HTTP with SSE".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcpgroup_gateway import __version__
from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http1 import HttpCall, Signal
from mcpgroup_gateway.members.http_address import (
    RESERVED_FIELDS,
    Address,
    check_field,
    encode_fields,
    redirect,
)
from mcpgroup_gateway.members.http_answers import EVENT_STREAM
from mcpgroup_gateway.members.telling import failure_of_telling, refusal_of
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.wire.protocol import VERSION_HEADER

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from mcpgroup_gateway.members.http_connection import Head
    from mcpgroup_gateway.members.http_pool import Pool
    from mcpgroup_gateway.members.http_reach import HttpReach

_GET_FIELDS: Final = (("Accept", EVENT_STREAM), ("Cache-Control", "no-store"))
_POST_FIELDS: Final = (
    ("Content-Type", "application/json"),
    ("Accept", "application/json, text/event-stream"),
)


class Posting:
    """Makes the requests of one session.

    `address` is where the stream is, `fields` are the configured headers. `post` needs `begin`,
    and `version` once it is negotiated.
    """

    def __init__(
        self,
        reach: HttpReach,
        address: Address,
        fields: Sequence[tuple[str, str]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.address = address
        self._reach = reach
        self._fields = fields
        self._configured = frozenset(name.lower() for name, _ in fields)
        self._taken = RESERVED_FIELDS | self._configured | {"host", "user-agent"}
        self._loop = loop
        self._version = ""
        self._endpoint = address
        self._post_head = b""

    def begin(self, endpoint: Address, version: str = "") -> None:
        """Post to this address, naming the protocol version once there is one."""
        self._endpoint = endpoint
        self._version = version
        self._post_head = self._head("POST", endpoint, _POST_FIELDS)

    def get(self, signal: Signal) -> HttpCall:
        """Ask for the stream. On a new connection: that proves that the member takes some."""
        call = HttpCall(
            self._reach.pool(self.address),
            self._head("GET", self.address, _GET_FIELDS) + b"\r\n",
            signal,
            safe=True,
            fresh=True,
            redirect=self._redirected_get,
        )
        call.start()
        return call

    def post(
        self,
        body: bytes,
        signal: Signal,
        *,
        safe: bool,
        headers: Sequence[tuple[str, str]] = (),
    ) -> HttpCall:
        """Send a message; the bytes are written at once when there is a connection for it.

        Of `headers` those are sent that are well formed and neither the manifest's nor ours.
        """
        forwarded = self._forwarded(headers) if headers else ()
        call = HttpCall(
            self._reach.pool(self._endpoint),
            b"%b%bContent-Length: %d\r\n\r\n%b"
            % (self._post_head, encode_fields(forwarded), len(body), body),
            signal,
            safe=safe,
            redirect=lambda head: self._redirected_post(head, forwarded, body),
        )
        call.start()
        return call

    async def deliver(self, body: bytes, *, in_session: bool) -> None:
        """POST a message that is not answered.

        Raises `MemberFailure`; when the member does not react in 10 s it is `DEADLINE`.
        """
        signal = Signal(self._loop)
        call = self.post(body, signal, safe=True)
        refusal = await refusal_of(call, signal, self._loop)
        if refusal is not None:
            raise failure_of_telling(refusal, in_session=in_session)

    def _head(self, method: str, address: Address, extra: Sequence[tuple[str, str]]) -> bytes:
        """A request head without its closing line; configured fields win over ours."""
        own = [("Host", address.host_field), ("User-Agent", f"mcpgroup/{__version__}")]
        if address.authorization is not None:
            own.append(("Authorization", address.authorization))
        fields = [field for field in own if field[0].lower() not in self._configured]
        fields += [*self._fields, *extra]
        if self._version:
            fields.append((VERSION_HEADER, self._version))
        return f"{method} {address.target} HTTP/1.1\r\n".encode("ascii") + encode_fields(fields)

    def _forwarded(self, headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        found = []
        for name, value in headers:
            try:
                check_field(name, value)
            except ValueError:
                continue
            if name.lower() not in self._taken:
                found.append((name, value))
        return found

    def _redirected_get(self, head: Head) -> tuple[Pool, bytes]:
        self.address = _redirected(self.address, head)
        request = self._head("GET", self.address, _GET_FIELDS) + b"\r\n"
        return self._reach.pool(self.address), request

    def _redirected_post(
        self, head: Head, forwarded: Sequence[tuple[str, str]], body: bytes
    ) -> tuple[Pool, bytes]:
        address = _redirected(self._endpoint, head)
        extra = (*_POST_FIELDS, *forwarded, ("Content-Length", str(len(body))))
        return self._reach.pool(address), self._head("POST", address, extra) + b"\r\n" + body


def _redirected(source: Address, head: Head) -> Address:
    try:
        return redirect(source, head.field(b"location"))
    except ValueError as fault:
        raise MemberFailure(
            Failure.HTTP_ERROR, str(fault), sent=True, status=head.status
        ) from fault
