"""What the front may ask of the group behind it.

The front knows HTTP and sessions, the service knows members; bytes pass between them. A narrow
interface, so that another front (a faster one) can be put before the same service.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mcpgroup_gateway.members.upstream import GATEWAY_IDENTITY
from mcpgroup_gateway.wire.protocol import ASSUMED_VERSION, MODERN_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcpgroup_gateway.members.upstream import ClientIdentity
    from mcpgroup_gateway.serving.sessions import Session
    from mcpgroup_gateway.wire.envelope import Message, Raw
    from mcpgroup_gateway.wire.param_headers import ParamHeader


class Sink(Protocol):
    """Takes notifications that precede a call's answer (progress, log messages)."""

    async def send(self, message: bytes) -> None:
        """Deliver one JSON-RPC message; waits while the client reads slowly.

        After the client has gone it drops the message silently.
        """
        ...


@dataclass(slots=True)
class Caller:
    """Who asks: a client session or none, its tenant, and where it came from.

    `sink` is None when the client accepts JSON only: notifications are dropped then.
    `headers` are the client's, for `consistentHash.key: Header`; names compare without case.
    `client` and `protocol_version` are those of the session, or what a modern request says of
    itself; `log_level` is that of one modern request, which is sent no log message without it.
    """

    session: Session | None
    tenant: str | None = None
    remote: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    sink: Sink | None = None
    client: ClientIdentity = GATEWAY_IDENTITY
    protocol_version: str = ASSUMED_VERSION
    log_level: str | None = None

    @property
    def modern(self) -> bool:
        return self.protocol_version in MODERN_VERSIONS


class Call(Protocol):
    """One client request other than `initialize`."""

    async def run(self) -> bytes | None:
        """The complete JSON-RPC response, result or error, with the client's id.

        None when the caller cancelled: nothing is to be answered. Raises nothing but
        `asyncio.CancelledError`.
        """
        ...

    def cancel(self, reason: str | None) -> None:
        """The caller gave up: the member is told at once, nothing is counted. Never blocks."""
        ...


class Service(Protocol):
    """The group as the front sees it."""

    @property
    def name(self) -> str:
        """The group's name, which is also `serverInfo.name`."""
        ...

    async def initialize(self, params: dict[str, Raw], protocol_version: str) -> bytes:
        """The bytes of an `initialize` result for the negotiated `protocol_version`.

        Waits up to 10 s for members' first catalogues.
        """
        ...

    async def discover(self, caller: Caller) -> bytes:
        """The bytes of a complete `server/discover` result; waits like `initialize`."""
        ...

    def param_headers(self, tool: str, caller: Caller) -> tuple[ParamHeader, ...]:
        """The arguments of a tool, by the name that `caller` sees, that come in headers too.

        Empty also for a tool that nobody is known to offer.
        """
        ...

    def respond(self, message: Message, caller: Caller) -> None:
        """Take a client's response to a request of a member that it was sent in its session."""
        ...

    def begin(self, message: Message, caller: Caller) -> Call:
        """Start serving a request; nothing happens before `Call.run`.

        The `run` of `subscriptions/listen` lasts as long as its stream.
        """
        ...

    def notify(self, message: Message, caller: Caller) -> None:
        """Take a client's notification: cancellation and roots changes are acted on, others end."""
        ...
