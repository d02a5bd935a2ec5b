"""What a request's headers say, judged without I/O.

Sources: RFC 9110 (sections 8.3, 12.5.1), Fetch (CORS), DESIGN-MCP section 8.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from mcpgroup_gateway.wire.protocol import LATEST_VERSION, LEGACY_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"

#: Longer values are judged each time: clients must not choose what fills the caches.
_CACHED_LENGTH: Final = 200


class Accepts(NamedTuple):
    """What answers a client takes; `names_events` is false when a wildcard stands for events."""

    json: bool
    events: bool
    names_events: bool


def read_accept(value: str) -> Accepts:
    """Judge an `Accept` header, several lines joined by commas; empty means anything."""
    return _cached_accept(value) if len(value) <= _CACHED_LENGTH else _parse_accept(value)


def _parse_accept(value: str) -> Accepts:
    if not value.strip():
        return Accepts(json=True, events=True, names_events=False)
    quality: dict[str, float] = {}
    for item in value.split(","):
        media, _, parameters = item.partition(";")
        media = media.strip().lower()
        if media:
            # A type named twice (with other parameters) is as welcome as its best mention.
            quality[media] = max(quality.get(media, 0.0), _quality(parameters))
    return Accepts(
        json=_wanted(quality, JSON) > 0,
        events=_wanted(quality, EVENTS) > 0,
        names_events=quality.get(EVENTS, 0.0) > 0,
    )


_cached_accept = lru_cache(maxsize=256)(_parse_accept)


def _quality(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value.strip())
            except ValueError:
                return 1.0
    return 1.0


def _wanted(quality: dict[str, float], media: str) -> float:
    """The most specific range decides."""
    for pattern in (media, f"{media.partition('/')[0]}/*", "*/*", "*"):
        if pattern in quality:
            return quality[pattern]
    return 0.0


def is_json(value: str) -> bool:
    """True for `application/json` with any parameters, but a charset other than UTF-8."""
    return _cached_json(value) if len(value) <= _CACHED_LENGTH else _judge_json(value)


def _judge_json(value: str) -> bool:
    media, *parameters = value.split(";")
    if media.strip().lower() != JSON:
        return False
    for parameter in parameters:
        name, _, charset = parameter.partition("=")
        if name.strip().lower() == "charset":
            return charset.strip().strip('"').lower() in ("utf-8", "utf8")
    return True


_cached_json = lru_cache(maxsize=64)(_judge_json)


def is_text(value: str) -> bool:
    """False for a header value with bytes that are no UTF-8 (aiohttp keeps them as surrogates)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def negotiate(requested: str) -> str:
    """The protocol version to answer `initialize` with (DESIGN-MCP section 1)."""
    return requested if requested in LEGACY_VERSIONS else LATEST_VERSION


def split_host(value: str) -> tuple[str, str] | None:
    """`Host` as (name, port) in lower case, the port "" when absent; None when it is none.

    IPv6 addresses lose their brackets.
    """
    value = value.strip().lower()
    if value.startswith("["):
        name, bracket, rest = value[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return None
        port = rest[1:]
    else:
        name, _, port = value.partition(":")
    if not name or (port and not (port.isascii() and port.isdigit())):
        return None
    return name.rstrip("."), port


def is_loopback(name: str) -> bool:
    """True for `localhost` and the loopback addresses, written as a Host or an Origin has them."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _origin(value: str) -> tuple[str, str, str] | None:
    """An origin as (scheme, host, port); None for `null` and everything malformed."""
    try:
        parts = urlsplit(value.strip().lower())
        port = parts.port
    except ValueError:
        return None
    if not parts.scheme or not parts.hostname or parts.path or parts.query or parts.fragment:
        return None
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, str(port or default or "")


class AccessPolicy:
    """Which `Host` and `Origin` may talk to us (DESIGN-MCP section 8).

    `hosts` are names, or name:port for one port; `origins` are scheme://host[:port].
    Bound to loopback, loopback names are allowed as well and nothing else by default.
    """

    def __init__(
        self, *, loopback: bool, hosts: Iterable[str] = (), origins: Iterable[str] = ()
    ) -> None:
        hosts = list(hosts)
        self._loopback = loopback
        self._any_host = not loopback and not hosts
        self._hosts = frozenset(filter(None, (split_host(host) for host in hosts)))
        self._origins = frozenset(filter(None, (_origin(origin) for origin in origins)))
        self._cached_host = lru_cache(maxsize=256)(self._judge_host)
        self._cached_origin = lru_cache(maxsize=256)(self._judge_origin)

    def allows_host(self, value: str) -> bool:
        cached = len(value) <= _CACHED_LENGTH
        return self._cached_host(value) if cached else self._judge_host(value)

    def allows_origin(self, value: str) -> bool:
        cached = len(value) <= _CACHED_LENGTH
        return self._cached_origin(value) if cached else self._judge_origin(value)

    def _judge_host(self, value: str) -> bool:
        if self._any_host:
            return True
        host = split_host(value)
        if host is None:
            return False
        if self._loopback and is_loopback(host[0]):
            return True
        return host in self._hosts or (host[0], "") in self._hosts

    def _judge_origin(self, value: str) -> bool:
        origin = _origin(value)
        if origin is None:
            return False
        if self._loopback and origin[0] in ("http", "https") and is_loopback(origin[1]):
            return True
        return origin in self._origins
