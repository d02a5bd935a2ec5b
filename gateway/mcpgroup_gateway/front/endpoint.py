"""The HTTP side of `/mcp`: who may ask, what is well-formed, which method does what."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from multidict import istr

from mcpgroup_gateway.front import replies
from mcpgroup_gateway.front.bodies import BodyBroken, BodyTooLarge, BodyTooSlow, read_body
from mcpgroup_gateway.front.checks import (
    AccessPolicy,
    is_json,
    is_text,
    read_accept,
)
from mcpgroup_gateway.front.load import Load
from mcpgroup_gateway.front.modern import check_legacy, is_modern
from mcpgroup_gateway.front.modern_posts import ModernPostHandler
from mcpgroup_gateway.front.posts import Head, PostHandler
from mcpgroup_gateway.front.responses import preflight, respond
from mcpgroup_gateway.front.streams import GetWriter, PostChannel, Streams
from mcpgroup_gateway.serving.session import ForgottenStream
from mcpgroup_gateway.wire.envelope import PARSE_ERROR
from mcpgroup_gateway.wire.protocol import HEADER_MISMATCH, SESSION_HEADER, VERSION_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from mcpgroup_gateway.front.replies import Reply
    from mcpgroup_gateway.front.settings import FrontSettings, Observer
    from mcpgroup_gateway.serving.interface import Service
    from mcpgroup_gateway.serving.sessions import SessionTable

logger = logging.getLogger(__name__)

_PATHS: Final = ("/mcp", "/mcp/")
# Looked up by identity of type: an istr is not lowered again.
_HOST: Final = istr("Host")
_ORIGIN: Final = istr("Origin")
_ACCEPT: Final = istr("Accept")
_CONTENT_TYPE: Final = istr("Content-Type")
_SESSION: Final = istr(SESSION_HEADER)
_VERSION: Final = istr(VERSION_HEADER)
_ASKED_HEADERS: Final = istr("Access-Control-Request-Headers")
_LAST_EVENT_ID: Final = istr("Last-Event-ID")


class Endpoint:
    """Answers every request on the port; nothing that a client sends makes it raise.

    `in_flight` counts requests other than GET streams and subscriptions, `last_active` is the
    clock's time of the last arrival or end of one.
    """

    def __init__(
        self,
        service: Service,
        sessions: SessionTable,
        settings: FrontSettings,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._sessions = sessions
        self._observer = observer
        self._clock = clock
        self._load = Load(service, settings, observer)
        self._posts = PostHandler(service, sessions, self._load, observer, clock)
        self._modern_posts = ModernPostHandler(service, self._load, observer, clock)
        self.streams = Streams(clock)
        self.draining = False
        self.refusing = False
        self._requests = 0
        self.last_active = clock()
        self.update(settings)

    @property
    def running(self) -> int:
        return self._load.running

    @property
    def in_flight(self) -> int:
        return self._requests - self._load.listening

    def update(self, settings: FrontSettings) -> None:
        self._settings = settings
        self._load.settings = settings
        self._policy = AccessPolicy(
            loopback=settings.loopback,
            hosts=settings.allowed_hosts,
            origins=settings.allowed_origins,
        )
        self._tenant = istr(settings.tenant_header) if settings.tenant_header else None

    def drain(self) -> None:
        self.draining = True
        self.streams.draining = True

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One HTTP request."""
        origin: str | None = None
        try:
            headers = request.headers
            if not self._policy.allows_host(headers.get(_HOST, "")):
                return self._respond(replies.refusal(403, "this Host is not allowed"), None)
            origin = headers.get(_ORIGIN)
            if origin is not None and not self._policy.allows_origin(origin):
                return self._respond(replies.refusal(403, "this Origin is not allowed"), None)
            path = request.raw_path
            if path not in _PATHS and request.rel_url.raw_path not in _PATHS:
                return self._respond(replies.refusal(404, "MCP is served at /mcp"), origin)
            method = request.method
            if method == "OPTIONS":
                asked = ",".join(headers.getall(_ASKED_HEADERS, []))
                return preflight(origin, self._settings.tenant_header, asked, close=self.draining)
            if method in ("GET", "DELETE") and is_modern(headers.getall(_VERSION, [])):
                return self._respond(replies.posts_only(method), origin)
            if method == "GET":
                return await self._get(request, origin)
            if method not in ("POST", "DELETE"):
                text = f"{method} is not allowed; use GET, POST, DELETE or OPTIONS"
                return self._respond(replies.refusal(405, text), origin)
            self._requests += 1
            self.last_active = self._clock()
            try:
                if method == "POST":
                    return await self._post(request, origin)
                return self._respond(self._delete(request), origin)
            finally:
                self._requests -= 1
                self.last_active = self._clock()
        except Exception:  # by construction no request ends in an HTTP 500
            logger.exception("a request failed inside the gateway")
            return self._respond(replies.answer(replies.internal_error()), origin)

    def _respond(self, reply: Reply, origin: str | None) -> web.Response:
        return respond(reply, origin, close=self.draining)

    def _unavailable(self) -> Reply:
        self._observer.request_refused("draining")
        return replies.draining(self._service.name)

    async def _post(self, request: web.BaseRequest, origin: str | None) -> web.StreamResponse:
        headers = request.headers
        if self.refusing:
            return self._respond(self._unavailable(), origin)
        if not is_json(headers.get(_CONTENT_TYPE, "")):
            text = "Content-Type must be application/json in UTF-8"
            return self._respond(replies.refusal(415, text), origin)
        lines = headers.getall(_ACCEPT, [])
        accepts = read_accept(lines[0] if len(lines) == 1 else ",".join(lines))
        if not accepts.json and not accepts.events:
            text = "Accept must allow application/json and text/event-stream"
            return self._respond(replies.refusal(406, text), origin)
        tenant = None
        if self._tenant is not None:
            tenants = headers.getall(self._tenant, [])
            if len(tenants) > 1 or not is_text("".join(tenants)):
                text = f"{self._tenant} must be given once, in UTF-8"
                return self._respond(replies.refusal(400, text), origin)
            tenant = (tenants[0].strip() or None) if tenants else None
        settings = self._settings
        try:
            body = await read_body(request, settings.request_bytes, settings.body_seconds)
        except BodyTooLarge:
            text = f"a message may have {settings.request_bytes} bytes at most"
            return self._respond(replies.refusal(413, text), origin)
        except BodyTooSlow:
            text = f"the message did not arrive within {settings.body_seconds:g} s"
            return self._respond(replies.refusal(408, text)._replace(close=True), origin)
        except BodyBroken:
            reply = replies.refusal(400, "the body cannot be read", code=PARSE_ERROR)
            return self._respond(reply._replace(close=True), origin)
        head = Head(headers.get(_SESSION), accepts, tenant, request.remote or "", headers)
        channel = PostChannel(request, origin, self.streams)
        if is_modern(headers.getall(_VERSION, [])):
            answered = await self._modern_posts.handle(head, body, channel)
        elif (modern_id := check_legacy(body)) is not None:
            text = f"{VERSION_HEADER} must repeat the protocolVersion of _meta"
            answered = replies.refusal(400, text, code=HEADER_MISMATCH, raw_id=modern_id)
        else:
            answered = await self._posts.handle(head, body, channel)
        if answered is None:
            if channel.response is not None:
                return channel.response
            answered = replies.ACCEPTED  # the client has gone
        return self._respond(answered, origin)

    async def _get(self, request: web.BaseRequest, origin: str | None) -> web.StreamResponse:
        accepts = read_accept(",".join(request.headers.getall(_ACCEPT, [])))
        session_id = request.headers.get(_SESSION)
        if self.refusing:
            return self._respond(self._unavailable(), origin)
        if not accepts.events:
            text = "Accept must allow text/event-stream"
            return self._respond(replies.refusal(406, text), origin)
        if session_id is None:
            text = "a stream needs a session: Mcp-Session-Id"
            return self._respond(replies.refusal(400, text), origin)
        session = self._sessions.use(session_id)
        if session is None:
            return self._respond(
                replies.refusal(404, "session not found; initialize again"), origin
            )
        writer = GetWriter(request, origin, self.streams, session)
        last_event_id = request.headers.get(_LAST_EVENT_ID)
        try:
            if last_event_id:
                stream = session.resume_stream(last_event_id, writer)
            else:
                stream = session.open_stream(writer)
        except ForgottenStream:
            text = "the events behind this Last-Event-ID are not remembered"
            return self._respond(replies.refusal(400, text), origin)
        if stream is None:
            return self._respond(replies.NOTHING_FOLLOWS, origin)
        await writer.carry(stream)
        return writer.response or self._respond(replies.ACCEPTED, origin)

    def _delete(self, request: web.BaseRequest) -> Reply:
        if self.refusing:
            return self._unavailable()
        session_id = request.headers.get(_SESSION)
        if session_id is None:
            return replies.refusal(400, "DELETE needs a session: Mcp-Session-Id")
        if not self._sessions.close(session_id):
            return replies.refusal(404, "session not found")
        return replies.SESSION_ENDED
