"""The group as the front sees it: what is answered here, and what members are asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway import __version__
from mcpgroup_gateway.core.catalogue import NOT_CACHED, BadCursor
from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.serving.calls import ServedCall
from mcpgroup_gateway.serving.catalogues import EVERYBODY, FIRST_CATALOGUE_SECONDS, Audience
from mcpgroup_gateway.serving.listening import ListenCall
from mcpgroup_gateway.serving.local_calls import LocalCall
from mcpgroup_gateway.wire.capabilities import canonical_capabilities
from mcpgroup_gateway.wire.envelope import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MalformedMessage,
    encode_json,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.protocol import (
    CAPABILITY_OF,
    LEGACY_VERSIONS,
    LIST_METHODS,
    LISTEN,
    LOG_LEVELS,
    MODERN_VERSIONS,
    SERVER_INFO_KEY,
    Kind,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcpgroup_gateway.core.catalogue import Caching
    from mcpgroup_gateway.members.upstream import Upstream
    from mcpgroup_gateway.serving.context import Context
    from mcpgroup_gateway.serving.interface import Call, Caller
    from mcpgroup_gateway.serving.sessions import Session, SessionTable
    from mcpgroup_gateway.wire.envelope import Message, Raw
    from mcpgroup_gateway.wire.param_headers import ParamHeader

_EMPTY_RESULT: Final = b"{}"
#: Notifications of clients that may be on their way to members at once.
_MAX_TELLING: Final = 1000


class GroupService:
    """Implements `serving.interface.Service`; `description` is the group's."""

    def __init__(self, context: Context, sessions: SessionTable, description: str) -> None:
        self.context = context
        self.description = description
        self.draining = False
        self._sessions = sessions
        self._first_wait_ends: float | None = None
        self._telling: set[asyncio.Task[None]] = set()
        #: Modern clients that listen for changes.
        self.listening: set[ListenCall] = set()

    @property
    def name(self) -> str:
        return self.context.name

    # -- the interface of the front ------------------------------------------------------

    async def initialize(self, params: dict[str, Raw], protocol_version: str) -> bytes:
        await self.first_catalogues()
        view = self.context.catalogues.view(canary=False)
        members = [
            b'"protocolVersion":%b' % encode_json(protocol_version),
            b'"capabilities":%b' % view.capabilities(),
            b'"serverInfo":%b' % encode_json(self._info()),
        ]
        instructions = view.instructions()
        if instructions is not None:
            members.append(b'"instructions":%b' % encode_json(instructions))
        return b"{%b}" % b",".join(members)

    def _info(self) -> dict[str, object]:
        """How the group introduces itself: a group is the server that its clients see."""
        info: dict[str, object] = {"name": self.name, "version": __version__}
        if self.description:
            info["description"] = self.description
        return info

    async def discover(self, caller: Caller) -> bytes:
        await self.first_catalogues()
        view = self.context.view(caller)
        members = [
            b'"supportedVersions":%b' % encode_json([*MODERN_VERSIONS, *LEGACY_VERSIONS]),
            b'"capabilities":%b' % view.capabilities(),
        ]
        instructions = view.instructions()
        if instructions is not None:
            members.append(b'"instructions":%b' % encode_json(instructions))
        members.append(self._modern_members())
        return b"{%b}" % b",".join(members)

    def _modern_members(self, caching: Caching = NOT_CACHED) -> bytes:
        """What each result of the gateway itself says to a modern client besides its content.

        What depends on who asks is for that caller alone.
        """
        public = caching.public and self.context.catalogues.are_common
        return b'"resultType":"complete","ttlMs":%d,"cacheScope":"%b","_meta":{"%b":%b}' % (
            caching.ttl_ms,
            b"public" if public else b"private",
            SERVER_INFO_KEY,
            encode_json(self._info()),
        )

    def param_headers(self, tool: str, caller: Caller) -> tuple[ParamHeader, ...]:
        resolution = self.context.view(caller).resolve(Kind.TOOL, tool)
        return () if resolution is None else resolution.param_headers

    def respond(self, message: Message, caller: Caller) -> None:
        if caller.session is not None:
            self.context.questions.answered(caller.session, message)

    def begin(self, message: Message, caller: Caller) -> Call:
        method = message.method
        if caller.modern and method == LISTEN:
            return ListenCall(self, message, caller)
        if method in LIST_METHODS or method in _ANSWERED_HERE or _is_not_offered(method or ""):
            return LocalCall(self, message, caller)
        return ServedCall(self.context, message, caller)

    def notify(self, message: Message, caller: Caller) -> None:
        session = caller.session
        if session is None:
            return
        if message.method == "notifications/roots/list_changed":
            for upstream in self.context.upstreams.peek(session.id):
                self._tell(upstream, message.method)
        elif message.method == "notifications/cancelled":
            try:
                params = parse_object(message.params)
            except MalformedMessage:
                return
            calls = session.calls.get(bytes(params.get("requestId", b"")), ())
            # Clients reuse ids; a cancel that could mean either call must not hit the wrong one.
            if len(calls) == 1:
                calls[0].cancel(parse_string(params.get("reason")))

    def _tell(self, upstream: Upstream, method: str) -> None:
        if upstream.handshake.modern or len(self._telling) >= _MAX_TELLING:
            return
        task = asyncio.create_task(_notify(upstream, method), name=method)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    # -- drain ---------------------------------------------------------------------------

    def end_calls(self) -> None:
        """Answer everything that runs, now: the replica ends."""
        self.context.pending.close()
        self.end_listening()  # of those who came since the drain began
        for call in tuple(self.context.calls):
            call.drain()
        self._first_wait_ends = 0.0  # lists and `initialize` take what is known
        self.context.catalogues.wake()

    # -- lists ---------------------------------------------------------------------------

    async def first_catalogues(self) -> None:
        """Wait for members that were never read, at most 10 s from the first one who asked."""
        catalogues = self.context.catalogues
        missing = catalogues.missing()
        if not missing:
            self._first_wait_ends = None
            return
        clock = asyncio.get_running_loop().time
        if self._first_wait_ends is None:
            startup = self.context.policy.health.startup_timeout_seconds
            self._first_wait_ends = clock() + min(FIRST_CATALOGUE_SECONDS, startup)
        self.context.want(name for name in missing if not self.context.promises(name))
        while catalogues.missing() and (left := (self._first_wait_ends or 0.0) - clock()) > 0:
            await catalogues.wait(left)

    async def lists_of(self, caller: Caller) -> None:
        """See that the lists are known which this caller sees, within bounds."""
        await self.first_catalogues()
        await self.context.client_lists.ensure(caller)

    def listed(self, kind: Kind, message: Message, caller: Caller) -> bytes:
        """The result of a list request from what is known. Raises `MalformedMessage`."""
        raw = parse_object(message.params).get("cursor")
        cursor = None
        if raw is not None and bytes(raw) != b"null":
            cursor = parse_string(raw)
            if cursor is None:
                raise MalformedMessage(INVALID_PARAMS, '"cursor" must be a string')
        try:
            view = self.context.view(caller)
            page = view.listing(kind, modern=caller.modern).page(cursor)
        except BadCursor as fault:
            raise MalformedMessage(INVALID_PARAMS, f"invalid cursor: {fault}") from fault
        if not caller.modern:
            return page
        return b"%b,%b}" % (page[:-1], self._modern_members(view.caching(kind)))

    def lists_changed(
        self, kinds: Iterable[Kind], audience: Audience, unaffected: frozenset[str] = frozenset()
    ) -> None:
        """Tell each session that sees it once for each capability whose lists changed; not those
        whose ids are in `unaffected`."""
        changed = {CAPABILITY_OF[kind]: kind for kind in kinds}
        for session in self._sessions.all():
            if audience.session_id not in (None, session.id) or session.id in unaffected:
                continue
            if audience != EVERYBODY and audience.capabilities != canonical_capabilities(
                session.client.capabilities
            ):
                continue
            for kind in changed.values():
                session.notify_list_changed(kind)
        for listening in tuple(self.listening):
            client = listening.caller.client
            if audience.session_id is None and audience.capabilities in (
                EVERYBODY.capabilities,
                canonical_capabilities(client.capabilities),
            ):
                for capability in changed:
                    listening.notify_list_changed(capability)

    # -- log levels ----------------------------------------------------------------------

    def set_level(self, message: Message, caller: Caller) -> bytes:
        """Keep a session's level and pass it on in the background. Raises `MalformedMessage`."""
        level = parse_string(parse_object(message.params).get("level"))
        if level not in LOG_LEVELS:
            raise MalformedMessage(
                INVALID_PARAMS, f'"level" must be one of {", ".join(LOG_LEVELS)}'
            )
        if caller.session is not None:
            caller.session.log_level = level
            levels = self.context.log_levels
            for upstream in self.context.upstreams.peek(caller.session.id):
                levels.set(upstream, level)
            for supervisor in self.context.supervisors.values():
                shared = self.context.settings[supervisor.endpoint.id].shared
                if shared and supervisor.control is not None:
                    levels.set_shared(supervisor.control)
        return _EMPTY_RESULT

    def asked_levels(self) -> Iterable[str]:
        """What the client sessions asked for."""
        return [s.log_level for s in self._sessions.all() if s.log_level is not None]

    # -- subscriptions -------------------------------------------------------------------

    async def subscribe(self, message: Message, caller: Caller) -> bytes | None:
        """Begin or end to follow a resource in a session; the member's error when it refuses.

        Raises `GatewayError` or `MalformedMessage`.
        """
        uri = parse_string(parse_object(message.params).get("uri"))
        if uri is None:
            raise MalformedMessage(INVALID_PARAMS, '"uri" must be a string')
        await self.first_catalogues()
        if not self.context.view(caller).subscribable:
            raise MalformedMessage(METHOD_NOT_FOUND, f"Method not found: {message.method}")
        if message.method == "resources/subscribe":
            return await self.context.subscriptions.subscribe(caller, uri)
        await self.context.subscriptions.unsubscribe(caller, uri)
        return None

    def end_listening(self) -> None:
        """Tell listening clients that the replica goes."""
        for listening in tuple(self.listening):
            listening.end()

    def session_ended(self, session: Session) -> None:
        self.context.questions.session_ended(session)
        self.context.catalogues.session_ended(session.id)
        self.context.aiming.links.session_ended(session.id)
        self.context.subscriptions.session_ended(session.id)
        self.context.upstreams.close_owner(session.id)

    async def close(self) -> None:
        self.context.pending.close()
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)
        await self.context.client_lists.close()
        await self.context.listeners.close()
        await self.context.log_levels.close()


_ANSWERED_HERE: Final = frozenset(
    {"logging/setLevel", "ping", "resources/subscribe", "resources/unsubscribe"}
)


def _is_not_offered(method: str) -> bool:
    """Experimental tasks, whose capability the gateway does not declare."""
    return method.startswith("tasks/")


async def _notify(upstream: Upstream, method: str) -> None:
    try:
        await upstream.notify(method, b"")
    except MemberFailure:
        return  # whoever uses the session learns it
