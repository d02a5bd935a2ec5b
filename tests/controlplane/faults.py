"""What can go wrong between a client and an API server, and on which requests."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_REASONS = {
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True)
class Asked:
    """A request as RBAC sees it: `verb` is get, list, watch, create, update, patch, delete or
    deletecollection. What is no request of a resource has only a `path`."""

    verb: str
    path: str
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @classmethod
    def of(cls, method: str, path: str, query: Mapping[str, str]) -> Asked:
        parts = path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
        if not rest:
            return cls(verb=method.lower(), path=path)
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource, name, subresource = (*rest, "", "")[:3]
        if method == "GET":
            watches = query.get("watch") in ("1", "true")
            verb = "watch" if watches else "get" if name else "list"
        else:
            verb = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
            if verb == "delete" and not name:
                verb = "deletecollection"
        return cls(verb, path, resource, subresource, namespace, name)


@dataclass(frozen=True)
class Answer:
    """The proxy answers instead of the server, as an API server would."""

    code: int
    retry_after: int | None = None  # seconds
    message: str = "injected"

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        return headers

    @property
    def status(self) -> dict[str, Any]:
        """The answer's body, also the object of an ERROR event."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": _REASONS.get(self.code, ""),
            "code": self.code,
        }
        if self.retry_after is not None:
            status["details"] = {"retryAfterSeconds": self.retry_after}
        return status


@dataclass(frozen=True)
class Cut:
    """The connection ends without an answer; with `reached` the server did what it was asked."""

    reached: bool = False


@dataclass(frozen=True)
class Delay:
    """The answer comes, but so many seconds later than else. The server is asked at once."""

    seconds: float


@dataclass(frozen=True)
class Hang:
    """Nothing comes back, and the connection stays open. The server is not asked."""


@dataclass(frozen=True)
class Silence:
    """A watch, open already or opened later, brings nothing more; its connection stays open."""


@dataclass(frozen=True)
class ErrorEvent:
    """A watch, open already or opened later, brings an ERROR event and ends."""

    code: int

    @property
    def line(self) -> bytes:
        event = {"type": "ERROR", "object": Answer(self.code).status}
        return json.dumps(event).encode() + b"\n"


Action = Answer | Cut | Delay | Hang | Silence | ErrorEvent
OF_STREAMS = (Silence, ErrorEvent)


@dataclass
class Fault:
    """An action on the next `times` requests (None: all, until `lift`) that fit every given field.

    `verb` may be several with `|` between. `hits` counts the requests that it met.
    """

    action: Action
    verb: str = ""
    resource: str = ""
    subresource: str | None = None
    namespace: str = ""
    name: str = ""
    times: int | None = None
    hits: int = 0
    _hit: asyncio.Condition = field(default_factory=asyncio.Condition, repr=False)

    def lift(self) -> None:
        """It meets no further request. Streams that it made silent stay so."""
        self.times = self.hits

    @property
    def active(self) -> bool:
        return self.times is None or self.hits < self.times

    def fits(self, asked: Asked) -> bool:
        wanted = {"resource": self.resource, "namespace": self.namespace, "name": self.name}
        return (
            self.active
            and (not self.verb or asked.verb in self.verb.split("|"))
            and (self.subresource is None or asked.subresource == self.subresource)
            and all(not value or getattr(asked, key) == value for key, value in wanted.items())
        )

    async def hit(self) -> None:
        self.hits += 1
        async with self._hit:
            self._hit.notify_all()

    async def happened(self, times: int = 1, *, within: float = 20) -> None:
        """Wait until it met so many requests."""
        try:
            async with asyncio.timeout(within), self._hit:
                await self._hit.wait_for(lambda: self.hits >= times)
        except TimeoutError:
            raise AssertionError(f"{self} did not happen {times} times in {within} s") from None
