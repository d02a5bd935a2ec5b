"""Sessions over the old HTTP+SSE transport with scripted members, bytes on real sockets."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.harness.http_sessions import UNHEARD, always, call, failed_open, failure_of_call
from tests.harness.mutations import mutate
from tests.harness.sse_sessions import OpenedSse, connector_to, opened_sse
from tests.servers.raw_http import (
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
from tests.servers.raw_sse import ACCEPTED, OldMember, OldStream

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.http_reach import HttpReach
from mcpgroup_gateway.members.sse_connector import SseConnector
from mcpgroup_gateway.members.upstream import ClientIdentity, Forwarded, MemberFailure
from mcpgroup_gateway.wire.envelope import encode_result

if TYPE_CHECKING:
    from mcpgroup_gateway.members.upstream import Exchange
    from mcpgroup_gateway.wire.envelope import Message


def note(method: str, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


def question(request_id: object, method: str = "roots/list") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method}).encode()


async def silent(request: Request, stream: OldStream) -> None:
    """Never answer."""


async def started(it: OpenedSse, method: str = "tools/call", **options: object) -> Exchange:
    """An exchange whose request has reached a member that does not answer it."""
    before = len(it.server.seen(method))
    exchange = it.session.request(method, b'{"name":"t"}', **options)  # type: ignore[arg-type]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await exchange.next()
    await it.received(method, before + 1)
    return exchange


async def next_of(exchange: Exchange) -> Message:
    async with asyncio.timeout(5):
        return await exchange.next()


async def failure_of(exchange: Exchange) -> MemberFailure:
    with pytest.raises(MemberFailure) as caught:
        await next_of(exchange)
    return caught.value


# Opening


async def test_a_session_is_opened_by_the_stream_and_posts_to_the_endpoint_it_names() -> None:
    headers = (("Authorization", "Bearer t"), ("X-Team", "a"))
    async with opened_sse(OldMember(), headers=headers) as it:
        assert it.session.handshake.protocol_version == "2024-11-05"
        assert not it.session.handshake.modern
        await call(it.session)
        get, initialize, initialized, called = it.server.requests
        assert (get.method, get.target, get.headers["accept"]) == (
            "GET",
            "/sse",
            "text/event-stream",
        )
        assert [r.rpc_method for r in (initialize, initialized, called)] == [
            "initialize",
            "notifications/initialized",
            "tools/call",
        ]
        assert initialize.message["params"]["capabilities"] == {}
        for request in it.server.requests:
            assert (request.headers["authorization"], request.headers["x-team"]) == (
                "Bearer t",
                "a",
            )
        for request in (initialize, initialized, called):
            assert (request.method, request.target) == ("POST", "/messages?id=0")
        assert "mcp-protocol-version" not in initialize.headers
        assert called.headers["mcp-protocol-version"] == "2024-11-05"


async def test_the_member_is_told_of_the_client_that_a_session_is_for() -> None:
    client = ClientIdentity(b'{"roots":{}}', b'{"name":"n","version":"2"}')
    async with RawServer(OldMember()) as server:
        connector = connector_to(server)
        session = await connector.open(replace(UNHEARD, client=client), 5)
        (initialize,) = server.seen("initialize")
        assert initialize.message["params"]["capabilities"] == {"roots": {}}
        assert initialize.message["params"]["clientInfo"] == {"name": "n", "version": "2"}
        await session.close()
        await connector.close()


@pytest.mark.parametrize("endpoint", ["messages/?s=1", "../up", "?only=query", "ABSOLUTE"])
async def test_an_endpoint_may_be_relative_or_absolute_on_the_same_origin(endpoint: str) -> None:
    member = OldMember(endpoint)
    async with RawServer(member) as server:
        if endpoint == "ABSOLUTE":
            member.endpoint = server.url.replace("/mcp", "/there")
        connector = connector_to(server, "/a/b/sse")
        session = await connector.open(UNHEARD, 5)
        wanted = {"messages/?s=1": "/a/b/messages/?s=1", "../up": "/a/up", "ABSOLUTE": "/there"}
        assert server.requests[-1].target == wanted.get(endpoint, "/a/b/sse?only=query")
        await session.close()
        await connector.close()


@pytest.mark.parametrize(
    "endpoint",
    ["http://127.0.0.1:1/x", "//example.com/x", "https://127.0.0.1/x", "http://localhost/x", ""],
)
async def test_an_endpoint_elsewhere_is_refused_and_nothing_is_sent_there(endpoint: str) -> None:
    async with RawServer(OldMember(endpoint)) as server:
        found = await failed_open(connector_to(server, headers=(("Authorization", "Bearer t"),)))
        assert (found.failure, found.sent) == (Failure.START_FAILED, False)
        assert "endpoint event" in found.reason
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("data", "failure", "status"),
    [
        (response(status=401), Failure.NOT_RUN, 401),
        (response(status=404), Failure.NOT_RUN, 404),
        (response(status=405), Failure.NOT_RUN, 405),
        (response(status=500), Failure.HTTP_ERROR, 500),
        (response(b"{}"), Failure.MALFORMED, 200),
        (stream_head() + chunk(b"") + b"\r\n", Failure.RESET, None),
        (stream_head() + chunk(b"data: {}\n\n") + chunk(b"") + b"\r\n", Failure.RESET, None),
    ],
)
async def test_a_stream_that_is_refused_or_says_nothing_is_a_failed_start(
    data: bytes, failure: Failure, status: int | None
) -> None:
    async with RawServer(OldMember().get(always(data))) as server:
        found = await failed_open(connector_to(server))
        assert (found.failure, found.status, found.sent) == (failure, status, False)


async def test_a_member_that_names_no_endpoint_fails_at_the_deadline() -> None:
    async with RawServer(OldMember().get(always(stream_head()))) as server:
        found = await failed_open(connector_to(server), deadline=0.1)
        assert (found.failure, found.late) == (Failure.START_FAILED, False)
        await asyncio.wait_for(server.peers[0].gone.wait(), 5)


async def test_a_stream_redirected_on_its_host_is_followed_and_its_endpoint_is_relative_to_it() -> (
    None
):
    async def moved(request: Request, peer: Peer) -> None:
        if request.target == "/sse":
            await peer.send(response(status=307, headers=(("Location", "/new/sse/"),)))
        else:
            await member.open_stream(peer)

    member = OldMember("post").get(moved)
    async with opened_sse(member) as it:
        assert it.server.requests[-1].target == "/new/sse/post"


@pytest.mark.parametrize("location", ["http://example.com/sse", "https://127.0.0.1:1/sse"])
async def test_a_stream_redirected_elsewhere_is_refused(location: str) -> None:
    moved = always(response(status=307, headers=(("Location", location),)))
    async with RawServer(OldMember().get(moved)) as server:
        found = await failed_open(connector_to(server))
        assert found.failure is (
            Failure.HTTP_ERROR if location.startswith("http:") else Failure.REFUSED
        )


async def test_the_next_url_is_tried_when_the_first_cannot_be_reached() -> None:
    async with RawServer(OldMember()) as server:
        url = server.url.replace("/mcp", "/sse")
        reach = HttpReach("one", "http://127.0.0.1:1/sse", fallback_urls=(url,))
        connector = SseConnector(reach)
        session = await connector.open(UNHEARD, 5)
        assert not session.lost
        await session.close()
        await connector.close()


# Answers


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_events_are_read_with_every_line_end_and_comments_between(end: bytes) -> None:
    async def answer(request: Request, stream: OldStream) -> None:
        data = b": ping" + end + end + event(result(request, {"n": 1}), end=end) + b": end" + end
        for index in range(0, len(data), 7):
            await stream.write(data[index : index + 7])

    async with opened_sse(OldMember().on("tools/call", answer)) as it:
        assert json.loads(bytes((await call(it.session)).result)) == {"n": 1}


async def test_a_result_crosses_byte_for_byte() -> None:
    odd = b'{"n":9007199254740993, "x":[1.0,1e400,-0],"\\u0061":null}'

    async def answer(request: Request, stream: OldStream) -> None:
        await stream.say(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request.id, odd))

    async with opened_sse(OldMember().on("tools/call", answer)) as it:
        assert bytes((await call(it.session)).result) == odd


async def test_an_answer_may_come_before_the_post_is_accepted() -> None:
    async def early(request: Request, peer: Peer) -> None:
        await member.stream_of(request).say(result(request, {}))
        await it.received("ping")
        await peer.send(ACCEPTED)

    member = OldMember().post("tools/call", early)
    async with opened_sse(member) as it:
        assert (await call(it.session)).is_response
        await call(it.session, "ping")


async def test_answers_in_any_order_reach_their_own_calls() -> None:
    waiting: list[Request] = []

    async def collect(request: Request, stream: OldStream) -> None:
        waiting.append(request)
        if len(waiting) == 50:
            for each in reversed(waiting):
                await stream.say(result(each, {"id": each.id}))

    async with opened_sse(OldMember().on("tools/call", collect)) as it:
        exchanges = [it.session.request("tools/call", b"{}") for _ in range(50)]
        answers = await asyncio.gather(*(next_of(exchange) for exchange in exchanges))
        for exchange, answer in zip(exchanges, answers, strict=True):
            assert json.loads(bytes(answer.result)) == {"id": exchange.request_id}
            exchange.close()
        assert it.session.in_flight == 0


@pytest.mark.parametrize(
    ("data", "failure", "lost"),
    [
        (response(status=404), Failure.SESSION_LOST, True),
        (response(status=400), Failure.SESSION_LOST, True),
        (response(error(None, -32000), status=400), Failure.SESSION_LOST, True),
        (response(status=401), Failure.NOT_RUN, False),
        (response(status=403), Failure.NOT_RUN, False),
        (response(status=413), Failure.HTTP_ERROR, False),
        (response(status=429), Failure.BUSY, False),
        (response(status=502), Failure.HTTP_ERROR, False),
        (response(status=302, headers=(("Location", "/x"),)), Failure.HTTP_ERROR, False),
        (b"nonsense\r\n\r\n", Failure.MALFORMED, False),
    ],
)
async def test_a_post_that_is_not_accepted_has_its_failure(
    data: bytes, failure: Failure, lost: bool
) -> None:
    async with opened_sse(OldMember().post("tools/call", always(data))) as it:
        found = await failure_of_call(it.session)
        assert (found.failure, found.sent) == (failure, True)
        assert it.session.lost == lost
        assert [each.failure for each in it.losses] == [Failure.SESSION_LOST] * lost
        if lost:
            after = await failure_of_call(it.session)
            assert (after.failure, after.sent) == (Failure.SESSION_LOST, False)
        else:
            await call(it.session, "ping")


async def test_a_refusal_with_an_error_for_this_request_is_an_answer() -> None:
    async def refuse(request: Request, peer: Peer) -> None:
        await peer.send(response(error(request.id, -32602), status=400))

    async with opened_sse(OldMember().post("tools/call", refuse)) as it:
        assert (await call(it.session)).is_error
        assert not it.session.lost


async def test_a_message_over_the_limit_fails_its_own_call_only() -> None:
    async def answer(request: Request, stream: OldStream) -> None:
        if request.message["params"]["name"] == "big":
            await stream.say(result(request, {"text": "x" * 100_000}))

    async with opened_sse(OldMember().on("tools/call", answer), response_limit=50_000) as it:
        other = await started(it)
        big = it.session.request("tools/call", b'{"name":"big"}')
        assert (await failure_of(big)).failure is Failure.TOO_LARGE
        big.close()
        await it.stream.say(
            b'{"jsonrpc":"2.0","id":%d,"result":{}}' % it.server.seen("tools/call")[0].id
        )
        assert (await next_of(other)).is_response
        other.close()
        assert not it.losses


async def test_a_malformed_answer_fails_its_own_call_only() -> None:
    async def answer(request: Request, stream: OldStream) -> None:
        await stream.say(b"what is this")
        await stream.say(b'{"jsonrpc":"2.0","id":%d,"result":{"n":NaN}}' % request.id)

    async with opened_sse(OldMember().on("tools/call", answer)) as it:
        assert (await failure_of_call(it.session)).failure is Failure.MALFORMED
        await call(it.session, "ping")


# The end of a stream


@pytest.mark.parametrize("how", ["reset", "close", "ended"])
async def test_a_stream_that_ends_loses_the_session_and_what_is_in_flight(how: str) -> None:
    async with opened_sse(OldMember().on("tools/call", silent)) as it:
        sent = await started(it)
        unsent = it.session.request("tools/call", b"{}")
        if how == "ended":
            await it.stream.write(b"")
        else:
            getattr(it.stream.peer, how)()
        found = await failure_of(sent)
        assert (found.failure, found.sent) == (Failure.RESET, True)
        found = await failure_of(unsent)
        assert (found.failure, found.sent) == (Failure.SESSION_LOST, False)
        assert [each.failure for each in it.losses] == [Failure.SESSION_LOST]
        assert it.session.lost
        sent.close()
        unsent.close()
        after = await failure_of_call(it.session)
        assert (after.failure, after.sent) == (Failure.SESSION_LOST, False)


async def test_closing_a_session_ends_its_stream_and_cancels_its_calls() -> None:
    async with opened_sse(OldMember().on("tools/call", silent)) as it:
        exchange = await started(it)
        await it.session.close()
        assert (await failure_of(exchange)).failure is Failure.CANCELLED
        exchange.close()
        (told,) = await it.received("notifications/cancelled")
        assert told.message["params"]["requestId"] == it.server.seen("tools/call")[0].id
        await asyncio.wait_for(it.stream.peer.gone.wait(), 5)
        assert not it.losses


# Cancellation, progress, requests of the member


async def test_an_aborted_call_is_cancelled_at_the_member_once_and_its_late_answer_dropped() -> (
    None
):
    async with opened_sse(OldMember().on("tools/call", silent)) as it:
        exchange = await started(it)
        exchange.abort(MemberFailure(Failure.DEADLINE, "too late", sent=True))
        exchange.abort(MemberFailure(Failure.DEADLINE, "too late", sent=True))
        assert (await failure_of(exchange)).failure is Failure.DEADLINE
        exchange.close()
        await it.received("notifications/cancelled")
        (called,) = it.server.seen("tools/call")
        await it.stream.say(result(called, {}))
        await call(it.session, "ping")
        assert len(it.server.seen("notifications/cancelled")) == 1


async def test_progress_and_logs_reach_the_call_that_they_belong_to() -> None:
    async with opened_sse(OldMember().on("tools/call", silent)) as it:
        exchange = await started(it, progress_token=11)
        await it.stream.say(note("notifications/progress", progressToken=12, progress=1))
        await it.stream.say(note("notifications/progress", progressToken=11, progress=2))
        await it.stream.say(note("notifications/message", level="info", data="one call"))
        assert b'"progress": 2' in bytes((await next_of(exchange)).params)
        assert b"one call" in bytes((await next_of(exchange)).params)
        other = await started(it)
        await it.stream.say(note("notifications/message", level="info", data="two calls"))
        await it.stream.say(note("notifications/tools/list_changed"))
        await it.told(it.notifications, 2)
        assert [each.method for each in it.notifications] == [
            "notifications/message",
            "notifications/tools/list_changed",
        ]
        exchange.close()
        other.close()


async def test_a_reader_that_is_too_slow_misses_notifications_and_no_answer() -> None:
    async with opened_sse(OldMember().on("tools/call", silent)) as it:
        exchange = await started(it, progress_token=11)
        for step in range(1000):
            await it.stream.say(note("notifications/progress", progressToken=11, progress=step))
        await it.stream.say(result(it.server.seen("tools/call")[0], {}))
        await call(it.session, "ping")
        seen = 0
        while not (await next_of(exchange)).is_response:
            seen += 1
        assert seen == 256
        exchange.close()


@pytest.mark.parametrize("asked", [True, False])
async def test_requests_of_the_member_are_answered_or_refused(asked: bool) -> None:
    async with opened_sse(OldMember(), asked=asked) as it:
        await it.stream.say(question("p", "ping"))
        await it.stream.say(question("r"))
        if asked:
            await it.told(it.requests)
            assert it.requests[0].raw_id == b'"r"'
            it.session.respond(encode_result(b'"r"', b'{"roots":[]}'))
        await it.server.until(lambda: len(it.server.seen("")) - 1 == 2)
        answers = {each.id: each.message for each in it.server.seen("") if each.method == "POST"}
        assert answers["p"]["result"] == {}
        if asked:
            assert answers["r"]["result"] == {"roots": []}
        else:
            assert answers["r"]["error"]["code"] == -32601


async def test_a_request_of_the_member_goes_to_the_only_call_that_it_can_be_about() -> None:
    async with opened_sse(OldMember().on("tools/call", silent), asked=True) as it:
        exchange = await started(it)
        await it.stream.say(question(5))
        assert (await next_of(exchange)).is_request
        for number in range(300):
            await it.stream.say(question(number + 100))
        await it.server.until(lambda: len(it.server.seen("")) - 1 == 300 - 256)
        exchange.close()
        assert not it.requests


async def test_headers_of_the_client_cross_unless_the_manifest_sets_them() -> None:
    async with opened_sse(OldMember(), headers=(("X-Team", "ours"),)) as it:
        headers = (
            ("X-Team", "theirs"),
            ("Traceparent", "00-1"),
            ("Content-Length", "1"),
            ("Host", "example.com"),
            ("X-Broken", "a\r\nX-Smuggled: b"),
        )
        exchange = it.session.request("tools/call", b"{}", forwarded=Forwarded(headers))
        assert (await next_of(exchange)).is_response
        exchange.close()
        (called,) = it.server.seen("tools/call")
        assert (called.headers["x-team"], called.headers["traceparent"]) == ("ours", "00-1")
        assert called.headers["host"].startswith("127.0.0.1")
        assert not {"x-broken", "x-smuggled"} & called.headers.keys()


async def test_a_redirected_post_keeps_its_body_and_its_headers() -> None:
    async def moved(request: Request, peer: Peer) -> None:
        if request.target != "/moved":
            await peer.send(response(status=307, headers=(("Location", "/moved"),)))
        else:
            await peer.send(ACCEPTED)
            await member.stream_of(request).say(result(request, {}))

    member = OldMember().post("tools/call", moved)
    async with opened_sse(member) as it:
        exchange = it.session.request(
            "tools/call", b'{"name":"t"}', forwarded=Forwarded((("X-One", "1"),))
        )
        assert (await next_of(exchange)).is_response
        exchange.close()
        first, second = it.server.seen("tools/call")
        assert second.body == first.body
        assert second.headers["x-one"] == "1"


async def test_damaged_streams_end_every_call_and_answer_no_wrong_one() -> None:
    """3,000 answers with random damage, several calls in flight; sessions are opened anew."""
    rng = random.Random(7)  # noqa: S311 - no secret
    answered = failed = 0

    async def answer(request: Request, stream: OldStream) -> None:
        good = event(result(request, {"text": "x" * 50}))
        damaged = mutate(rng, good) if rng.random() < 0.8 else good
        await stream.write(damaged + b"\n\n")

    for _ in range(30):
        async with opened_sse(OldMember().on("tools/call", answer), asked=True) as it:
            for number in range(0, 100, 5):
                if it.session.lost:
                    break
                exchanges = [it.session.request("tools/call", b'{"n":1}') for _ in range(5)]
                readers = [asyncio.create_task(exchange.next()) for exchange in exchanges]
                await it.received("tools/call", number + 5)
                await call(it.session, "ping")  # behind it nothing more comes
                for exchange, reader in zip(exchanges, readers, strict=True):
                    exchange.abort(MemberFailure(Failure.DEADLINE, "no answer", sent=True))
                    try:
                        message = await reader
                    except MemberFailure:
                        failed += 1
                    else:
                        answered += 1
                        assert not message.is_response or message.raw_id == b"%d" % (
                            exchange.request_id
                        )
                    exchange.close()
    assert answered > 500
    assert failed > 500
