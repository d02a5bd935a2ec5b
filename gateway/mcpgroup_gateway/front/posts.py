"""What a POST means: one JSON-RPC message in, an answer or a stream of messages out.

Knows MCP and sessions, but no HTTP library: the front below it can be replaced.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from mcpgroup_gateway.front import replies
from mcpgroup_gateway.front.batches import BATCH_VERSION, Batch, is_array, read_batch
from mcpgroup_gateway.front.checks import Accepts, negotiate
from mcpgroup_gateway.front.replies import Reply
from mcpgroup_gateway.members.upstream import ClientIdentity
from mcpgroup_gateway.serving.interface import Caller
from mcpgroup_gateway.serving.session import Post
from mcpgroup_gateway.wire.capabilities import MAX_CAPABILITIES_BYTES, MAX_INFO_BYTES
from mcpgroup_gateway.wire.envelope import (
    INVALID_PARAMS,
    MalformedMessage,
    Message,
    Raw,
    encode_error,
    encode_result,
    error_object,
    parse_message,
    parse_object,
    parse_string,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcpgroup_gateway.front.load import Load
    from mcpgroup_gateway.front.settings import Observer
    from mcpgroup_gateway.serving.interface import Service, Sink
    from mcpgroup_gateway.serving.session import Session
    from mcpgroup_gateway.serving.sessions import SessionTable

logger = logging.getLogger(__name__)

#: Requests that mean nothing without a session (DESIGN-MCP section 1).
_NEED_SESSION: Final = frozenset(
    {"resources/subscribe", "resources/unsubscribe", "logging/setLevel"}
)


class Head(NamedTuple):
    """What matters of a request's headers, already checked."""

    session_id: str | None
    accepts: Accepts
    tenant: str | None
    remote: str
    headers: Mapping[str, str]


class Channel(Post, Protocol):
    """The way back to the client of one POST, as a stream of messages if need be."""

    @property
    def sink(self) -> Sink: ...

    @property
    def is_open(self) -> bool:
        """True once the stream has begun: no plain answer is possible any more."""
        ...

    def begin(self, *, stream: bool, session: Session | None = None) -> None:
        """A call begins; with `stream` a silent one becomes a stream and is kept alive.

        In a session the stream is one of the session's and outlives its connection.
        """
        ...

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Run `callback` when the client disconnects before `end`; at once if it has."""
        ...

    async def finish(self, message: bytes | None) -> None:
        """Send the last message, if any, and end the stream."""
        ...

    def end(self) -> None:
        """The call is over; what is sent to the sink from now on is dropped."""
        ...


class PostHandler:
    """Answers POSTed messages of clients with a session, or of plain JSON-RPC clients."""

    def __init__(
        self,
        service: Service,
        sessions: SessionTable,
        load: Load,
        observer: Observer,
        clock: Callable[[], float],
    ) -> None:
        self._service = service
        self._sessions = sessions
        self._observer = observer
        self._clock = clock
        self._load = load

    async def handle(self, head: Head, body: bytes, channel: Channel) -> Reply | None:
        """The answer to a POST; None when it went through the channel."""
        try:
            message = parse_message(body)
        except MalformedMessage as fault:
            if is_array(body) and head.session_id is not None:
                return await self._batch(body, fault, head, channel)
            return replies.refusal(400, fault.text, code=fault.code, raw_id=fault.request_id)
        try:
            return await self._dispatch(message, head, channel)
        except Exception:  # a fault of ours must not become an HTTP 500
            logger.exception("a message failed inside the gateway")
            return replies.answer(replies.internal_error(message.raw_id))

    async def _dispatch(self, message: Message, head: Head, channel: Channel) -> Reply | None:
        method = message.method
        raw_id = message.raw_id
        if method == "initialize" and raw_id:
            # A client that starts anew may still send the id of a session that has ended.
            return await self._initialize(message, raw_id, channel)
        session = None
        if head.session_id is not None:
            session = self._sessions.use(head.session_id)
            if session is None:
                return replies.refusal(404, "session not found; initialize again", raw_id=raw_id)
        elif method is None or (raw_id and method in _NEED_SESSION):
            return replies.refusal(400, "this needs a session: Mcp-Session-Id", raw_id=raw_id)
        if method is None:
            self._service.respond(message, self._caller(session, head))
            return replies.ACCEPTED
        if not raw_id:
            self._service.notify(message, self._caller(session, head))
            return replies.ACCEPTED
        if method == "ping":
            self._observer.request_answered("ping", "ok", 0.0)
            return replies.answer(encode_result(raw_id, b"{}"))
        if self._load.is_full:
            return self._load.refuse(method, raw_id)
        return await self._call(message, raw_id, session, head, channel)

    async def _call(
        self, message: Message, raw_id: bytes, session: Session | None, head: Head, channel: Channel
    ) -> Reply | None:
        accepts = head.accepts
        # Plain JSON-RPC clients send `*/*` and understand no events: without a session only a
        # client that names them gets them.
        streams = accepts.events and (session is not None or accepts.names_events)
        sink = channel.sink if streams else None
        caller = self._caller(session, head, sink)
        call = self._service.begin(message, caller)
        channel.begin(stream=streams, session=session)
        if session is None:
            channel.on_gone(lambda: call.cancel("the client disconnected"))
        else:
            session.call_began(raw_id, call, channel)
        try:
            result = await self._load.run(call, raw_id)
        finally:
            channel.end()
            if session is not None:
                session.call_ended(raw_id, call, channel, self._clock())
        if channel.is_open or not accepts.json:
            await channel.finish(result)
            return None
        if result is None:
            return replies.CANCELLED_STREAM if accepts.events else replies.ACCEPTED
        return replies.answer(result)

    async def _batch(
        self, body: bytes, fault: MalformedMessage, head: Head, channel: Channel
    ) -> Reply | None:
        session = self._sessions.use(head.session_id or "")
        if session is None:
            return replies.refusal(404, "session not found; initialize again")
        if session.protocol_version != BATCH_VERSION:
            return replies.refusal(400, fault.text, code=fault.code)
        try:
            messages = read_batch(body)
        except MalformedMessage as broken:
            return replies.refusal(400, broken.text, code=broken.code)
        caller = self._caller(session, head, channel.sink if head.accepts.events else None)

        def take(message: Message) -> None:
            if message.method is None:
                self._service.respond(message, caller)
            else:
                self._service.notify(message, caller)

        async def answer(message: Message) -> bytes | None:
            return await self._answer(message, session, caller, channel)

        return await Batch(messages, head.accepts, channel, take, answer).run(session)

    async def _answer(
        self, message: Message, session: Session, caller: Caller, channel: Channel
    ) -> bytes | None:
        """The response to one request of a batch; None when it was cancelled."""
        method, raw_id = message.method or "", message.raw_id
        if method == "ping":
            self._observer.request_answered("ping", "ok", 0.0)
            return encode_result(raw_id, b"{}")
        if self._load.is_full:
            return self._load.refuse(method, raw_id).body
        call = self._service.begin(message, caller)
        session.call_began(raw_id, call, channel)
        try:
            return await self._load.run(call, raw_id)
        finally:
            session.call_ended(raw_id, call, channel, self._clock())

    def _caller(self, session: Session | None, head: Head, sink: Sink | None = None) -> Caller:
        if session is None:
            return Caller(None, head.tenant, head.remote, head.headers, sink)
        return Caller(
            session,
            head.tenant,
            head.remote,
            head.headers,
            sink,
            session.client,
            session.protocol_version,
        )

    async def _initialize(self, message: Message, raw_id: bytes, channel: Channel) -> Reply:
        began = self._clock()
        try:
            params = parse_object(message.params)
            requested = parse_string(params.get("protocolVersion"))
            if requested is None:
                raise MalformedMessage(INVALID_PARAMS, '"protocolVersion" must be a string')
            info = _object_member(params, "clientInfo", MAX_INFO_BYTES)
            capabilities = _object_member(params, "capabilities", MAX_CAPABILITIES_BYTES)
        except MalformedMessage as fault:
            self._observer.request_answered("initialize", "invalid", 0.0)
            return replies.answer(encode_error(raw_id, error_object(INVALID_PARAMS, fault.text)))
        version = negotiate(requested)
        result = await self._service.initialize(params, version)
        if channel.is_gone:
            # Nobody would ever learn the id of the session.
            return replies.ACCEPTED
        session = self._sessions.open(version, ClientIdentity(capabilities, info))
        seconds = self._clock() - began
        if session is None:
            self._observer.request_refused("overloaded")
            self._observer.request_answered("initialize", "overloaded", seconds)
            wait = self._sessions.seconds_until_room()
            return replies.too_many_sessions(self._service.name, raw_id, wait)
        self._observer.request_answered("initialize", "ok", seconds)
        return Reply(200, encode_result(raw_id, result), session_id=session.id)


def _object_member(params: Mapping[str, Raw], name: str, maximum: int) -> bytes:
    """A member that must be an object when it is there, raw; ``{}`` when it is not."""
    raw = bytes(params.get(name, b""))
    if raw in (b"", b"null"):
        return b"{}"
    if not raw.startswith(b"{"):
        raise MalformedMessage(INVALID_PARAMS, f'"{name}" must be an object')
    if len(raw) > maximum:
        raise MalformedMessage(INVALID_PARAMS, f'"{name}" may have {maximum} bytes at most')
    return raw
