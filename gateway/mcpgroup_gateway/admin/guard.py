"""Who may ask what on the admin port: host names, the token, and headers that browsers obey."""

from __future__ import annotations

import hmac
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

TOKEN_HEADER: Final = "X-Mcpgroup-Admin-Token"  # noqa: S105  # a name

#: On every answer. Without CORS headers no other origin can read one; these close the rest:
#: embedding, sniffing, caching.
SECURITY_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def is_loopback_host(host: str | None) -> bool:
    """Whether a `Host` header names this machine, with any port: `localhost`, or a loopback address
    (all of 127.0.0.0/8, where one machine can stand in for many).

    A web page can point a name of its own at 127.0.0.1 (DNS rebinding), and is then of the same
    origin as a listener there; but the name it used is in `Host`.
    """
    if not host:
        return False
    name = host.strip().lower()
    if name.startswith("["):
        name, bracket, _ = name[1:].partition("]")
        return bool(bracket) and _is_loopback(name, IPv6Address)
    name = name.partition(":")[0]
    return name == "localhost" or _is_loopback(name, IPv4Address)


def _is_loopback(text: str, kind: type[IPv4Address | IPv6Address]) -> bool:
    try:
        return kind(text).is_loopback
    except ValueError:
        return False


def presents_token(headers: CIMultiDictProxy[str], token: str) -> bool:
    """Whether a request carries the token, as bearer or in a header of its own.

    Compared in constant time; a request that carries several values is judged by the first of each.
    """
    presented = headers.get(TOKEN_HEADER)
    if presented is None:
        scheme, _, credentials = headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        if scheme.lower() != "bearer":
            return False
        presented = credentials
    return hmac.compare_digest(
        presented.strip().encode("utf-8", "surrogateescape"),
        token.encode("utf-8", "surrogateescape"),
    )
