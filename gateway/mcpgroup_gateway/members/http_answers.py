"""What an HTTP response to a JSON-RPC request means: an answer, or which failure."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.wire.envelope import (
    METHOD_NOT_FOUND,
    MalformedMessage,
    Message,
    parse_message,
    parse_object,
)

if TYPE_CHECKING:
    from mcpgroup_gateway.members.http_connection import Head

EVENT_STREAM: Final = "text/event-stream"
#: What servers send with HTTP 400 for a session that they do not know.
SESSION_ERROR: Final = -32000
#: Refused before it became a call, if no JSON-RPC answer says otherwise.
_NOT_RUN: Final = frozenset({401, 403, 404, 405})
#: Named in errors. Others are not repeated: a member's words may hold its credentials.
_COMMON_MEDIA: Final = frozenset(
    {"application/octet-stream", "application/xml", "text/html", "text/plain", "text/xml"}
)


def media_type(head: Head) -> str:
    return head.field(b"content-type").partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    return media == "application/json" or media.endswith("+json")


def read_answer(head: Head, body: bytes, raw_id: bytes, *, in_session: bool) -> Message:
    """The response with our id in a JSON body, whatever the status is.

    `in_session` says that the request carried a session id. Raises `MemberFailure`.
    """
    try:
        message = parse_message(body)
    except MalformedMessage as fault:
        if head.status < 300:
            raise malformed(f"the member's answer is no JSON-RPC message: {fault.text}") from fault
        raise failure_of(head, in_session=in_session) from fault
    if not message.is_response or message.raw_id != raw_id:
        if head.status < 300:
            raise malformed("the member's answer does not carry the id of the request")
        raise failure_of(head, in_session=in_session)
    if in_session and _tells_of_a_lost_session(head.status, error_code(message)):
        raise failure_of(head, in_session=True)
    return message


def _tells_of_a_lost_session(status: int, code: int | None) -> bool:
    # 404 is the protocol's word for it; servers with newer rules use it for unknown methods too.
    return (status == 404 and code != METHOD_NOT_FOUND) or (status == 400 and code == SESSION_ERROR)


def error_code(message: Message) -> int | None:
    """The code of an error response, None when there is none."""
    if not message.is_error:
        return None
    try:
        return int(bytes(parse_object(message.error).get("code", b"")))
    except (MalformedMessage, ValueError):
        return None


def failure_of(head: Head, *, in_session: bool) -> MemberFailure:
    """What a response without a JSON-RPC answer to our request means."""
    status = head.status
    wait = retry_after(head)
    if in_session and status in (400, 404):
        kind, reason = Failure.SESSION_LOST, f"the member no longer knows the session ({status})"
    elif status == 429 or (status == 503 and wait is not None):
        kind, reason = Failure.BUSY, f"the member is busy ({status})"
    elif status in _NOT_RUN:
        kind, reason = Failure.NOT_RUN, f"the member refused the request with HTTP {status}"
    elif status < 300:
        media = media_type(head)
        what = media if media in _COMMON_MEDIA else "another type" if media else "no content type"
        kind = Failure.MALFORMED
        reason = f"the member's answer ({status}, {what}) is neither JSON nor an event stream"
    elif status < 400:
        kind = Failure.HTTP_ERROR
        reason = f"the member redirects with HTTP {status}, which is not followed"
    else:
        kind, reason = Failure.HTTP_ERROR, f"the member answered with HTTP {status}"
    return MemberFailure(kind, reason, sent=True, status=status, retry_after=wait)


def retry_after(head: Head) -> float | None:
    """`Retry-After` in seconds from now, given as seconds or as a date (RFC 9110, 10.2.3)."""
    value = head.field(b"retry-after").strip()
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None


def malformed(reason: str) -> MemberFailure:
    return MemberFailure(Failure.MALFORMED, reason, sent=True)


def too_large(limit: int) -> MemberFailure:
    reason = f"the member's answer is larger than {limit} bytes"
    return MemberFailure(Failure.TOO_LARGE, reason, sent=True)
