"""Sessions, answers and failures of members over streamable HTTP, against scripted servers."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from tests.harness.http_sessions import (
    always,
    call,
    connector_to,
    failed_open,
    failure_of_call,
    made,
    opened,
)
from tests.servers.raw_http import (
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
from mcpgroup_gateway.members import streamable_session
from mcpgroup_gateway.members.upstream import MemberFailure

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
        failure = await failed_open(connector_to(server.url))
        assert (failure.failure, failure.sent) == (Failure.START_FAILED, False)
        assert "1999-01-01" in failure.reason
        assert server.requests[-1].method == "DELETE"


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
        found = await failed_open(connector_to(server.url))
        assert (found.failure, found.status, found.sent) == (failure, status, False)


async def test_a_member_that_never_answers_initialize_fails_at_the_deadline() -> None:
    async with RawServer(Member().on("initialize", always(b""))) as server:
        found = await failed_open(connector_to(server.url), deadline=0.1)
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
