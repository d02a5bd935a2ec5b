"""What members say in the upstream sessions of callers, outside of any call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpgroup_gateway.serving.interface import Caller
from mcpgroup_gateway.serving.log_levels import tell_level
from mcpgroup_gateway.serving.questions import response_of
from mcpgroup_gateway.serving.relay import passes_level
from mcpgroup_gateway.wire.capabilities import may_be_asked
from mcpgroup_gateway.wire.envelope import (
    METHOD_NOT_FOUND,
    MalformedMessage,
    encode_error,
    encode_notification,
    error_object,
    parse_object,
    parse_string,
)

if TYPE_CHECKING:
    from mcpgroup_gateway.core.endpoint import Endpoint
    from mcpgroup_gateway.members.upstream import MemberFailure, Upstream
    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.serving.deadlines import Deadline
    from mcpgroup_gateway.serving.sessions import SessionTable
    from mcpgroup_gateway.wire.envelope import Message


class UpstreamMessages:
    """Takes them to the client session that the upstream session serves, its `owner`."""

    def __init__(self, context: Context, sessions: SessionTable) -> None:
        self.context = context
        self._sessions = sessions

    async def opened(self, owner: str, endpoint_id: str, upstream: Upstream) -> None:
        """A new upstream session of a caller gets the level that its client asked for, and knows
        nothing of the lists that the one before it showed."""
        endpoint = self._endpoint(endpoint_id)
        if endpoint is None:
            return
        self.context.catalogues.forget_overlay(owner, endpoint.member)
        session = self._sessions.get(owner)
        if session is not None and not session.closed and session.log_level is not None:
            await tell_level(upstream, session.log_level)

    def lost(self, endpoint_id: str, failure: MemberFailure) -> None:
        """A caller's own upstream session ended by itself."""
        supervisor = self.context.supervisors.get(endpoint_id)
        if supervisor is not None:
            supervisor.probe_now()
        self.context.subscriptions.look_again()

    def heard(self, owner: str, endpoint_id: str, upstream: Upstream, message: Message) -> None:
        """A notification of a caller's own upstream session that belongs to no call."""
        endpoint = self._endpoint(endpoint_id)
        if endpoint is None:
            return
        session = self._sessions.get(owner)
        if self.context.is_about_lists(endpoint, message, upstream, session):
            return
        method = message.method
        if session is None or method is None:
            return
        if method == "notifications/cancelled":
            self._taken_back(upstream, message)
        elif method == "notifications/resources/updated":
            self.context.subscriptions.updated(endpoint, upstream, message)
        elif method == "notifications/elicitation/complete" or (
            method == "notifications/message" and passes_level(Caller(session), message)
        ):
            session.push(encode_notification(method, message.params))

    def asked(self, owner: str, endpoint_id: str, upstream: Upstream, message: Message) -> None:
        """A request of a member that is about no call in particular: it goes to the session."""
        if self._endpoint(endpoint_id) is None:
            return
        session = self._sessions.get(owner)
        method, raw_id = message.method or "", message.raw_id
        if session is None or method not in may_be_asked(session.client.capabilities):
            fault = error_object(METHOD_NOT_FOUND, "the client has no such capability")
            upstream.respond(encode_error(raw_id, fault))
            return
        paused: list[Deadline] = []

        def done(answer: Message | None) -> None:
            for deadline in paused:
                deadline.resume()
            upstream.respond(response_of(method, raw_id, answer))

        question = self.context.questions.ask(
            session, method, bytes(message.params), done, upstream=upstream, raw_id=raw_id
        )
        if question is None:
            upstream.respond(response_of(method, raw_id, None))
            return
        # One of them waits for the client, and nobody knows which.
        attempts = self.context.in_flight.on(endpoint_id, upstream)
        paused += filter(None, [attempt.pause_clock() for attempt in attempts])
        if not session.push_request(question.request):
            self.context.questions.end(question)

    def _endpoint(self, endpoint_id: str) -> Endpoint | None:
        """None when the member was removed meanwhile."""
        return self.context.group.endpoints.get(endpoint_id)

    def _taken_back(self, upstream: Upstream, message: Message) -> None:
        try:
            params = parse_object(message.params)
        except MalformedMessage:
            return
        reason = parse_string(params.get("reason"))
        self.context.questions.taken_back(upstream, bytes(params.get("requestId", b"")), reason)
