"""What an exchange is over either HTTP transport: a POST, and how far it has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpgroup_gateway.members.http1 import Signal
from mcpgroup_gateway.wire.envelope import encode_request

if TYPE_CHECKING:
    import asyncio

    from mcpgroup_gateway.members.http1 import HttpCall
    from mcpgroup_gateway.members.http_target import Fields
    from mcpgroup_gateway.members.upstream import MemberFailure


class HttpExchange:
    """The state that both kinds share; see `members.upstream.Exchange`.

    `raw_id` and `token` are as they stand in messages; `token` is b"" without one.
    """

    __slots__ = (
        "_answered",
        "_body",
        "_call",
        "_closed",
        "_failure",
        "_fields",
        "_loop",
        "_request",
        "_safe",
        "_signal",
        "_size",
        "_was_sent",
        "method",
        "raw_id",
        "request_id",
        "token",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        request_id: int,
        method: str,
        params: bytes,
        progress_token: int | None,
        safe: bool,
        fields: Fields,
    ) -> None:
        self._loop = loop
        self._request = encode_request(request_id, method, params)
        self._fields = fields
        self._safe = safe
        self._signal = Signal(loop)
        self._call: HttpCall | None = None
        self._body: list[bytes] = []
        self._size = 0
        self._failure: MemberFailure | None = None
        self._answered = False
        self._closed = False
        self._was_sent = False
        self.method = method
        self.request_id = request_id
        self.raw_id = b"%d" % request_id
        self.token = b"" if progress_token is None else b"%d" % progress_token

    @property
    def sent(self) -> bool:
        return self._was_sent or (self._call is not None and self._call.sent)

    @property
    def pending(self) -> bool:
        """True as long as an answer may come."""
        return not self._answered and self._failure is None
