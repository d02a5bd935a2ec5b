"""Attempts in flight by endpoint, oldest first, and what an eviction does to them.

DESIGN section 5: when a member is evicted on hard evidence, safe calls that wait on it move at
once; on soft evidence all but the oldest do, because it may be the cause. What was not sent yet
moves in either case.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.outcomes import Evidence, Failure
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.members.upstream import Upstream
    from mcpgroup_gateway.serving.attempts import Attempt


class AttemptsInFlight:
    """`may_move` says whether a call has another member to go to."""

    def __init__(self, may_move: Callable[[Attempt], bool], clock: Callable[[], float]) -> None:
        self._may_move = may_move
        self._attempts: dict[str, dict[Attempt, None]] = {}
        self._clock = clock
        self._last_ended: dict[str, float] = {}
        self._idle: dict[str, asyncio.Event] = {}

    def enter(self, endpoint_id: str, attempt: Attempt) -> None:
        attempts = self._attempts.get(endpoint_id)
        if attempts is None:
            attempts = self._attempts[endpoint_id] = {}
        attempts[attempt] = None

    def leave(self, endpoint_id: str, attempt: Attempt) -> None:
        attempts = self._attempts.get(endpoint_id)
        if attempts is not None:
            attempts.pop(attempt, None)
            if not attempts:
                del self._attempts[endpoint_id]
                self._last_ended[endpoint_id] = self._clock()
                if (idle := self._idle.get(endpoint_id)) is not None:
                    idle.set()

    def on(self, endpoint_id: str, upstream: Upstream) -> list[Attempt]:
        """The attempts that one upstream session carries."""
        return [each for each in self._attempts.get(endpoint_id, ()) if each.upstream is upstream]

    def last_ended(self, endpoint_id: str) -> float | None:
        """When the endpoint's newest attempt ended; None before the first."""
        return self._last_ended.get(endpoint_id)

    def evicted(
        self, endpoint_id: str, evidence: Evidence, reason: str, *, process_ended: bool = False
    ) -> None:
        """`process_ended`: what was sent fails by itself now, and must fail as what it is: a loss
        is what the quarantine of poisoned calls counts."""
        waiting = list(self._attempts.get(endpoint_id, ()))
        for number, attempt in enumerate(waiting):
            if attempt.sent:
                if process_ended:
                    continue
                oldest = evidence is Evidence.SOFT and number == 0
                if oldest or not attempt.call.is_safe_on(attempt.endpoint):
                    continue
            if self._may_move(attempt):
                text = f"its member left rotation: {reason}"
                attempt.abort(MemberFailure(Failure.EVICTED, text, sent=attempt.sent))

    def abandon(self, endpoint_id: str, reason: str) -> None:
        """The endpoint goes now: safe calls move, the others end."""
        for attempt in list(self._attempts.get(endpoint_id, ())):
            attempt.abort(MemberFailure(Failure.EVICTED, reason, sent=attempt.sent))

    async def wait_until_idle(self, endpoint_id: str, seconds: float) -> None:
        """Until no attempt is in flight on the endpoint, at most so long."""
        if endpoint_id not in self._attempts:
            return
        waiter = self._idle.setdefault(endpoint_id, asyncio.Event())
        try:
            async with asyncio.timeout(seconds):
                await waiter.wait()
        except TimeoutError:
            return
        finally:
            self._idle.pop(endpoint_id, None)
