"""What of a client's request crosses to a member besides its params.

Headers belong to one hop. The trace context goes on (W3C, and MCP 2026-07-28 for `_meta`, which
passes through in the params); everything else only when the member's `forwardHeaders` names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from multidict import istr

from mcpgroup_gateway.members.upstream import NOTHING_FORWARDED, Forwarded
from mcpgroup_gateway.wire.param_headers import param_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcpgroup_gateway.members.upstream import Upstream
    from mcpgroup_gateway.serving.interface import Caller
    from mcpgroup_gateway.serving.targets import Target

TRACE_HEADERS: Final = tuple(istr(name) for name in ("traceparent", "tracestate", "baggage"))
#: A server of the eras with sessions sends all its log messages until a level was set.
_EVERY_LEVEL: Final = "debug"
_LONGEST_VALUE: Final = 8192


def forwarded(
    caller: Caller,
    target: Target | None,
    upstream: Upstream,
    names: Sequence[str],
    *,
    over_http: bool,
    shared: bool,
) -> Forwarded:
    """`names` are the headers to look for; a header that was given twice crosses not at all."""
    headers = _chosen(caller, names) if over_http else ()
    if not upstream.handshake.modern:
        return Forwarded(headers) if headers else NOTHING_FORWARDED
    if over_http and target is not None and target.param_headers:
        headers += param_headers(target.param_headers, target.arguments)
    return Forwarded(headers, _log_level(caller), None if shared else caller.client)


def _chosen(caller: Caller, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    headers = caller.headers
    chosen = []
    for name in names:
        value = headers.get(name)
        if value is None or len(value) > _LONGEST_VALUE or not value.isprintable():
            continue
        get_all = getattr(headers, "getall", None)
        if get_all is None or len(get_all(name)) == 1:
            chosen.append((str(name), value))
    return tuple(chosen)


def _log_level(caller: Caller) -> str | None:
    if caller.modern:
        return caller.log_level
    if caller.sink is None:
        return None
    return (caller.session.log_level if caller.session is not None else None) or _EVERY_LEVEL
