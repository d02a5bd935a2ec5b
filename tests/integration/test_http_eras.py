"""Members over HTTP of both eras, and how the era of each is found out."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.http_sessions import connector_to
from tests.servers.raw_http import (
    Handler,
    Member,
    Peer,
    RawServer,
    Request,
    chunk,
    error,
    event,
    response,
    result,
    stream_head,
)
from tests.servers.raw_modern import (
    ModernMember,
    complete,
    notification,
    stream,
    subscribed,
    unsupported,
)

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members import negotiation
from mcpgroup_gateway.members.negotiation import Era
from mcpgroup_gateway.members.upstream import (
    NOTHING_FORWARDED,
    ClientIdentity,
    Forwarded,
    MemberFailure,
    Opening,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mcpgroup_gateway.members.http_opening import HttpSession
    from mcpgroup_gateway.members.streamable import StreamableConnector
    from mcpgroup_gateway.members.streamable_exchange import StreamableExchange
    from mcpgroup_gateway.wire.envelope import Message

CLIENT = ClientIdentity(b'{"elicitation":{}}', b'{"name":"someone","version":"2"}')
CANCELLED = MemberFailure(Failure.CANCELLED, "the caller gave up", sent=True)
OWN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "someone", "version": "2"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


@dataclass
class Heard:
    """What a session reported."""

    notifications: list[Message] = field(default_factory=list)
    requests: list[Message] = field(default_factory=list)
    losses: list[MemberFailure] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, kind: list[Any]) -> Callable[[Any], None]:
        def noted(item: Any) -> None:
            kind.append(item)
            self.news.set()

        return noted

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                self.news.clear()
                await self.news.wait()


@contextlib.asynccontextmanager
async def session_of(
    connector: StreamableConnector,
    heard: Heard | None = None,
    *,
    control: bool = False,
    asks: bool = False,
    with_session: bool = False,
    deadline: float = 5,
) -> AsyncIterator[HttpSession]:
    heard = heard or Heard()
    opening = Opening(
        on_notification=heard.note(heard.notifications),
        on_lost=heard.note(heard.losses),
        control=control,
        client=CLIENT,
        on_request=heard.note(heard.requests) if asks else None,
        with_session=with_session,
    )
    session = await connector.open(opening, deadline)
    try:
        yield session
    finally:
        await session.close()


@contextlib.asynccontextmanager
async def connected(handler: Handler, **options: Any) -> AsyncIterator[tuple[Any, RawServer]]:
    async with RawServer(handler) as server:
        connector = connector_to(server.url, **options)
        try:
            yield connector, server
        finally:
            await connector.close()


def request(
    session: HttpSession,
    method: str = "tools/call",
    params: str = '{"name":"t"}',
    forwarded: Forwarded = NOTHING_FORWARDED,
) -> StreamableExchange:
    return session.request(method, params.encode(), forwarded=forwarded)


async def next_of(exchange: StreamableExchange) -> Message:
    async with asyncio.timeout(5):
        return await exchange.next()


async def answer_of(exchange: StreamableExchange) -> Message:
    try:
        return await next_of(exchange)
    finally:
        exchange.close()


async def failure_of(exchange: StreamableExchange) -> MemberFailure:
    with pytest.raises(MemberFailure) as caught:
        await answer_of(exchange)
    return caught.value


def seen(server: RawServer) -> list[str]:
    return [each.rpc_method or each.method for each in server.requests]


# Finding the era


async def test_a_modern_member_is_asked_once_and_further_sessions_cost_nothing() -> None:
    async with connected(ModernMember()) as (connector, server):
        async with session_of(connector) as session:
            assert session.handshake.modern
            assert session.handshake.instructions == "Be modern."
            assert json.loads(session.handshake.server_info) == {"name": "raw", "version": "2"}
            assert "listChanged" in json.loads(session.handshake.capabilities)["tools"]
        async with session_of(connector) as session:
            assert session.handshake.modern
        assert len(server.probes) == 1
        assert seen(server) == []
        async with session_of(connector, control=True):
            assert len(server.probes) == 2  # the start of a member is a proof that it is there
        assert seen(server) == []


async def test_a_modern_member_is_asked_once_whether_it_has_sessions_too() -> None:
    async with connected(ModernMember()) as (connector, server):
        async with session_of(connector, control=True):
            pass
        for _ in range(2):
            async with session_of(connector, asks=True, with_session=True) as session:
                assert session.handshake.modern
        assert seen(server).count("initialize") == 1


async def test_a_member_of_both_eras_gives_a_session_to_a_client_that_has_one() -> None:
    modern, legacy = ModernMember(), Member()

    async def both(request: Request, peer: Peer) -> None:
        spoken = request.headers.get("mcp-protocol-version") == "2026-07-28"
        await (modern if spoken else legacy)(request, peer)

    async with connected(both) as (connector, server):
        async with session_of(connector, control=True) as control:
            assert control.handshake.modern
        async with session_of(connector, asks=True, with_session=True) as session:
            assert session.handshake.protocol_version == "2025-11-25"
            await answer_of(request(session))
        async with session_of(connector, asks=True) as session:
            assert session.handshake.modern  # what was found out first still holds
        # What routes requests to a modern member may stand before it.
        posts = [each for each in server.requests if each.method == "POST"]
        assert {each.rpc_method for each in posts} >= {"initialize", "tools/call"}
        assert all(each.headers["mcp-method"] == each.rpc_method for each in posts)
        assert [each.headers.get("mcp-name") for each in posts].count("t") == 1


async def test_a_legacy_member_is_asked_once_over_the_connection_of_its_session() -> None:
    async with connected(Member()) as (connector, server):
        for _ in range(2):
            async with session_of(connector) as session:
                assert session.handshake.protocol_version == "2025-11-25"
        assert len(server.probes) == 1
        assert server.requests[0].connection == server.probes[0].connection
        assert [each.rpc_method for each in server.requests].count("initialize") == 2


@pytest.mark.parametrize(
    "data",
    [
        response(status=404, content_type=None),
        response(status=405),
        response(b"Not acceptable", status=406, content_type="text/plain"),
        response(b"Bad Request: Server not initialized", status=400, content_type="text/plain"),
        response(error(None, -32000, "Server not initialized"), status=400),
        response(error("server-error", -32600, "Missing session ID"), status=400),
        response(b"oops", status=500, content_type="text/plain"),
        response(b"<html>", content_type="text/html"),
        response(b'{"jsonrpc":"2.0","id":1,"result":{}}'),
        response(b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'),
        response(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no"}}', status=400),
    ],
)
async def test_whatever_a_legacy_member_says_to_a_modern_request_it_is_legacy(data: bytes) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(data)

    async with (
        connected(Member().on("server/discover", script)) as (connector, _),
        session_of(connector, control=True) as session,
    ):
        assert not session.handshake.modern
        assert (await answer_of(request(session))).is_response


async def test_a_member_that_drops_the_connection_of_the_question_is_legacy() -> None:
    async def script(request: Request, peer: Peer) -> None:
        peer.close()

    async with (
        connected(Member().on("server/discover", script)) as (connector, _),
        session_of(connector) as session,
    ):
        assert not session.handshake.modern


async def test_a_member_that_is_silent_to_the_question_is_legacy_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(negotiation, "PATIENCE_SECONDS", 0.05)

    async def silent(request: Request, peer: Peer) -> None:
        await peer.gone.wait()

    async with connected(Member().on("server/discover", silent)) as (connector, server):
        async with session_of(connector) as session:
            assert not session.handshake.modern
        async with session_of(connector) as session:
            assert not session.handshake.modern
        assert len(server.probes) == 1


async def test_a_slow_start_of_a_modern_member_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both questions wait for a server that does not read yet; it refuses `initialize` then."""
    monkeypatch.setattr(negotiation, "PATIENCE_SECONDS", 0.05)
    started = asyncio.Event()
    modern = ModernMember()

    async def slow(request: Request, peer: Peer) -> None:
        if request.rpc_method == "initialize":
            asyncio.get_running_loop().call_later(0.05, started.set)
        await started.wait()
        await modern(request, peer)

    async with connected(slow) as (connector, _), session_of(connector) as session:
        assert session.handshake.modern
        assert (await answer_of(request(session))).is_response


async def test_a_member_that_refuses_initialize_because_it_is_modern_is_asked_again() -> None:
    modern = ModernMember()

    async def script(request: Request, peer: Peer) -> None:
        if request.rpc_method == "server/discover" and len(server.probes) == 1:
            await peer.send(response(status=503, content_type=None))
        else:
            await modern(request, peer)

    async with connected(script) as (connector, server), session_of(connector) as session:
        assert session.handshake.modern
        assert seen(server) == ["initialize"]
        assert len(server.probes) == 2


async def test_a_given_era_is_not_asked_for() -> None:
    async with connected(Member(), era=Era.LEGACY) as (connector, server), session_of(connector):
        assert not server.probes
    async with connected(Member(), era=Era.MODERN) as (connector, server):
        with pytest.raises(MemberFailure, match="era Modern"):
            async with session_of(connector):
                pass
        assert not server.requests


async def test_a_member_that_is_down_is_asked_for_its_era_when_it_is_back() -> None:
    handler: Handler = Member()

    async def current(request: Request, peer: Peer) -> None:
        await handler(request, peer)

    async with connected(current) as (connector, server):
        async with session_of(connector):
            pass

        async def down(request: Request, peer: Peer) -> None:
            await peer.send(response(status=500, content_type=None))

        handler = down
        with pytest.raises(MemberFailure):
            async with session_of(connector):
                pass
        handler = ModernMember()
        async with session_of(connector) as session:
            assert session.handshake.modern
        assert len(server.probes) == 2


async def test_an_upgraded_member_is_opened_in_its_new_era_without_a_failure() -> None:
    handler: Handler = Member()

    async def current(request: Request, peer: Peer) -> None:
        await handler(request, peer)

    async with connected(current) as (connector, _):
        heard = Heard()
        async with session_of(connector, heard) as session:
            handler = ModernMember()
            assert (await failure_of(request(session))).failure is Failure.SESSION_LOST
            assert heard.losses
        async with session_of(connector) as session:
            assert session.handshake.modern


@pytest.mark.parametrize("status", [400, 404, 405, 406])
async def test_a_downgraded_member_ends_its_modern_sessions_and_is_opened_anew(status: int) -> None:
    """The first call that it refuses fails as HTTP says it; a question shows why."""
    handler: Handler = ModernMember()

    async def current(request: Request, peer: Peer) -> None:
        await handler(request, peer)

    async def refuse(request: Request, peer: Peer) -> None:
        if "mcp-session-id" in request.headers or request.rpc_method == "initialize":
            await Member()(request, peer)
        else:
            await peer.send(response(error(None, -32000), status=status))

    async with connected(current) as (connector, _):
        heard = Heard()
        async with session_of(connector, heard) as session:
            handler = refuse
            failure = await failure_of(request(session))
            assert (failure.failure, failure.status) != (Failure.SESSION_LOST, None)
            await heard.until(lambda: heard.losses)
            assert heard.losses[0].failure is Failure.SESSION_LOST
            assert session.lost
        async with session_of(connector) as session:
            assert not session.handshake.modern
            assert (await answer_of(request(session))).is_response


async def test_a_bare_error_of_a_member_that_is_still_modern_ends_no_session() -> None:
    async def refuse(request: Request, peer: Peer) -> None:
        await peer.send(response(status=404, content_type=None))

    async with connected(ModernMember().on("tools/call", refuse)) as (connector, server):
        heard = Heard()
        async with session_of(connector, heard) as session:
            assert (await failure_of(request(session))).failure is Failure.NOT_RUN
            await server.until(lambda: len(server.probes) == 2)
            assert (await answer_of(request(session, "tools/list", "{}"))).is_response
            assert not session.lost
            assert not heard.losses


async def test_a_version_that_is_no_longer_served_ends_the_session_and_proves_no_run() -> None:
    async def refuse(request: Request, peer: Peer) -> None:
        await peer.send(response(unsupported(request, "2030-01-01"), status=400))

    async with connected(ModernMember().on("tools/call", refuse)) as (connector, _):
        heard = Heard()
        async with session_of(connector, heard) as session:
            assert (await failure_of(request(session))).failure is Failure.SESSION_LOST
            assert heard.losses


async def test_a_probe_that_is_answered_in_legacy_ways_ends_the_session() -> None:
    answers = [complete, lambda request: result(request, {})]
    modern = ModernMember()

    async def stateless(request: Request, peer: Peer) -> None:
        await peer.send(response(answers[-1](request)))

    async with connected(modern) as (connector, _):
        heard = Heard()
        async with session_of(connector, heard, control=True) as session:
            modern.on("server/discover", stateless)
            failure = await failure_of(request(session, "server/discover", ""))
            assert failure.failure is Failure.SESSION_LOST
            assert heard.losses


# Speaking modern


async def test_every_request_says_who_asks_and_what_in_meta_and_headers() -> None:
    async with connected(ModernMember(), headers=[("Authorization", "Bearer x")]) as (
        connector,
        server,
    ):
        forwarded = Forwarded(
            headers=(
                ("Mcp-Param-Region", "eu"),
                ("traceparent", "00-1"),
                ("authorization", "Bearer of-the-client"),
                ("Mcp-Session-Id", "s"),
                ("bad", "line\nbreak"),
            ),
            log_level="debug",
        )
        async with session_of(connector) as session:
            await answer_of(request(session, params='{"name":"t","a":1.0}', forwarded=forwarded))
            await answer_of(request(session, "prompts/get", '{"name":"\\u65e5\\u672c"}'))
            await answer_of(request(session, "resources/read", '{"uri":"file:///x?y"}'))
            await answer_of(request(session, "tools/list", ""))
        call, prompt, read, listed = server.requests
        assert b'"a":1.0' in call.body
        level = {"io.modelcontextprotocol/logLevel": "debug"}
        assert call.message["params"]["_meta"] == {**OWN_META, **level}
        assert listed.message["params"] == {"_meta": OWN_META}
        for each in (server.probes[0], call, prompt, read, listed):
            assert each.headers["mcp-protocol-version"] == "2026-07-28"
            assert each.headers["mcp-method"] == each.rpc_method
            assert each.headers["authorization"] == "Bearer x"
            assert "mcp-session-id" not in each.headers
        assert call.headers["mcp-name"] == "t"
        assert prompt.headers["mcp-name"] == "=?base64?5pel5pys?="
        assert read.headers["mcp-name"] == "file:///x?y"
        assert "mcp-name" not in listed.headers
        assert call.headers["mcp-param-region"] == "eu"
        assert call.headers["traceparent"] == "00-1"
        assert "bad" not in call.headers
        assert "mcp-param-region" not in prompt.headers


async def test_a_legacy_session_forwards_headers_too_and_resumes_with_them() -> None:
    async def broken(request: Request, peer: Peer) -> None:
        await peer.send(stream_head() + chunk(b"id: 1\nretry: 50\ndata: \n\n"))
        peer.close()

    async def resumed(request: Request, peer: Peer) -> None:
        answer = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {}}).encode()
        await stream(peer, answer)

    handler = Member().on("tools/call", broken).on("GET", resumed)
    async with (
        connected(handler) as (connector, server),
        session_of(connector) as session,
    ):
        forwarded = Forwarded(headers=(("X-Team", "blue"),), log_level="debug")
        assert (await answer_of(request(session, forwarded=forwarded))).is_response
        call, get = server.requests[-2:]
        assert (call.headers["x-team"], get.headers["x-team"]) == ("blue", "blue")
        assert "_meta" not in call.message["params"]


async def test_a_cancel_closes_the_connection_and_nothing_is_sent_after_it() -> None:
    async def hang(request: Request, peer: Peer) -> None:
        await peer.send(stream_head() + chunk(event(notification("notifications/message"))))
        await peer.gone.wait()

    async with (
        connected(ModernMember().on("tools/call", hang)) as (connector, server),
        session_of(connector) as session,
    ):
        exchange = request(session)
        await next_of(exchange)
        exchange.abort(CANCELLED)
        assert (await failure_of(exchange)).failure is Failure.CANCELLED
        peer = server.peers[server.requests[0].connection]
        await asyncio.wait_for(peer.gone.wait(), 5)
        await answer_of(request(session, "tools/list", ""))
        assert seen(server) == ["tools/call", "tools/list"]


async def test_closing_tells_the_member_nothing() -> None:
    async with connected(ModernMember()) as (connector, server):
        async with session_of(connector, control=True, asks=True) as session:
            await session.notify("notifications/roots/list_changed", b"")
            session.respond(b'{"jsonrpc":"2.0","id":1,"result":{}}')
        assert server.requests == []


@pytest.mark.parametrize(("status", "code"), [(400, -32602), (404, -32601), (200, -32603)])
async def test_an_error_with_our_id_is_the_answer_whatever_the_status_is(
    status: int, code: int
) -> None:
    async def refuse(request: Request, peer: Peer) -> None:
        await peer.send(response(error(request.id, code), status=status))

    heard = Heard()
    async with (
        connected(ModernMember().on("tools/call", refuse)) as (connector, server),
        session_of(connector, heard) as session,
    ):
        answer = await answer_of(request(session))
        assert json.loads(bytes(answer.error))["code"] == code
        assert not session.lost
        assert len(server.probes) == 1


async def test_progress_log_and_answer_come_in_order_and_requests_are_ignored() -> None:
    async def script(request: Request, peer: Peer) -> None:
        asked = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "roots/list"}).encode()
        await stream(
            peer,
            notification("notifications/progress", progressToken=7, progress=1),
            notification("notifications/progress", progressToken=8, progress=1),
            asked,
            notification("notifications/message", level="info", data="x"),
            complete(request),
        )

    heard = Heard()
    async with (
        connected(ModernMember().on("tools/call", script)) as (connector, server),
        session_of(connector, heard, asks=True) as session,
    ):
        exchange = session.request("tools/call", b'{"name":"t"}', progress_token=7)
        methods = [(await next_of(exchange)).method for _ in range(3)]
        exchange.close()
        assert methods == ["notifications/progress", "notifications/message", None]
        assert not heard.requests
        assert seen(server) == ["tools/call"]


async def test_a_stream_that_breaks_is_not_resumed_even_after_an_event_id() -> None:
    async def broken(request: Request, peer: Peer) -> None:
        await peer.send(stream_head() + chunk(b"id: 1\nretry: 1\ndata: \n\n"))
        peer.close()

    async with (
        connected(ModernMember().on("tools/call", broken)) as (connector, server),
        session_of(connector) as session,
    ):
        assert (await failure_of(request(session))).failure is Failure.RESET
        assert seen(server) == ["tools/call"]


async def test_a_listen_gets_its_acknowledgement_its_changes_and_its_end_on_its_own_stream() -> (
    None
):
    async def listening(request: Request, peer: Peer) -> None:
        await stream(
            peer,
            subscribed(request, "notifications/subscriptions/acknowledged"),
            subscribed(request, "notifications/tools/list_changed"),
            subscribed(request, "notifications/resources/updated"),
            complete(request),
        )

    heard = Heard()
    async with (
        connected(ModernMember().on("subscriptions/listen", listening)) as (connector, _),
        session_of(connector, heard) as session,
    ):
        listen = request(session, "subscriptions/listen", '{"notifications":{}}')
        methods = [(await next_of(listen)).method for _ in range(4)]
        listen.close()
        assert methods == [
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
            "notifications/resources/updated",
            None,
        ]
        assert not heard.notifications


async def test_a_listen_ends_with_a_cancel_of_the_member_or_with_its_stream() -> None:
    async def listening(request: Request, peer: Peer) -> None:
        ack = subscribed(request, "notifications/subscriptions/acknowledged")
        cancelled = notification("notifications/cancelled", requestId=request.id)
        last = () if len(server.requests) > 1 else (cancelled,)
        await stream(peer, ack, *last, end=len(server.requests) > 1)

    async with (
        connected(ModernMember().on("subscriptions/listen", listening)) as (connector, server),
        session_of(connector) as session,
    ):
        for _ in range(2):
            listen = request(session, "subscriptions/listen", "{}")
            await next_of(listen)
            assert (await failure_of(listen)).failure is Failure.RESET
        assert seen(server) == ["subscriptions/listen"] * 2


async def test_a_redirect_of_the_question_is_followed_once_for_the_session() -> None:
    member = ModernMember()

    async def moved(request: Request, peer: Peer) -> None:
        if request.target == "/mcp":
            headers = (("Location", "/other"),)
            await peer.send(response(status=307, content_type=None, headers=headers))
        else:
            await member(request, peer)

    async with connected(moved) as (connector, server):
        for _ in range(2):
            async with session_of(connector) as session:
                assert (await answer_of(request(session))).is_response
        assert [each.target for each in server.probes] == ["/mcp", "/other"]
        assert [each.target for each in server.requests] == ["/other", "/other"]


# Requests of legacy members


def asking(request_id: str) -> bytes:
    message = {"jsonrpc": "2.0", "id": request_id, "method": "elicitation/create", "params": {}}
    return json.dumps(message).encode()


@pytest.mark.parametrize("on_get", [False, True])
async def test_a_question_on_the_stream_of_a_call_or_of_the_session_is_answered_by_its_id(
    on_get: bool,
) -> None:
    answered, streaming = asyncio.Event(), asyncio.Event()
    streams: list[Peer] = []

    async def get(request: Request, peer: Peer) -> None:
        await peer.send(stream_head())
        streams.append(peer)
        streaming.set()
        await peer.gone.wait()

    async def call(request: Request, peer: Peer) -> None:
        await peer.send(stream_head())
        asked_on = streams[0] if on_get else peer
        await asked_on.send(chunk(event(asking("q-1"))))
        await answered.wait()
        await peer.send(chunk(event(result(request, {}))) + chunk(b""))

    async def taken(request: Request, peer: Peer) -> None:
        await peer.send(response(status=202, content_type=None))
        answered.set()

    handler = Member().on("GET", get).on("tools/call", call).on("response", taken)
    heard = Heard()
    async with (
        connected(handler) as (connector, server),
        session_of(connector, heard, asks=True) as session,
    ):
        await asyncio.wait_for(streaming.wait(), 5)
        exchange = request(session)
        asked = await next_of(exchange)
        assert asked.method == "elicitation/create"
        session.respond(b'{"jsonrpc":"2.0","id":%b,"result":{"action":"accept"}}' % asked.raw_id)
        assert (await answer_of(exchange)).is_response
        sent = next(
            each for each in server.requests if each.method == "POST" and not each.rpc_method
        )
        assert sent.message == {"jsonrpc": "2.0", "id": "q-1", "result": {"action": "accept"}}
        assert sent.headers["mcp-session-id"] == "s-1"


async def test_a_question_that_belongs_to_no_call_and_its_cancel_go_to_the_session() -> None:
    async def get(request: Request, peer: Peer) -> None:
        cancelled = notification("notifications/cancelled", requestId="q-1")
        await stream(peer, asking("q-1"), cancelled, end=False)
        await peer.gone.wait()

    heard = Heard()
    async with (
        connected(Member().on("GET", get)) as (connector, _),
        session_of(connector, heard, asks=True),
    ):
        await heard.until(lambda: heard.requests and heard.notifications)
        assert heard.requests[0].raw_id == b'"q-1"'
        assert heard.notifications[0].method == "notifications/cancelled"


async def test_a_member_cancels_its_question_on_the_stream_of_the_call() -> None:
    async def call(request: Request, peer: Peer) -> None:
        cancelled = notification("notifications/cancelled", requestId="q-1")
        await stream(peer, asking("q-1"), cancelled, result(request, {}))

    heard = Heard()
    async with (
        connected(Member().on("tools/call", call)) as (connector, _),
        session_of(connector, heard, asks=True) as session,
    ):
        exchange = request(session)
        assert (await next_of(exchange)).method == "elicitation/create"
        assert (await answer_of(exchange)).is_response
        assert [each.method for each in heard.notifications] == ["notifications/cancelled"]


async def test_a_member_that_floods_with_questions_is_refused_when_too_many_wait() -> None:
    flood = 1100

    async def get(request: Request, peer: Peer) -> None:
        await server.until(lambda: bool(server.seen("tools/call")))
        await peer.send(stream_head())
        for number in range(flood):
            await peer.send(chunk(event(asking(f"q-{number}"))))
        await peer.gone.wait()

    async def hang(request: Request, peer: Peer) -> None:
        await peer.gone.wait()

    handler = Member().on("GET", get).on("tools/call", hang)
    async with (
        connected(handler) as (connector, server),
        session_of(connector, asks=True) as session,
    ):
        exchange = request(session)
        assert (await next_of(exchange)).method == "elicitation/create"
        await server.until(lambda: len(server.seen("")) > 1)
        refusal = server.seen("")[-1].message
        assert refusal["error"]["code"] == -32603
        exchange.close()


async def test_a_session_without_a_client_that_could_answer_refuses_at_once() -> None:
    async def call(request: Request, peer: Peer) -> None:
        await peer.send(stream_head() + chunk(event(asking("q-1"))))
        await server.until(lambda: any(each.id == "q-1" for each in server.requests))
        await peer.send(chunk(event(result(request, {}))) + chunk(b""))

    async with (
        connected(Member().on("tools/call", call)) as (connector, server),
        session_of(connector) as session,
    ):
        assert (await answer_of(request(session))).is_response
        refusal = next(each for each in server.requests if each.id == "q-1")
        assert refusal.message["error"]["code"] == -32601
        assert all(each.method == "POST" for each in server.requests)  # no stream of its own
