"""What every kind of member looks like from above.

    MemberFailure            something about a member failed; `failure` says what, `sent` whether
                             any byte of the request was handed to the operating system
    Exchange                 one request upstream and the messages that answer it
    Upstream                 one session with one endpoint: a process, or an HTTP session
    Opening                  what a session is opened for, and who hears what belongs to no exchange
    Connector                makes `Upstream`s for one endpoint

An exchange is pulled: `await exchange.next()` gives notifications and requests of the member that
belong to the request and then, as its last message, the response. Nothing here needs a task per
request. `abort` ends a pending `next` from outside (eviction, deadline, cancel), synchronously.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from mcpgroup_gateway import __version__
from mcpgroup_gateway.wire.envelope import encode_json
from mcpgroup_gateway.wire.protocol import MODERN_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.core.outcomes import Failure
    from mcpgroup_gateway.wire.envelope import Message


class MemberFailure(Exception):
    """`reason` is a sentence without secrets; `retry_after` is in seconds; `status` is HTTP's.

    `late` says that the deadline behind it fired more than a second after it was due.
    """

    def __init__(
        self,
        failure: Failure,
        reason: str,
        *,
        sent: bool,
        status: int | None = None,
        retry_after: float | None = None,
        late: bool = False,
    ) -> None:
        super().__init__(reason)
        self.failure = failure
        self.reason = reason
        self.sent = sent
        self.status = status
        self.retry_after = retry_after
        self.late = late


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """What a member is told of the client: two JSON objects.

    `capabilities` are those of the client that can answer the member's requests, `info` names it.
    """

    capabilities: bytes
    info: bytes


#: Sessions of the gateway's own and those that clients share: nobody could answer a request there.
GATEWAY_IDENTITY: Final = ClientIdentity(
    b"{}", encode_json({"name": "mcpgroup", "version": __version__})
)


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What else of a client's request crosses to the member.

    `headers` are for members over HTTP. `log_level` and `client`, whose request it is, are for
    modern members; without `client` the session's own identity counts.
    """

    headers: tuple[tuple[str, str], ...] = ()
    log_level: str | None = None
    client: ClientIdentity | None = None


NOTHING_FORWARDED: Final = Forwarded()


@dataclass(frozen=True, slots=True)
class Handshake:
    """What a member said in `initialize` or to `server/discover`.

    JSON members are raw bytes, empty when absent.
    """

    protocol_version: str
    capabilities: bytes
    server_info: bytes
    instructions: str | None

    @property
    def modern(self) -> bool:
        """Whether the member is spoken to without a session (2026-07-28 and later)."""
        return self.protocol_version in MODERN_VERSIONS


class Exchange(Protocol):
    """One request in flight."""

    @property
    def sent(self) -> bool:
        """False as long as no byte of the request was written to a socket or pipe."""
        ...

    async def next(self) -> Message:
        """The next message of this exchange; the response ends it.

        A request of the member comes here when it was sent on the exchange's own stream, or when
        this is the only call that it can be about, and the session has an `on_request`; it is
        answered with `Upstream.respond`.

        Raises `MemberFailure` when the member, its stream or its answer is lost.
        """
        ...

    def abort(self, failure: MemberFailure) -> None:
        """End the exchange from outside: a pending or later `next` raises `failure`.

        The member is told with `notifications/cancelled` when the request was sent. Does nothing
        after the response. Never blocks.
        """
        ...

    def close(self) -> None:
        """Give back what the exchange holds (its connection, its slot in the id table). Call it
        once in a `finally`, after the response, a failure or on abandonment."""
        ...


class Upstream(Protocol):
    """One open session.

    What it is there for, and who hears of it, says the `Opening`. `pid` is that of a process, else
    None.
    """

    handshake: Handshake
    pid: int | None
    in_flight: int

    @property
    def lost(self) -> bool: ...

    def request(
        self,
        method: str,
        params: bytes,
        *,
        progress_token: int | None = None,
        safe: bool = False,
        forwarded: Forwarded = NOTHING_FORWARDED,
    ) -> Exchange:
        """Begin an exchange; bytes are written at the first `next` at the latest.

        `params` is the complete JSON of the params with our own progress token already in it; the
        token is repeated here so that progress notifications find their exchange. What a modern
        member wants in `_meta` is added here. `safe` says that the request may ride on a pooled
        connection of any age.
        """
        ...

    def respond(self, body: bytes) -> None:
        """Send a complete response to a request of the member. Never blocks; dropped when the
        session is lost."""
        ...

    def hold_stream(self) -> None:
        """From now on hear what belongs to no exchange, too; for legacy HTTP that is a stream of
        its own (GET). Control sessions and those with `on_request` do so from the beginning."""
        ...

    async def notify(self, method: str, params: bytes) -> None:
        """Send a notification. Raises `MemberFailure`."""
        ...

    async def close(self) -> None:
        """End the session: DELETE, or EOF → TERM → KILL of the process group. Idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a session is opened for.

    Messages that belong to no exchange go to `on_notification` and `on_request`; what a member
    cancels of its own requests is a notification. Without `on_request` each request but `ping` is
    refused at once. `on_lost` is called once, when the session ends by itself (process exit,
    session refused), and before its pending exchanges fail.

    `control` sessions and those with `on_request` also hold the GET stream (HTTP). `client` is
    whom the member is told of. `with_session`: the client has a session and can be asked live; a
    member that speaks both eras is spoken to in the one with sessions, in which all its ways to
    ask work.
    """

    on_notification: Callable[[Message], None]
    on_lost: Callable[[MemberFailure], None]
    control: bool
    client: ClientIdentity = GATEWAY_IDENTITY
    on_request: Callable[[Message], None] | None = None
    with_session: bool = False


class Connector(Protocol):
    """Opens sessions with one endpoint. One instance a (endpoint, configuration)."""

    async def open(self, opening: Opening, deadline: float) -> Upstream:
        """Connect and shake hands (`initialize`, `notifications/initialized`).

        `deadline` is in seconds from now and bounds the whole.

        Raises `MemberFailure`; its `sent` is false, no call was handed over.
        """
        ...

    async def close(self) -> None:
        """Release pools and processes; sessions must have been closed before."""
        ...
