"""What every kind of member looks like from above.

    MemberFailure            something about a member failed; `failure` says what, `sent` whether
                             any byte of the request was handed to the operating system
    Exchange                 one request upstream and the messages that answer it
    Upstream                 one session with one endpoint: a process, or an HTTP session
    Connector                makes `Upstream`s for one endpoint

An exchange is pulled: `await exchange.next()` gives notifications that belong to the request and
then, as its last message, the response. Nothing here needs a task per request. `abort` ends a
pending `next` from outside (eviction, deadline, cancel), synchronously.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

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
class Handshake:
    """What a member said in `initialize`. JSON members are raw bytes, empty when absent."""

    protocol_version: str
    capabilities: bytes
    server_info: bytes
    instructions: str | None


class Exchange(Protocol):
    """One request in flight."""

    @property
    def sent(self) -> bool:
        """False as long as no byte of the request was written to a socket or pipe."""
        ...

    async def next(self) -> Message:
        """The next message of this exchange; the response ends it.

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

    Messages that belong to no exchange go to the `on_notification` given to `Connector.open`.
    `on_lost` is called once, when the session ends by itself (process exit, session refused), and
    before its pending exchanges fail. `pid` is that of a process, else None.
    """

    handshake: Handshake
    pid: int | None
    in_flight: int

    @property
    def lost(self) -> bool: ...

    def request(
        self, method: str, params: bytes, *, progress_token: int | None = None, safe: bool = False
    ) -> Exchange:
        """Begin an exchange; bytes are written at the first `next` at the latest.

        `params` is the complete JSON of the params with our own progress token already in it; the
        token is repeated here so that progress notifications find their exchange. `safe` says
        that the request may ride on a pooled connection of any age.
        """
        ...

    async def notify(self, method: str, params: bytes) -> None:
        """Send a notification. Raises `MemberFailure`."""
        ...

    async def close(self) -> None:
        """End the session: DELETE, or EOF → TERM → KILL of the process group. Idempotent."""
        ...


class Connector(Protocol):
    """Opens sessions with one endpoint. One instance a (endpoint, configuration)."""

    async def open(
        self,
        *,
        on_notification: Callable[[Message], None],
        on_lost: Callable[[MemberFailure], None],
        control: bool,
        deadline: float,
    ) -> Upstream:
        """Connect and shake hands (`initialize`, `notifications/initialized`).

        `control` sessions also hold the GET stream (HTTP). `deadline` is in seconds from now and
        bounds the whole. Raises `MemberFailure`; its `sent` is false, no call was handed over.
        """
        ...

    async def close(self) -> None:
        """Release pools and processes; sessions must have been closed before."""
        ...
