"""What the front needs to know: addresses, limits and deadlines, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FrontSettings:
    """`host`, `port` and `close_seconds` count at start only, all else also in `Front.update`.

    `loopback` says that the address is reachable from this machine only. `request_bytes` bounds
    one body after its content encoding, `requests_in_flight` the calls that run at a time.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    loopback: bool = True
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    tenant_header: str | None = None
    request_bytes: int = 4 << 20
    requests_in_flight: int = 1024
    head_seconds: float = 15.0  # from the first byte of a head (or the connection) to its end
    body_seconds: float = 30.0  # from a head to the end of its body
    write_seconds: float = 30.0  # a client that takes no byte for so long is cut off
    keep_alive_seconds: float = 15.0  # a silent stream gets a comment; a silent call becomes one
    close_seconds: float = 2.0  # what still runs at `Front.close` has so long to end


class Observer(Protocol):
    """Told of what never reaches the service."""

    def request_answered(self, method: str, outcome: str, seconds: float) -> None:
        """The front itself answered the request `method` (any text a client may send).

        `outcome` is `ok`, `invalid`, `overloaded` or `internal`.
        """
        ...

    def request_refused(self, reason: str) -> None:
        """A request was refused as `overloaded` or `draining`."""
        ...


class Unobserved:
    """The observer of those who need none."""

    def request_answered(self, method: str, outcome: str, seconds: float) -> None:
        return None

    def request_refused(self, reason: str) -> None:
        return None
