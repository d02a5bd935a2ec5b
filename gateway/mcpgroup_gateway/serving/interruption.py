"""What ends a call early: its caller's cancel, or the end of the replica."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.wire.refusals import MemberLost, NoMember

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mcpgroup_gateway.serving.attempts import Attempt

R = TypeVar("R")


class CallCancelled(Exception):
    """The caller gave up; nothing is to be answered."""


class Interruption:
    """Ends what the call does at the moment: its attempt, or a wait inside `during`.

    `cancel` and `drain` never block; the call notices at its next `check` at the latest.
    """

    __slots__ = ("_cancelled", "_draining", "_waiting", "attempt", "may_have_run")

    def __init__(self) -> None:
        self.attempt: Attempt | None = None
        self.may_have_run = False  # by an attempt that has ended
        self._waiting: asyncio.Task[object] | None = None
        self._cancelled = False
        self._draining = False

    def cancel(self, reason: str) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._end(reason)

    def drain(self) -> None:
        self._draining = True
        self._end("the gateway is draining")

    def _end(self, reason: str) -> None:
        if self.attempt is not None:
            self.attempt.abort(MemberFailure(Failure.CANCELLED, reason, sent=False))
        if self._waiting is not None:
            self._waiting.cancel()

    def check(self, *, sent: bool = False, member: str | None = None) -> None:
        """Raises `CallCancelled` after `cancel`, the caller's error after `drain`.

        `sent` says that `member` may be running the call.
        """
        if self._cancelled:
            raise CallCancelled
        if not self._draining:
            return
        if sent or self.may_have_run:
            raise MemberLost(
                "draining",
                "the gateway ended before the member answered",
                member=member,
                may_have_run=True,
            )
        raise NoMember("draining", "the gateway ended before the call was sent", retryable=True)

    async def during(self, waiting: Awaitable[R]) -> R:
        """Await something that the call gives up when it is interrupted; raises as `check` does."""
        task = self._waiting = asyncio.current_task()
        try:
            return await waiting
        except asyncio.CancelledError:
            if task is not None and (self._cancelled or self._draining):
                task.uncancel()
            self.check()
            raise
        finally:
            self._waiting = None
