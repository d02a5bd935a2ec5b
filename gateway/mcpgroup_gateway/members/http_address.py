"""Where an HTTP member is, and what a request to it starts with.

Address              the parts of a URL that a request needs; `shown` is safe to print
redirect             the address that a 307 or 308 may lead to
encode_fields        header lines, validated: no value can end its line
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urljoin, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
#: Field names are tokens and values hold no control characters (RFC 9110, sections 5.1 and 5.5).
_FIELD_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_FIELD_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*\Z")
_TARGET = re.compile(r"[\x21-\x7e]+\Z")
_HOST = re.compile(r"[0-9A-Za-z._:%\-]+\Z")

#: Fields that frame the message or belong to the protocol; a configuration cannot set them.
RESERVED_FIELDS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "keep-alive",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


@dataclass(frozen=True, slots=True)
class Address:
    """One URL: `target` is its path with the query, `authorization` comes from its userinfo."""

    scheme: str
    host: str
    port: int
    target: str
    authorization: str | None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Raises `ValueError` when it is not an absolute http or https URL."""
        parts = urlsplit(url)
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise ValueError("the URL must be absolute and http or https")
        host = parts.hostname
        if not host.isascii():
            try:
                host = host.encode("idna").decode("ascii")
            except UnicodeError as fault:
                raise ValueError("the host of the URL is no valid name") from fault
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if not _HOST.match(host) or not _TARGET.match(target):
            raise ValueError("the URL contains characters that must be percent-encoded")
        authorization = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
        port = parts.port if parts.port is not None else _DEFAULT_PORTS[parts.scheme]
        return cls(parts.scheme, host, port, target, authorization)

    @property
    def host_field(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def shown(self) -> str:
        """The URL without userinfo and query: both may carry secrets."""
        return f"{self.scheme}://{self.host_field}{self.target.partition('?')[0]}"


def redirect(source: Address, location: str) -> Address:
    """The address that a 307 or 308 of `source` leads to.

    Only the same host may be named, with the same scheme and port or with https instead of http:
    headers with credentials are sent along. Raises `ValueError` with a sentence otherwise.
    """
    base = f"{source.scheme}://{source.host_field}{source.target}"
    try:
        found = Address.parse(urljoin(base, location).partition("#")[0])
    except ValueError:
        raise ValueError("the member redirects to something that is no URL") from None
    if found.host != source.host:
        raise ValueError("the member redirects to another host; redirects stay on the host")
    upgraded = source.scheme == "http" and found.scheme == "https"
    if not upgraded and (found.scheme, found.port) != (source.scheme, source.port):
        raise ValueError("the member redirects to another scheme or port; that is not followed")
    return Address(found.scheme, found.host, found.port, found.target, source.authorization)


def check_field(name: str, value: str) -> None:
    """Raises `ValueError` for a header field that could break the framing of a request."""
    if not _FIELD_NAME.match(name):
        raise ValueError("a header name contains characters that are not allowed")
    if not _FIELD_VALUE.match(value):
        raise ValueError(f"the value of the header {name} contains characters not allowed")


def event_id_field(event_id: str) -> str | None:
    """The value of `Last-Event-ID` in UTF-8, None when a header cannot hold it."""
    value = event_id.encode().decode("latin-1")
    return value if event_id and _FIELD_VALUE.match(value) else None


def encode_fields(fields: Iterable[tuple[str, str]]) -> bytes:
    """Header lines, each with its line end. Raises `ValueError` as `check_field`."""
    lines = []
    for name, value in fields:
        check_field(name, value)
        lines.append(f"{name}: {value.strip()}\r\n")
    return "".join(lines).encode("latin-1")
