"""From plain replies to aiohttp responses: headers that every answer carries, and CORS.

The header sets are built once; a response copies one of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aiohttp import web
from multidict import CIMultiDict

from mcpgroup_gateway.front.checks import EVENTS, JSON
from mcpgroup_gateway.wire.param_headers import PREFIX
from mcpgroup_gateway.wire.protocol import (
    METHOD_HEADER,
    NAME_HEADER,
    SESSION_HEADER,
    VERSION_HEADER,
)

if TYPE_CHECKING:
    from mcpgroup_gateway.front.replies import Reply

METHODS: Final = "GET, POST, DELETE, OPTIONS"

_EVERY: Final = CIMultiDict(
    {
        "Server": "mcpgroup",
        # Also on errors: a browser client must be able to read why it has no session.
        "Access-Control-Expose-Headers": f"{SESSION_HEADER}, WWW-Authenticate",
    }
)
_JSON: Final = CIMultiDict({"Content-Type": JSON, **_EVERY})
_STREAM: Final = CIMultiDict(
    {
        "Content-Type": EVENTS,
        "Cache-Control": "no-cache",
        "X-Accel-Buffering": "no",
        **_EVERY,
    }
)
_ALLOWED_HEADERS: Final = (
    "Content-Type",
    "Accept",
    "Authorization",
    SESSION_HEADER,
    VERSION_HEADER,
    "Last-Event-ID",
    METHOD_HEADER,
    NAME_HEADER,
)
#: Which headers repeat arguments is said by each tool; a browser has to ask for them by name.
_PARAM_HEADER: Final = re.compile(rf"{PREFIX}[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z", re.IGNORECASE)


def _allow_origin(headers: CIMultiDict[str], origin: str) -> None:
    headers["Access-Control-Allow-Origin"] = origin
    headers["Vary"] = "Origin"


def respond(reply: Reply, origin: str | None, *, close: bool) -> web.Response:
    """One response, sent with one write. `origin` is an allowed one; `close` ends keep-alive."""
    if reply.media == JSON:
        response = web.Response(status=reply.status, body=reply.body, headers=_JSON)
    elif reply.media == EVENTS:
        response = web.Response(status=reply.status, headers=_STREAM)
    else:
        response = web.Response(status=reply.status, headers=_EVERY)
    if origin is not None:
        _allow_origin(response.headers, origin)
    if reply.session_id is not None:
        response.headers[SESSION_HEADER] = reply.session_id
    if reply.retry_after is not None:
        response.headers["Retry-After"] = str(reply.retry_after)
    if reply.status == 405:
        response.headers["Allow"] = reply.allow or METHODS
    if close or reply.close:
        response.force_close()
    return response


def stream_response(origin: str | None, *, close: bool) -> web.StreamResponse:
    """The start of an event stream."""
    response = web.StreamResponse(status=200, headers=_STREAM)
    if origin is not None:
        _allow_origin(response.headers, origin)
    if close:
        response.force_close()
    return response


def preflight(
    origin: str | None, tenant_header: str | None, asked: str, *, close: bool
) -> web.Response:
    """The answer to OPTIONS, which needs no credentials.

    `asked` is its `Access-Control-Request-Headers`.
    """
    response = web.Response(status=204, headers=_EVERY)
    response.headers["Allow"] = METHODS
    if origin is not None:
        _allow_origin(response.headers, origin)
        names = [*_ALLOWED_HEADERS]
        if tenant_header:
            names.append(tenant_header)
        names += [name for each in asked.split(",") if _PARAM_HEADER.match(name := each.strip())]
        response.headers["Access-Control-Allow-Methods"] = METHODS
        response.headers["Access-Control-Allow-Headers"] = ", ".join(names)
        response.headers["Access-Control-Max-Age"] = "600"
    if close:
        response.force_close()
    return response
