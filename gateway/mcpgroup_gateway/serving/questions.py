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
#: Bytes of the open questions of one session, and of all.
_MAX_SESSION_BYTES: Final = 4 * 1024 * 1024
_MAX_BYTES: Final = 64 * 1024 * 1024
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
        #: By who asked; a member may use an id twice.
        self._of: dict[tuple[Upstream, bytes], dict[Question, None]] = {}
        self._bytes = 0

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

        None when too many are open, or the session has ended.
        """
        questions = self._open.get(session.id, {})
        if session.closed or len(questions) >= _MAX_OPEN:
            return None
        held = sum(len(question.request) for question in questions.values())
        if questions and held + len(params) > _MAX_SESSION_BYTES:
            return None
        if self._bytes and self._bytes + len(params) > _MAX_BYTES:
            return None
        number = next(self._ids)
        request = encode_request(number, method, params)
        question = Question(number, session, request, done, upstream, raw_id)
        question.expire_after(
            self._seconds(), lambda: self.end(question, "nobody answered in time")
        )
        self._open.setdefault(session.id, questions)[question.id] = question
        if upstream is not None:
            self._of.setdefault((upstream, raw_id), {})[question] = None
        self._bytes += len(request)
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
        question = next(iter(self._of.get((upstream, raw_id), ())), None)
        if question is not None:
            self.end(question, reason)

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
        session_id = question.session.id
        del self._open[session_id][question.id]
        if not self._open[session_id]:
            del self._open[session_id]
        if question.upstream is not None:
            same = self._of[(question.upstream, question.raw_id)]
            del same[question]
            if not same:
                del self._of[(question.upstream, question.raw_id)]
        self._bytes -= len(question.request)
        question.finish(answer)


def response_of(method: str, raw_id: bytes, answer: Message | None) -> bytes:
    """What the member is told: the client's answer, or that it gave none."""
    if answer is None:
        if method == "elicitation/create":
            return encode_result(raw_id, b'{"action":"cancel"}')
        return encode_error(raw_id, error_object(INTERNAL_ERROR, "the client gave no answer"))
    if answer.is_error:
        return encode_error(raw_id, answer.error)
    return encode_result(raw_id, answer.result)
