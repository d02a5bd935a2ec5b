"""Errors of our own on the wire (DESIGN-MCP section 7).

GatewayError                 a JSON-RPC error that the gateway itself gives
├─ NoMember        -31001    no member took it; it did not run
├─ DeadlinePassed  -31002    the member's deadline passed
├─ MemberLost      -31003    sent, then the member or its stream was lost
├─ Overloaded      -31004    limits, queue, all members busy
├─ Draining        -31005    only in the body of a 503
├─ Denied          -31006    known, but refused here
├─ MemberHttpError -31007    bare HTTP error, malformed or oversized answer of the member
└─ Unknown         -32602    hidden or unknown name; unknown resources are -32002
"""

from __future__ import annotations

from typing import ClassVar

from mcpgroup_gateway.wire.envelope import error_object


class GatewayError(Exception):
    """`reason` is a stable word for machines, `text` a sentence for people.

    `may_have_run` says that a member may have executed the call; then `retryable` is false unless
    the call is safe to repeat. `retry_after` is in seconds. `status` is a member's HTTP status.
    """

    code: ClassVar[int] = -31001
    outcome: ClassVar[str] = "internal"

    def __init__(
        self,
        reason: str,
        text: str,
        *,
        member: str | None = None,
        retryable: bool = False,
        may_have_run: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.member = member
        self.retryable = retryable
        self.may_have_run = may_have_run
        self.retry_after = retry_after
        self.status = status

    def data(self, group: str) -> dict[str, object]:
        data: dict[str, object] = {
            "group": group,
            "reason": self.reason,
            "retryable": self.retryable,
            "mayHaveRun": self.may_have_run,
        }
        if self.retry_after is not None:
            data["retryAfterMs"] = max(0, round(self.retry_after * 1000))
        if self.member is not None:
            data["member"] = self.member
        if self.status is not None:
            data["status"] = self.status
        return data

    def error_object(self, group: str) -> bytes:
        """The JSON bytes of the error object, for `encode_error`."""
        return error_object(self.code, self.text, self.data(group))


class NoMember(GatewayError):
    code = -31001
    outcome = "no_member"


class DeadlinePassed(GatewayError):
    code = -31002
    outcome = "timeout"


class MemberLost(GatewayError):
    code = -31003
    outcome = "member_failed"


class Overloaded(GatewayError):
    code = -31004
    outcome = "overloaded"


class Draining(GatewayError):
    code = -31005
    outcome = "overloaded"


class Denied(GatewayError):
    code = -31006
    outcome = "denied"


class MemberHttpError(GatewayError):
    code = -31007
    outcome = "member_failed"


class Unknown(GatewayError):
    """An unknown or hidden name, cursor or parameter: what the protocol says of it, no more."""

    code = -32602
    outcome = "invalid"

    def __init__(self, text: str, *, code: int = -32602) -> None:
        super().__init__("unknown", text)
        self._code = code

    def error_object(self, group: str) -> bytes:
        return error_object(self._code, self.text)
