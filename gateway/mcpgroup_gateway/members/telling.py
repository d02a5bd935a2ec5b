"""What a session over HTTP says to its member that has no answer: a POST that is accepted.

Telling                  messages that nobody waits for: cancellations and answers to the member
refusal_of               waits until such a POST was taken
failure_of_telling       what it means when it was not
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http_answers import failure_of
from mcpgroup_gateway.members.http_dialling import LATE_SECONDS
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mcpgroup_gateway.members.http1 import HttpCall, Signal
    from mcpgroup_gateway.members.http_connection import Head

#: What a member may take to accept a notification or a response of ours (seconds).
NOTIFY_SECONDS: Final = 10.0
#: Messages that may be under way at once, and their bytes; more are dropped.
MAX_TELLING: Final = 256
MAX_TELLING_BYTES: Final = 32 * 1024 * 1024


class Telling:
    """The messages of one session that are under way, each in a task of its own.

    `deliver` sends one and raises `MemberFailure`; whatever a failure means to the session is its
    own affair. The session ends `tasks`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[bytes], Coroutine[None, None, None]],
    ) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._loop = loop
        self._deliver = deliver
        self._bytes = 0

    def tell(self, body: bytes) -> None:
        """Send a message; it is dropped when there are too many already."""
        if len(self.tasks) >= MAX_TELLING or self._bytes + len(body) > MAX_TELLING_BYTES:
            return
        self._bytes += len(body)
        task = self._loop.create_task(self._deliver_quietly(body))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _deliver_quietly(self, body: bytes) -> None:
        try:
            await self._deliver(body)
        except MemberFailure:
            return  # the loss of a session was reported; nothing else matters here
        finally:
            self._bytes -= len(body)


async def refusal_of(
    call: HttpCall, signal: Signal, loop: asyncio.AbstractEventLoop
) -> Head | None:
    """See a started POST to its end: None when it was accepted, else the head of the response.

    Raises `MemberFailure`; when the member does not react in 10 s it is `DEADLINE`.
    """
    due = loop.time() + NOTIFY_SECONDS
    try:
        async with asyncio.timeout_at(due):
            while call.head is None and call.failure is None:
                await signal.wait()
    except TimeoutError:
        late = loop.time() - due > LATE_SECONDS
        reason = f"the member took no notification within {NOTIFY_SECONDS:g} s"
        raise MemberFailure(Failure.DEADLINE, reason, sent=call.sent, late=late) from None
    else:
        if call.head is not None and call.head.status < 300:
            call.linger(loop)
            return None
    finally:
        call.close()
    if call.head is None:
        raise call.failure or AssertionError("a call has a head or a failure")
    return call.head


def failure_of_telling(refusal: Head, *, in_session: bool) -> MemberFailure:
    """Servers answer 400 to notifications they do not like: only 404 tells of the session."""
    return failure_of(refusal, in_session=in_session and refusal.status == 404)
