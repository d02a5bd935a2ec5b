"""What a modern member wants to know first, asked of a client with a session, all at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcpgroup_gateway.wire.capabilities import may_be_asked
from mcpgroup_gateway.wire.envelope import (
    INTERNAL_ERROR,
    MalformedMessage,
    Message,
    Raw,
    error_object,
    parse_object,
    parse_string,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcpgroup_gateway.members.upstream import ClientIdentity, MemberFailure
    from mcpgroup_gateway.serving.questions import Question, Questions
    from mcpgroup_gateway.serving.sessions import Session

_CANCELLED = Raw(b'{"action":"cancel"}')


class Inputs:
    """One round of questions; `fail` ends the wait for it from outside."""

    def __init__(self, questions: Questions, session: Session, client: ClientIdentity) -> None:
        self._questions = questions
        self._session = session
        self._client = client
        self._open: dict[str, Question] = {}
        self._answers: dict[str, Raw] = {}
        self._changed = asyncio.Event()
        self._end: Message | None = None
        self._failure: MemberFailure | None = None

    async def collect(
        self, requests: dict[str, Raw], send: Callable[[Question], Awaitable[None]]
    ) -> dict[str, Raw] | Message:
        """The responses by key; or the response with which the call ends, since a round of the
        modern era cannot carry a client's error. Raises what `fail` was given."""
        allowed = may_be_asked(self._client.capabilities)
        for key, raw in requests.items():
            if self._failure is not None:
                break
            try:
                request = parse_object(raw)
            except MalformedMessage:
                request = {}
            method = parse_string(request.get("method")) or ""
            question = None
            if method in allowed:
                question = self._ask(key, method, bytes(request.get("params", b"{}")))
            if question is None:
                self._answered(key, method, None)
            else:
                self._open[key] = question
                await send(question)
        while self._failure is None and self._open and self._end is None:
            await self._changed.wait()
            self._changed.clear()
        if self._failure is not None:
            raise self._failure
        return self._answers if self._end is None else self._end

    def fail(self, failure: MemberFailure) -> None:
        self._failure = failure
        self._changed.set()

    def close(self) -> None:
        """End what is still open."""
        for question in tuple(self._open.values()):
            self._questions.end(question)

    def _ask(self, key: str, method: str, params: bytes) -> Question | None:
        return self._questions.ask(
            self._session,
            method,
            params,
            lambda answer: self._answered(key, method, answer),
        )

    def _answered(self, key: str, method: str, answer: Message | None) -> None:
        self._open.pop(key, None)
        if answer is not None and not answer.is_error:
            self._answers[key] = answer.result
        elif method == "elicitation/create":
            self._answers[key] = _CANCELLED
        else:
            self._end = self._end or (declined() if answer is None else answer)
        self._changed.set()


def declined() -> Message:
    """The answer to a call whose member wants to know what no client can be asked for."""
    fault = error_object(INTERNAL_ERROR, "the client did not answer what the member asked for")
    return Message(jsonrpc="2.0", error=Raw(fault))
