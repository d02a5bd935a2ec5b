"""Sessions, answers and failures of members over streamable HTTP, against scripted servers."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest
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

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members import http1, streamable_exchange, streamable_session
from mcpgroup_gateway.members.streamable import StreamableConnector
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mcpgroup_gateway.members.streamable_session import StreamableUpstream
    from mcpgroup_gateway.wire.envelope import Message


@dataclass
class Opened:
    """A session with a scripted member and what it reported."""

    server: RawServer
    connector: StreamableConnector
    session: StreamableUpstream
    notifications: list[Message] = field(default_factory=list)
    losses: list[MemberFailure] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)


@contextlib.asynccontextmanager
async def opened(
    handler: Handler, *, control: bool = False, **options: Any
) -> AsyncIterator[Opened]:
    async with RawServer(handler) as server:
        connector = StreamableConnector("one", server.url, **options)
        notifications: list[Message] = []
        losses: list[MemberFailure] = []
        news = asyncio.Event()

        def notified(message: Message) -> None:
            notifications.append(message)
            news.set()

        def lost(failure: MemberFailure) -> None:
            losses.append(failure)
            news.set()

        session = await connector.open(
            on_notification=notified, on_lost=lost, control=control, deadline=5
        )
        try:
            yield Opened(server, connector, session, notifications, losses, news)
        finally:
            await session.close()
            await connector.close()


async def call(
    session: StreamableUpstream,
    method: str = "tools/call",
    *,
    safe: bool = False,
    seen: list[Message] | None = None,
    token: int | None = None,
) -> Message:
    exchange = session.request(method, b'{"name":"t"}', safe=safe, progress_token=token)
    try:
        async with asyncio.timeout(10):
            while True:
                message = await exchange.next()
                if message.is_response:
                    return message
                if seen is not None:
                    seen.append(message)
    finally:
        exchange.close()


async def failure_of_call(session: StreamableUpstream, **options: Any) -> MemberFailure:
    with pytest.raises(MemberFailure) as caught:
        await call(session, **options)
    return caught.value


def always(data: bytes) -> Handler:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(data)

    return script


def made(make: Callable[[Request], bytes]) -> Handler:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(make(request))

    return script


def progress(token: int, value: int = 1) -> bytes:
    params = {"progressToken": token, "progress": value}
    return json.dumps(
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    ).encode()


# Sessions


async def test_the_handshake_is_kept_raw_and_every_request_carries_session_and_version() -> None:
    async with opened(Member(version="2025-06-18")) as it:
        handshake = it.session.handshake
        assert handshake.protocol_version == "2025-06-18"
        assert json.loads(handshake.capabilities) == {"tools": {}}
        assert json.loads(handshake.server_info)["name"] == "raw"
        assert handshake.instructions == "Be kind."
        await call(it.session)
        first, *others = it.server.requests
        assert "mcp-session-id" not in first.headers
        assert "mcp-protocol-version" not in first.headers
        assert first.message["params"]["protocolVersion"] == "2025-11-25"
        assert first.message["params"]["capabilities"] == {}
        assert [each.rpc_method for each in others] == ["notifications/initialized", "tools/call"]
        for each in others:
            assert each.headers["mcp-session-id"] == "s-1"
            assert each.headers["mcp-protocol-version"] == "2025-06-18"
            assert each.headers["accept"] == "application/json, text/event-stream"


async def test_closing_deletes_the_session_and_a_sessionless_member_is_left_alone() -> None:
    async with opened(Member()) as it:
        await it.session.close()
        assert it.server.requests[-1].method == "DELETE"
        assert it.server.requests[-1].headers["mcp-session-id"] == "s-1"
        await it.session.close()
        assert [each.method for each in it.server.requests].count("DELETE") == 1
    async with opened(Member(session=None)) as it:
        await call(it.session)
    assert "DELETE" not in [each.method for each in it.server.requests]
    assert "mcp-session-id" not in it.server.requests[-1].headers


async def test_a_member_that_hangs_on_delete_does_not_hold_up_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streamable_session, "CLOSE_SECONDS", 0.05)

    async def hang(request: Request, peer: Peer) -> None:
        await peer.gone.wait()

    async with opened(Member().on("DELETE", hang)) as it, asyncio.timeout(1):
        await it.session.close()


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26"])
async def test_older_versions_are_taken(version: str) -> None:
    async with opened(Member(version=version)) as it:
        assert it.session.handshake.protocol_version == version


async def test_an_unknown_version_is_a_failed_start_that_names_it() -> None:
    async with RawServer(Member(version="1999-01-01")) as server:
        failure = await failed_open(StreamableConnector("one", server.url))
        assert (failure.failure, failure.sent) == (Failure.START_FAILED, False)
        assert "1999-01-01" in failure.reason
        assert server.requests[-1].method == "DELETE"


async def failed_open(connector: StreamableConnector, deadline: float = 5) -> MemberFailure:
    with pytest.raises(MemberFailure) as caught:
        await connector.open(
            on_notification=lambda _: None,
            on_lost=lambda _: None,
            control=False,
            deadline=deadline,
        )
    await connector.close()
    return caught.value


@pytest.mark.parametrize(
    ("data", "failure", "status"),
    [
        (response(status=401), Failure.NOT_RUN, 401),
        (response(status=500), Failure.HTTP_ERROR, 500),
        (response(error(1, -32603)), Failure.START_FAILED, None),
        (response(b"<html>", content_type="text/html"), Failure.MALFORMED, 200),
        (response(b'{"jsonrpc":"2.0","id":1,"result":[]}'), Failure.START_FAILED, None),
    ],
)
async def test_a_start_that_fails_says_why(
    data: bytes, failure: Failure, status: int | None
) -> None:
    async with RawServer(Member().on("initialize", always(data))) as server:
        found = await failed_open(StreamableConnector("one", server.url))
        assert (found.failure, found.status, found.sent) == (failure, status, False)


async def test_a_member_that_never_answers_initialize_fails_at_the_deadline() -> None:
    async with RawServer(Member().on("initialize", always(b""))) as server:
        found = await failed_open(StreamableConnector("one", server.url), deadline=0.1)
        assert (found.failure, found.late) == (Failure.START_FAILED, False)


# Answers


async def test_an_answer_over_any_status_is_an_answer_when_it_has_our_id() -> None:
    for status in (200, 400, 500, 503, 429):
        script = made(
            lambda request, status=status: response(  # type: ignore[misc]
                error(request.id, -32602), status=status
            )
        )
        async with opened(Member(session=None).on("tools/call", script)) as it:
            assert (await call(it.session)).is_error


async def test_a_result_crosses_byte_for_byte() -> None:
    odd = b'{"n":9007199254740993, "x":[1.0,1e400,-0],"\\u0061":null}'
    script = made(
        lambda request: response(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request.id, odd))
    )
    async with opened(Member().on("tools/call", script)) as it:
        assert bytes((await call(it.session)).result) == odd


@pytest.mark.parametrize(
    ("data", "failure"),
    [
        (response(status=401), Failure.NOT_RUN),
        (response(status=403), Failure.NOT_RUN),
        (response(status=405), Failure.NOT_RUN),
        (response(status=404), Failure.SESSION_LOST),
        (response(status=400), Failure.SESSION_LOST),
        (response(error(None, -32000), status=400), Failure.SESSION_LOST),
        (response(error("server-error", -32600), status=404), Failure.SESSION_LOST),
        (response(status=502), Failure.HTTP_ERROR),
        (response(status=503), Failure.HTTP_ERROR),
        (response(status=302, headers=(("Location", "/x"),)), Failure.HTTP_ERROR),
        (response(b"hello", content_type="text/plain"), Failure.MALFORMED),
        (response(b"", content_type=None), Failure.MALFORMED),
        (response(b"{"), Failure.MALFORMED),
        (response(b'{"jsonrpc":"2.0","id":12345,"result":{}}'), Failure.MALFORMED),
        (response(status=202, content_type=None), Failure.MALFORMED),
        (b"nonsense\r\n\r\n", Failure.MALFORMED),
    ],
)
async def test_each_other_response_has_its_failure(data: bytes, failure: Failure) -> None:
    async with opened(Member().on("tools/call", always(data))) as it:
        found = await failure_of_call(it.session)
        assert (found.failure, found.sent) == (failure, True)


async def test_without_a_session_404_and_400_say_nothing_about_sessions() -> None:
    for status, failure in ((404, Failure.NOT_RUN), (400, Failure.HTTP_ERROR)):
        script = always(response(status=status))
        async with opened(Member(session=None).on("tools/call", script)) as it:
            assert (await failure_of_call(it.session)).failure is failure


async def test_a_session_error_with_our_id_is_a_lost_session_and_another_error_is_an_answer() -> (
    None
):
    code = -32000
    script = made(lambda request: response(error(request.id, code), status=400))
    async with opened(Member().on("tools/call", script)) as it:
        code = -32602
        assert (await call(it.session)).is_error
        code = -32000
        assert (await failure_of_call(it.session)).failure is Failure.SESSION_LOST


async def test_busy_members_say_when_to_come_back() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    cases = [
        (429, (("Retry-After", "7"),), 7.0),
        (429, (), None),
        (503, (("Retry-After", later),), 30.0),
    ]
    for status, headers, expected in cases:
        script = always(response(status=status, headers=headers))
        async with opened(Member().on("tools/call", script)) as it:
            found = await failure_of_call(it.session)
            assert (found.failure, found.status) == (Failure.BUSY, status)
            assert found.retry_after == (
                None if expected is None else pytest.approx(expected, abs=5)
            )


async def test_a_lost_session_is_reported_once_and_before_its_calls_fail() -> None:
    async with opened(Member().on("tools/call", always(response(status=404)))) as it:
        exchange = it.session.request("tools/call", b"{}")
        with pytest.raises(MemberFailure):
            await exchange.next()
        exchange.close()
        assert it.session.lost
        assert [each.failure for each in it.losses] == [Failure.SESSION_LOST]
        found = await failure_of_call(it.session)
        assert (found.failure, found.sent) == (Failure.SESSION_LOST, False)
        assert len(it.losses) == 1
    assert it.server.requests[-1].method == "POST"  # nothing is left to delete


async def test_answers_of_a_megabyte_and_more_arrive_whole() -> None:
    text = "x" * 3_000_000
    script = made(lambda request: response(result(request, {"text": text})))
    streamed = made(
        lambda request: stream_head() + chunk(event(result(request, {"text": text}))) + chunk(b"")
    )
    for each in (script, streamed):
        async with opened(Member().on("tools/call", each)) as it:
            assert len(bytes((await call(it.session)).result)) > 3_000_000


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("announced", [False, True])
async def test_an_answer_over_the_limit_is_too_large(streamed: bool, announced: bool) -> None:
    body = b'{"jsonrpc":"2.0","id":2,"result":{"text":"' + b"x" * 5000 + b'"}}'
    if streamed:
        data = stream_head() + chunk(event(body)) + chunk(b"")
    elif announced:
        data = response(body)
    else:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        data = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(body) + chunk(b"")
    async with opened(Member().on("tools/call", always(data)), response_limit=1000) as it:
        assert (await failure_of_call(it.session)).failure is Failure.TOO_LARGE
        await call(it.session, "ping")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "raw", "two members"])
async def test_a_content_encoding_that_nobody_asked_for_is_decoded(coding: str) -> None:
    def encode(data: bytes) -> bytes:
        if coding == "gzip":
            return gzip.compress(data)
        if coding == "two members":
            return gzip.compress(data[:9]) + gzip.compress(data[9:])
        return zlib.compress(data) if coding == "deflate" else zlib.compress(data)[2:-4]

    name = "deflate" if coding in ("deflate", "raw") else "gzip"
    headers = (("Content-Encoding", name),)
    text = "x" * 1_000_000
    script = made(lambda request: response(encode(result(request, {"t": text})), headers=headers))
    async with opened(Member().on("tools/call", script)) as it:
        assert len(bytes((await call(it.session)).result)) > 1_000_000


async def test_a_zip_bomb_stops_at_the_limit_and_a_broken_or_unknown_coding_is_malformed() -> None:
    bomb = gzip.compress(b"[" * 200_000_000, 1)
    cases = [
        (bomb, "gzip", Failure.TOO_LARGE),
        (gzip.compress(b"{}")[:-6], "gzip", Failure.MALFORMED),
        (b"no gzip", "gzip", Failure.MALFORMED),
        (b"?", "br", Failure.MALFORMED),
    ]
    for body, coding, failure in cases:
        script = always(response(body, headers=(("Content-Encoding", coding),)))
        async with opened(Member().on("tools/call", script)) as it:
            assert (await failure_of_call(it.session)).failure is failure


# Streams


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_streams_with_any_line_end_cut_at_every_byte_are_read(end: bytes) -> None:
    async def script(request: Request, peer: Peer) -> None:
        stream = event(progress(7), end=end) + event(result(request, {"ok": True}), end=end)
        wire = stream_head() + b"".join(chunk(bytes([each])) for each in stream) + chunk(b"")
        for index in range(0, len(wire), 7):
            await peer.send(wire[index : index + 7])
            await asyncio.sleep(0)

    async with opened(Member().on("tools/call", script)) as it:
        seen: list[Message] = []
        answer = await call(it.session, seen=seen, token=7)
        assert json.loads(bytes(answer.result)) == {"ok": True}
        assert [each.method for each in seen] == ["notifications/progress"]


async def test_what_belongs_to_the_call_stays_with_it_and_the_rest_goes_to_the_session() -> None:
    log = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}'
    changed = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    stranger = b'{"jsonrpc":"2.0","id":999,"result":{}}'
    other = b"event: endpoint\ndata: /x\n\n"

    def script(request: Request) -> bytes:
        late = event(progress(1, 9)) + event(result(request, {"second": True}))
        parts = [log, changed, stranger, progress(1), progress(99), result(request, {})]
        body = other + b": hi\n\n" + b"".join(event(each) for each in parts) + late
        return stream_head() + chunk(body) + chunk(b"")

    async with opened(Member().on("tools/call", made(script))) as it:
        seen: list[Message] = []
        answer = await call(it.session, seen=seen, token=1)
        assert bytes(answer.result) == b"{}"
        assert [each.method for each in seen] == ["notifications/message", "notifications/progress"]
        assert [each.method for each in it.notifications] == ["notifications/tools/list_changed"]


async def test_requests_of_the_member_are_answered_at_once() -> None:
    async def script(request: Request, peer: Peer) -> None:
        ping = b'{"jsonrpc":"2.0","id":"p","method":"ping"}'
        ask = b'{"jsonrpc":"2.0","id":5,"method":"roots/list"}'
        await peer.send(stream_head() + chunk(event(ping) + event(ask)))
        await it.server.until(lambda: len(answers()) == 2)
        await peer.send(chunk(event(result(request, {}))) + chunk(b""))

    def answers() -> list[dict[str, Any]]:
        return [each.message for each in it.server.requests if each.body and not each.rpc_method]

    async with opened(Member().on("tools/call", script)) as it:
        await call(it.session)
        by_id = {each["id"]: each for each in answers()}
        assert by_id["p"]["result"] == {}
        assert by_id[5]["error"]["code"] == -32601


async def test_a_malformed_event_ends_the_call() -> None:
    script = always(stream_head() + chunk(b"data: {nonsense\n\n"))
    async with opened(Member().on("tools/call", script)) as it:
        assert (await failure_of_call(it.session)).failure is Failure.MALFORMED


async def test_a_stream_that_ends_without_an_event_id_is_a_reset_after_sending() -> None:
    for tail in (chunk(b""), b"5\r\ncut"):
        data = stream_head() + chunk(b": hello\n\n") + tail

        async def script(request: Request, peer: Peer, data: bytes = data) -> None:
            await peer.send(data)
            peer.close()

        async with opened(Member().on("tools/call", script)) as it:
            found = await failure_of_call(it.session, safe=True)
            assert (found.failure, found.sent) == (Failure.RESET, True)
            assert len(it.server.seen("tools/call")) == 1


async def test_a_broken_stream_is_resumed_behind_its_last_event() -> None:
    calls: list[Request] = []

    async def begin(request: Request, peer: Peer) -> None:
        calls.append(request)
        await peer.send(stream_head() + chunk(b"id: a-1\nretry: 50\ndata: \n\n") + chunk(b""))

    async def resume(request: Request, peer: Peer) -> None:
        position = request.headers["last-event-id"]
        if position == "a-1":
            await peer.send(stream_head() + chunk(event(progress(3), event_id="a-2")))
            peer.reset()
        else:
            await peer.send(stream_head() + chunk(event(result(calls[0], {"ok": 1}))) + chunk(b""))

    async with opened(Member().on("tools/call", begin).on("GET", resume)) as it:
        seen: list[Message] = []
        answer = await call(it.session, seen=seen, token=3)
        assert json.loads(bytes(answer.result)) == {"ok": 1}
        assert len(seen) == 1
        positions = [each.headers.get("last-event-id") for each in it.server.requests]
        assert positions[-2:] == ["a-1", "a-2"]
        assert len(calls) == 1


@pytest.mark.parametrize("how", ["405", "404", "empty", "reset"])
async def test_a_stream_that_cannot_be_resumed_is_lost(how: str) -> None:
    begin = always(stream_head() + chunk(b"id: 1\nretry: 1\ndata: \n\n") + chunk(b""))

    async def resume(request: Request, peer: Peer) -> None:
        if how == "reset":
            peer.reset()
        elif how == "empty":
            await peer.send(stream_head() + chunk(b""))
        else:
            await peer.send(response(status=int(how)))

    async with opened(Member().on("tools/call", begin).on("GET", resume)) as it:
        found = await failure_of_call(it.session)
        assert (found.failure, found.sent) == (Failure.RESET, True)
        assert len(it.server.seen("tools/call")) == 1
        gets = [each for each in it.server.requests if each.method == "GET"]
        # A reset on a kept connection proves nothing: GET is safe and tried on a new one.
        tries = {"empty": streamable_exchange.FRUITLESS_RESUMPTIONS, "reset": 2}
        assert len(gets) == tries.get(how, 1)


async def test_a_slow_reader_slows_the_member_down() -> None:
    log = {"method": "notifications/message", "params": {"data": "x" * 1000}}
    part = chunk(event(json.dumps({"jsonrpc": "2.0", **log}).encode()) * 100)
    sent = 0

    async def script(request: Request, peer: Peer) -> None:
        nonlocal sent
        await peer.send(stream_head())
        for _ in range(300):
            await peer.send(part)
            sent += 1
        await peer.send(chunk(event(result(request, {}))) + chunk(b""))

    async with opened(Member().on("tools/call", script)) as it:
        exchange = it.session.request("tools/call", b"{}")
        await exchange.next()
        before = -1
        while before != sent:  # until the member cannot write any more
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 200
        assert exchange._call is not None
        assert exchange._call._buffered < 2 * http1.HIGH_WATER
        count = 1
        while not (await exchange.next()).is_response:
            count += 1
        exchange.close()
        assert count == 300 * 100


# Ending exchanges


async def test_an_aborted_call_is_cancelled_at_the_member_within_a_tenth_of_a_second() -> None:
    async def hang(request: Request, peer: Peer) -> None:
        await peer.gone.wait()

    async with opened(Member().on("tools/call", hang)) as it:
        exchange = it.session.request("tools/call", b"{}")
        waiting = asyncio.ensure_future(exchange.next())
        await it.server.until(lambda: len(it.server.seen("tools/call")) == 1)
        assert exchange.sent
        why = MemberFailure(Failure.CANCELLED, "the caller gave up", sent=True)
        exchange.abort(why)
        with pytest.raises(MemberFailure) as caught:
            await waiting
        assert caught.value is why
        await it.server.until(lambda: len(it.server.seen("notifications/cancelled")) == 1, 0.1)
        request = it.server.seen("tools/call")[0]
        cancelled = it.server.seen("notifications/cancelled")[0]
        assert cancelled.message["params"]["requestId"] == request.id
        assert cancelled.connection != request.connection
        await asyncio.wait_for(it.server.peers[request.connection].gone.wait(), 1)
        exchange.close()
        assert it.session.in_flight == 0


async def test_an_exchange_that_is_given_up_is_cancelled_and_one_that_was_answered_is_not() -> None:
    async def hang(request: Request, peer: Peer) -> None:
        if request.message["params"]["name"] == "hang":
            await peer.gone.wait()
        await peer.send(response(result(request, {})))

    async with opened(Member().on("tools/call", hang)) as it:
        await call(it.session)
        never = it.session.request("tools/call", b'{"name":"hang"}')
        never.close()  # nothing was sent
        exchange = it.session.request("tools/call", b'{"name":"hang"}')
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(exchange.next(), 0.05)
        exchange.close()
        exchange.close()
        await it.server.until(lambda: len(it.server.seen("notifications/cancelled")) == 1)
        given_up = it.server.seen("tools/call")[-1]
        cancelled = it.server.seen("notifications/cancelled")[0]
        assert cancelled.message["params"]["requestId"] == given_up.id
        assert it.session.in_flight == 0


async def test_the_rest_of_an_answered_stream_frees_the_connection_for_the_next_call() -> None:
    release = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(stream_head() + chunk(event(result(request, {}))))
        await release.wait()
        await peer.send(chunk(event(progress(1))) + chunk(b""))

    async with opened(Member().on("tools/call", script)) as it:
        await call(it.session)
        release.set()
        await asyncio.sleep(0.1)  # the end of the stream is no event that anybody waits for
        await call(it.session, "ping")
        assert len(it.server.peers) == 1


# The GET stream


async def test_a_control_session_hears_what_the_member_says_unasked() -> None:
    changed = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'

    async def script(request: Request, peer: Peer) -> None:
        await peer.send(stream_head() + chunk(event(changed, event_id="g-1")))

    async with opened(Member().on("GET", script), control=True) as it:
        async with asyncio.timeout(5):
            await it.news.wait()
        assert [each.method for each in it.notifications] == ["notifications/tools/list_changed"]
        await call(it.session)


async def test_progress_on_the_get_stream_finds_its_call_by_token() -> None:
    streams: list[Peer] = []

    async def stream(request: Request, peer: Peer) -> None:
        await peer.send(stream_head())
        streams.append(peer)

    async def script(request: Request, peer: Peer) -> None:
        await streams[0].send(chunk(event(progress(41)) + event(progress(42))))
        await asyncio.sleep(0.05)
        await peer.send(response(result(request, {})))

    async with opened(Member().on("GET", stream).on("tools/call", script), control=True) as it:
        await it.server.until(lambda: it.server.requests[-1].method == "GET")
        seen: list[Message] = []
        await call(it.session, seen=seen, token=42)
        assert len(seen) == 1
        assert not it.notifications


async def test_a_get_stream_that_ends_is_opened_again_behind_its_last_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcpgroup_gateway.members.streamable_listener.SHORTEST_PAUSE", 0.01)
    script = always(stream_head() + chunk(b"id: g-7\ndata: \n\n") + chunk(b""))
    async with opened(Member().on("GET", script), control=True) as it:

        def positions() -> list[str | None]:
            gets = [each for each in it.server.requests if each.method == "GET"]
            return [each.headers.get("last-event-id") for each in gets]

        await it.server.until(lambda: len(positions()) >= 2)
        assert positions()[:2] == [None, "g-7"]


async def test_a_member_without_a_get_stream_is_not_asked_again() -> None:
    async with opened(Member(), control=True) as it:
        await it.server.until(lambda: it.server.requests[-1].method == "GET")
        assert it.session._listening is not None
        await asyncio.wait_for(it.session._listening, 2)
        await call(it.session)
        assert not it.losses


async def test_404_on_the_get_stream_is_a_lost_session_only_when_a_ping_agrees() -> None:
    gone = always(response(status=404))
    async with opened(Member().on("GET", gone), control=True) as it:
        await it.server.until(lambda: bool(it.server.seen("ping")))
        await call(it.session)
        assert not it.session.lost
    async with opened(Member().on("GET", gone).on("ping", gone), control=True) as it:
        async with asyncio.timeout(5):
            await it.news.wait()
        assert [each.failure for each in it.losses] == [Failure.SESSION_LOST]
