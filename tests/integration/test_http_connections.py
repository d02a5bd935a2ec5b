"""Connections to HTTP members: reuse, loss, time limits, TLS, redirects, headers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.harness.certificates import Authority
from tests.harness.http_sessions import (
    UNHEARD,
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
    event,
    response,
    result,
    stream_head,
)

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members import http_connection
from mcpgroup_gateway.members.http_address import Address
from mcpgroup_gateway.members.streamable_session import StreamableUpstream
from mcpgroup_gateway.members.upstream import MemberFailure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcpgroup_gateway.members.streamable import StreamableConnector


async def open_with(connector: StreamableConnector) -> StreamableUpstream:
    session = await connector.open(UNHEARD, 5)
    assert isinstance(session, StreamableUpstream)
    return session


# Reuse


async def test_calls_one_after_another_share_a_connection() -> None:
    async with opened(Member()) as it:
        for _ in range(20):
            await call(it.session)
        assert len(it.server.peers) == 1


class ClosingServer:
    """Answers one call a connection and closes it, in a thread: the client's loop can be busy
    meanwhile and not see the close."""

    def __init__(self) -> None:
        #: Released once for each connection that was answered and closed. Counted, because an
        #: event of the one before would let a test go on while the newest is still open.
        self.closed = threading.Semaphore(0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/mcp"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    data = connection.recv(65536)
                    _, _, body = data.partition(b"\r\n\r\n")
                    request = Request("POST", "/mcp", {}, body, 0)
                    if request.rpc_method == "initialize":
                        value = {"protocolVersion": "2025-11-25", "capabilities": {}}
                        connection.sendall(response(result(request, value)))
                    elif request.id is None:
                        connection.sendall(response(status=202))
                    else:
                        connection.sendall(response(result(request, {})))
                if request.rpc_method != "server/discover":  # the question for the era
                    self.closed.release()


@pytest.fixture
def closing_server() -> Iterator[ClosingServer]:
    server = ClosingServer()
    yield server
    server.stop()


async def test_a_connection_that_was_closed_while_idle_fails_no_unsafe_call(
    closing_server: ClosingServer,
) -> None:
    connector = connector_to(closing_server.url)
    session = await open_with(connector)
    assert closing_server.closed.acquire(timeout=5)  # `initialize`; the loop waits for the next
    chance = random.Random(1)  # noqa: S311 - no secret
    for _ in range(200):
        # Blocks the loop: nobody reads the end of file.
        assert closing_server.closed.acquire(timeout=5)
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        await call(session)
    await session.close()
    await connector.close()


async def test_a_kept_connection_that_dies_under_a_call_is_retried_for_safe_calls_only() -> None:
    async def die_once(request: Request, peer: Peer) -> None:
        if len(it.server.seen("tools/call")) == 1:
            peer.reset()
        else:
            await peer.send(response(result(request, {})))

    async with opened(Member().on("tools/call", die_once)) as it:
        await call(it.session, safe=True)
        first, second = it.server.seen("tools/call")
        assert first.id == second.id
        assert first.connection != second.connection
    async with opened(Member().on("tools/call", die_once)) as it:
        found = await failure_of_call(it.session, safe=False)
        assert (found.failure, found.sent) == (Failure.RESET, True)
        assert len(it.server.seen("tools/call")) == 1


async def test_half_an_answer_is_a_reset_and_not_retried() -> None:
    async def half(request: Request, peer: Peer) -> None:
        await peer.send(response(result(request, {}))[:-5])
        peer.close()

    async with opened(Member().on("tools/call", half)) as it:
        found = await failure_of_call(it.session, safe=True)
        assert (found.failure, found.sent) == (Failure.RESET, True)
        assert len(it.server.seen("tools/call")) == 1


async def test_an_unsafe_call_takes_no_connection_that_was_idle_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connection, "TRUSTED_SECONDS", 0.0)
    async with opened(Member()) as it:
        assert len(it.server.peers) == 1  # the notification is safe
        await call(it.session, safe=True)
        assert len(it.server.peers) == 1
        await call(it.session, safe=False)
        assert len(it.server.peers) == 2


async def test_the_keep_alive_time_of_the_member_counts_less_a_second() -> None:
    script = made(
        lambda request: response(result(request, {}), headers=(("Keep-Alive", "max=5, timeout=1"),))
    )
    async with opened(Member().on("tools/call", script)) as it:
        await call(it.session)
        await call(it.session)
        assert len(it.server.peers) == 2


async def test_idle_connections_are_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "KEPT_SECONDS", 0.05)
    async with opened(Member()) as it:
        await call(it.session)
        await asyncio.wait_for(it.server.peers[0].gone.wait(), 2)


@pytest.mark.parametrize(
    "tail", [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"x", b""], ids=repr
)
async def test_a_connection_with_more_than_an_answer_is_not_used_again(tail: bytes) -> None:
    headers = (("Connection", "close"),) if not tail else ()
    script = made(lambda request: response(result(request, {}), headers=headers) + tail)
    async with opened(Member().on("tools/call", script)) as it:
        for _ in range(3):
            await call(it.session)
        assert len(it.server.peers) == 3


async def test_an_answer_before_the_request_was_read_is_taken_and_the_connection_dropped() -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response(status=413))
        await answered.wait()  # most of the request is still on its way
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.transport.abort()
        finished.set()

    answered, finished = asyncio.Event(), asyncio.Event()
    server = await asyncio.start_server(early, "127.0.0.1", 0)
    async with server, opened(Member()) as it:
        port = server.sockets[0].getsockname()[1]
        address = Address.parse(f"http://127.0.0.1:{port}/mcp")
        it.session.target._pool = it.connector._reach.pool(address)
        exchange = it.session.request("tools/call", b'"%b"' % (b"x" * 30_000_000))
        with pytest.raises(MemberFailure) as caught:
            await exchange.next()
        exchange.close()
        answered.set()
        assert caught.value.status == 413
        assert not it.session.target._pool._idle
        await asyncio.wait_for(finished.wait(), 5)


# HTTP


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n%b",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n%b",
    ],
)
async def test_a_body_may_end_with_its_connection(wire: bytes) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(wire % result(request, {}))
        peer.close()

    async with opened(Member().on("tools/call", script)) as it:
        await call(it.session)
        await call(it.session)


async def test_interim_responses_are_skipped_and_offers_to_upgrade_are_ignored() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    headers = (("Upgrade", "h2,h2c"), ("Connection", "Upgrade, Keep-Alive"))
    script = made(lambda request: interim + response(result(request, {}), headers=headers))
    async with opened(Member().on("tools/call", script)) as it:
        await call(it.session)
        await call(it.session)
        assert len(it.server.peers) == 1


async def test_an_answer_cut_at_every_byte_is_read() -> None:
    async def script(request: Request, peer: Peer) -> None:
        wire = response(result(request, {"a": 1}), content_type="Application/JSON;charset=UTF-8")
        for index in range(len(wire)):
            await peer.send(wire[index : index + 1])
            await asyncio.sleep(0)

    async with opened(Member().on("tools/call", script)) as it:
        assert not (await call(it.session)).is_error


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 200 OK\r\n" + b"X-Flood: " + b"x" * 400_000,
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 400_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    ],
    ids=["long field", "many fields", "interim flood", "chunk extension", "two lengths", "upgrade"],
)
async def test_floods_and_tricks_in_the_framing_are_malformed(wire: bytes) -> None:
    async with opened(Member().on("tools/call", always(wire))) as it:
        assert (await failure_of_call(it.session)).failure is Failure.MALFORMED


# Connecting


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


async def test_a_closed_port_is_refused_and_nothing_was_sent() -> None:
    found = await failed_open(connector_to(f"http://127.0.0.1:{closed_port()}/mcp"))
    assert (found.failure, found.sent) == (Failure.REFUSED, False)


async def test_a_member_that_went_away_between_calls_is_refused_and_nothing_was_sent() -> None:
    async with opened(Member()) as it:
        await it.server.__aexit__(None, None, None)
        found = await failure_of_call(it.session)
        assert (found.failure, found.sent) == (Failure.REFUSED, False)


async def test_a_name_that_does_not_resolve_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def unknown(*_: object, **__: object) -> None:
        nonlocal asked
        asked += 1
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    found = await failed_open(connector_to("http://nowhere.invalid/mcp"))
    assert (found.failure, found.sent) == (Failure.REFUSED, False)
    assert asked == 1


@contextlib.contextmanager
def full_accept_queue() -> Iterator[int]:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


async def test_a_full_accept_queue_is_a_connect_timeout_and_nothing_was_sent() -> None:
    with full_accept_queue() as port:
        connector = connector_to(f"http://127.0.0.1:{port}/mcp", connect_seconds=0.2)
        began = time.monotonic()
        found = await failed_open(connector)
        assert time.monotonic() - began < 1
        assert (found.failure, found.sent) == (Failure.CONNECT_TIMEOUT, False)
        assert not found.late


async def test_a_time_limit_that_our_own_loop_missed_is_late() -> None:
    with full_accept_queue() as port:
        connector = connector_to(f"http://127.0.0.1:{port}/mcp", connect_seconds=0.05)
        asyncio.get_running_loop().call_later(0.01, time.sleep, 1.2)
        found = await failed_open(connector)
        assert (found.failure, found.late) == (Failure.CONNECT_TIMEOUT, True)


async def test_an_abort_while_connecting_sends_nothing() -> None:
    with full_accept_queue() as port:
        async with opened(Member()) as it:
            address = Address.parse(f"http://127.0.0.1:{port}/mcp")
            it.session.target._pool = it.connector._reach.pool(address)
            exchange = it.session.request("tools/call", b"{}")
            waiting = asyncio.ensure_future(exchange.next())
            await asyncio.sleep(0)
            exchange.abort(MemberFailure(Failure.EVICTED, "evicted", sent=False))
            with pytest.raises(MemberFailure) as caught:
                await asyncio.wait_for(waiting, 1)
            assert caught.value.failure is Failure.EVICTED
            assert not exchange.sent
            exchange.close()
            assert not it.server.seen("notifications/cancelled")


async def test_the_next_url_is_tried_and_the_session_stays_on_the_url_that_opened_it() -> None:
    broken = Member().on("initialize", always(response(status=503)))
    async with RawServer(broken) as first, RawServer(Member()) as second:
        urls = [first.url, second.url]
        refused = f"http://127.0.0.1:{closed_port()}/mcp"
        connector = connector_to(refused, fallback_urls=urls)
        session = await open_with(connector)
        await call(session)
        assert len(first.requests) == 1
        assert len(second.seen("tools/call")) == 1
        await session.close()
        await connector.close()


async def test_credentials_that_are_refused_are_not_shown_to_the_next_url() -> None:
    refusing = Member().on("initialize", always(response(status=401)))
    async with RawServer(refusing) as first, RawServer(Member()) as second:
        found = await failed_open(connector_to(first.url, fallback_urls=[second.url]))
        assert (found.failure, found.status) == (Failure.NOT_RUN, 401)
        assert not second.requests


# TLS


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


async def test_tls_with_the_configured_authority_or_without_verification(
    authority: Authority,
) -> None:
    async with RawServer(Member(), tls=authority.server_context("127.0.0.1")) as server:
        for connector in (
            connector_to(server.url, ca_pem=authority.pem),
            connector_to(server.url, insecure_skip_verify=True),
        ):
            session = await open_with(connector)
            for _ in range(3):
                await call(session)
            await session.close()
            await connector.close()
        assert len(server.peers) == 2


async def test_an_unknown_authority_and_another_name_are_tls_failures(
    authority: Authority,
) -> None:
    async with RawServer(Member(), tls=authority.server_context("127.0.0.1")) as server:
        found = await failed_open(connector_to(server.url))
        assert (found.failure, found.sent) == (Failure.TLS, False)
    async with RawServer(Member(), tls=authority.server_context("other.test")) as server:
        found = await failed_open(connector_to(server.url, ca_pem=authority.pem))
        assert (found.failure, found.sent) == (Failure.TLS, False)
        assert not server.requests


async def test_a_server_without_tls_or_that_hangs_up_is_a_tls_failure() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        assert (await failed_open(connector_to(url))).failure is Failure.TLS


async def test_a_tls_connection_closed_while_idle_fails_no_unsafe_call(
    authority: Authority,
) -> None:
    async def answer_and_close(request: Request, peer: Peer) -> None:
        await peer.send(response(result(request, {})))
        peer.close()

    member = Member().on("tools/call", answer_and_close)
    async with RawServer(member, tls=authority.server_context("127.0.0.1")) as server:
        connector = connector_to(server.url, ca_pem=authority.pem)
        session = await open_with(connector)
        for pause in (0.05, 0.05, 0.05):
            await call(session)
            await asyncio.sleep(pause)
        await session.close()
        await connector.close()


def test_an_authority_that_is_no_certificate_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="PEM"):
        connector_to("https://127.0.0.1/mcp", ca_pem=b"hello")


# Redirects


def moved(location: str, status: int = 307) -> bytes:
    return response(status=status, headers=(("Location", location),))


async def test_a_redirect_on_the_host_is_followed_with_body_and_headers_and_remembered() -> None:
    async def slash(request: Request, peer: Peer) -> None:
        if request.target == "/mcp":
            await peer.send(moved("/mcp/"))
        else:
            await Member()(request, peer)

    member = Member().on("initialize", slash)
    async with opened(member, headers=[("Authorization", "Bearer s")]) as it:
        await call(it.session)
        assert [each.target for each in it.server.requests] == ["/mcp", *["/mcp/"] * 3]
        assert it.server.requests[0].body == it.server.requests[1].body
        assert {each.headers["authorization"] for each in it.server.requests} == {"Bearer s"}


async def test_a_call_is_redirected_once_and_not_twice() -> None:
    async def script(request: Request, peer: Peer) -> None:
        if request.target == "/mcp":
            await peer.send(moved("/a", 308))
        elif request.message["params"]["name"] == "loop":
            await peer.send(moved("/a"))
        else:
            await peer.send(response(result(request, {})))

    async with opened(Member().on("tools/call", script)) as it:
        await call(it.session)
        exchange = it.session.request("tools/call", b'{"name":"loop"}')
        with pytest.raises(MemberFailure) as caught:
            await exchange.next()
        exchange.close()
        assert (caught.value.failure, caught.value.status) == (Failure.HTTP_ERROR, 307)
        assert len(it.server.requests) == 6


@pytest.mark.parametrize("where", ["host", "port", "scheme", "nothing"])
async def test_a_redirect_elsewhere_is_refused_and_credentials_go_nowhere(where: str) -> None:
    async with RawServer(Member()) as other:
        locations = {
            "host": f"http://localhost:{other.port}/mcp",
            "port": other.url,
            "scheme": "ftp://127.0.0.1/mcp",
            "nothing": "http://",
        }
        script = always(moved(locations[where]))
        async with opened(Member().on("tools/call", script)) as it:
            found = await failure_of_call(it.session)
            assert (found.failure, found.status) == (Failure.HTTP_ERROR, 307)
            assert "redirect" in found.reason
            assert not other.requests


async def test_a_redirect_from_http_to_https_on_the_host_is_followed(
    authority: Authority,
) -> None:
    async with RawServer(Member(), tls=authority.server_context("127.0.0.1")) as secure:
        first = Member().on("initialize", always(moved(secure.url)))
        async with RawServer(first) as plain:
            connector = connector_to(plain.url, ca_pem=authority.pem)
            session = await open_with(connector)
            await call(session)
            await session.close()
            await connector.close()
            assert len(plain.requests) == 1
            assert len(secure.seen("tools/call")) == 1


async def test_a_resumption_is_redirected_too() -> None:
    begun: list[Request] = []

    async def begin(request: Request, peer: Peer) -> None:
        begun.append(request)
        await peer.send(stream_head() + chunk(b"id: 1\nretry: 1\ndata: \n\n") + chunk(b""))

    async def resume(request: Request, peer: Peer) -> None:
        if request.target == "/mcp":
            await peer.send(moved("/b"))
        else:
            await peer.send(stream_head() + chunk(event(result(begun[0], {}))) + chunk(b""))

    async with opened(Member().on("tools/call", begin).on("GET", resume)) as it:
        await call(it.session)
        assert it.server.requests[-1].headers["last-event-id"] == "1"


# Headers


async def test_configured_headers_go_with_every_request_and_replace_ours() -> None:
    headers = [("Authorization", "Bearer x"), ("user-agent", "mine"), ("Host", "a.test")]
    async with opened(Member(), headers=headers) as it:
        await call(it.session)
        await it.session.close()
        assert len(it.server.requests) == 4
        for request in it.server.requests:
            assert request.headers["authorization"] == "Bearer x"
            assert request.headers["user-agent"] == "mine"
            assert request.headers["host"] == "a.test"


async def test_headers_are_read_again_for_every_session() -> None:
    value = "one"
    async with RawServer(Member()) as server:
        connector = connector_to(server.url, headers=lambda: [("Authorization", f"Bearer {value}")])
        for value in ("one", "two"):
            session = await open_with(connector)
            assert server.requests[-1].headers["authorization"] == f"Bearer {value}"
            await session.close()
        value = "three\r\nX-Injected: yes"
        found = await failed_open(connector)
        assert found.failure is Failure.START_FAILED
        assert "three" not in found.reason


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X", "a\r\nB: c"),
        ("X", "a\nb"),
        ("X", "a\0"),
        ("X Y", "a"),
        ("", "a"),
        ("X:", "a"),
        ("X", "\N{SNOWMAN}"),
        ("Content-Length", "3"),
        ("Mcp-Session-Id", "x"),
        ("Transfer-Encoding", "chunked"),
    ],
)
def test_a_header_that_could_break_a_request_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="header") as caught:
        connector_to("http://127.0.0.1/mcp", headers=[(name, value)])
    assert value not in str(caught.value) or value in ("a", "x", "3")


async def test_secrets_of_the_url_are_used_and_never_shown() -> None:
    async with RawServer(Member()) as server:
        url = server.url.replace("://", "://me:hush%21@") + "?key=shh"
        connector = connector_to(url)
        session = await open_with(connector)
        basic = base64.b64encode(b"me:hush!").decode()
        assert server.requests[0].headers["authorization"] == f"Basic {basic}"
        assert server.requests[0].target == "/mcp?key=shh"
        await session.close()
        await connector.close()
    found = await failed_open(connector_to(url))
    assert found.failure is Failure.REFUSED
    assert "127.0.0.1" in found.reason
    for secret in ("hush", "shh", basic, "me"):
        assert secret not in found.reason.replace("member", "")


async def test_cookies_are_never_sent_back() -> None:
    script = made(lambda request: response(result(request, {}), headers=(("Set-Cookie", "a=b"),)))
    async with opened(Member().on("tools/call", script)) as it:
        await call(it.session)
        await call(it.session)
        assert all("cookie" not in each.headers for each in it.server.requests)


@pytest.mark.parametrize("url", ["ftp://x/", "/mcp", "http://", "http://a b/", "http://x/a b"])
def test_urls_that_cannot_work_are_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        connector_to(url)
