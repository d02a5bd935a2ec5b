"""Requests of members to clients with a session: asked, answered once, never for ever open.

A question ends with the client's answer, when its member takes it back, when nobody answered for
`limits.inputSeconds`, or when the client has gone (DESIGN-MCP section 4). Its id is ours.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.wire.envelope import (
    INTERNAL_ERROR,
    encode_error,
    encode_json,
    encode_notification,
    encode_request,
    encode_result,
    error_object,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.members.upstream import Upstream
    from mcpgroup_gateway.serving.sessions import Session
    from mcpgroup_gateway.wire.envelope import Message

#: Questions that may be open in one session; a member that asks more is answered at once.
_MAX_OPEN: Final = 100
#: A client without any open stream or request for so long has gone.
AWAY_SECONDS: Final = 10.0


class Question:
    """One open question; `request` is what the client is sent."""

    __slots__ = ("_done", "_timer", "id", "raw_id", "request", "session", "upstream")

    def __init__(
        self,
        question_id: int,
        session: Session,
        request: bytes,
        done: Callable[[Message | None], None],
        upstream: Upstream | None,
        raw_id: bytes,
    ) -> None:
        self.id = b"%d" % question_id
        self.session = session
        self.request = request
        self.upstream = upstream
        self.raw_id = raw_id
        self._done = done
        self._timer: asyncio.TimerHandle | None = None

    def expire_after(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, callback)

    def finish(self, answer: Message | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._done(answer)


class Questions:
    """All open questions of a replica. `seconds` gives `limits.inputSeconds`."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._ids = count(1)
        self._open: dict[str, dict[bytes, Question]] = {}

    def __len__(self) -> int:
        return sum(len(questions) for questions in self._open.values())

    def ask(
        self,
        session: Session,
        method: str,
        params: bytes,
        done: Callable[[Message | None], None],
        *,
        upstream: Upstream | None = None,
        raw_id: bytes = b"",
    ) -> Question | None:
        """A new question, which the caller sends. `done` is called once, later, with the response
        or with None when there will be none; `upstream` and `raw_id` tell whose request it is.

        None when the session has too many open ones, or has ended.
        """
        questions = self._open.setdefault(session.id, {})
        if session.closed or len(questions) >= _MAX_OPEN:
            self._forget_empty(session)
            return None
        number = next(self._ids)
        request = encode_request(number, method, params)
        question = Question(number, session, request, done, upstream, raw_id)
        question.expire_after(
            self._seconds(), lambda: self.end(question, "nobody answered in time")
        )
        questions[question.id] = question
        return question

    def answered(self, session: Session, response: Message) -> bool:
        """Take a client's response; False when it answers no open question."""
        question = self._open.get(session.id, {}).get(response.raw_id)
        if question is None:
            return False
        self._finish(question, response)
        return True

    def end(self, question: Question, reason: str | None = None) -> None:
        """Nobody waits for its answer any more, which the client is told; does nothing when it has
        ended."""
        if self._open.get(question.session.id, {}).get(question.id) is not question:
            return
        self._finish(question, None)
        params: dict[str, object] = {"requestId": int(question.id)}
        if reason is not None:
            params["reason"] = reason
        question.session.push_request(
            encode_notification("notifications/cancelled", encode_json(params))
        )

    def taken_back(self, upstream: Upstream, raw_id: bytes, reason: str | None) -> None:
        """The member does not want the answer any more."""
        for questions in self._open.values():
            for question in questions.values():
                if question.upstream is upstream and question.raw_id == raw_id:
                    self.end(question, reason)
                    return

    def session_ended(self, session: Session) -> None:
        for question in tuple(self._open.get(session.id, {}).values()):
            self._finish(question, None)

    def end_of_absent(self, now: float) -> None:
        """End the questions of clients that have gone; `now` is the sessions' clock."""
        for questions in tuple(self._open.values()):
            session = next(iter(questions.values())).session
            since = session.detached_since
            if since is not None and now - since >= AWAY_SECONDS:
                self.session_ended(session)

    def _finish(self, question: Question, answer: Message | None) -> None:
        del self._open[question.session.id][question.id]
        self._forget_empty(question.session)
        question.finish(answer)

    def _forget_empty(self, session: Session) -> None:
        if not self._open.get(session.id, True):
            del self._open[session.id]


def response_of(method: str, raw_id: bytes, answer: Message | None) -> bytes:
    """What the member is told: the client's answer, or that it gave none."""
    if answer is None:
        if method == "elicitation/create":
            return encode_result(raw_id, b'{"action":"cancel"}')
        return encode_error(raw_id, error_object(INTERNAL_ERROR, "the client gave no answer"))
    if answer.is_error:
        return encode_error(raw_id, answer.error)
    return encode_result(raw_id, answer.result)
