"""How the operator reads `/status` of a pod: real sockets, right answers and all kinds of wrong."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.unit.operator.observations import answer, encoded, report

from mcpgroup_operator.errors import ForbiddenError, ServerError, UnreachableError
from mcpgroup_operator.pod_access import DirectAccess, ProxiedAccess
from mcpgroup_operator.polling import PodUnreachableError, Target
from mcpgroup_operator.reports import MAX_BYTES, UnreadableReportError, parse_report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcpgroup_operator.errors import ApiError


def target(ip: str = "127.0.0.1", name: str = "search-1") -> Target:
    return Target("tools", name, "uid-1", ip, ready=True)


def response(body: bytes, head: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


class Pod:
    """Sends `content` to whoever asks, then ends the connection unless it is to stay open."""

    def __init__(self, content: bytes, *, stays: bool = False) -> None:
        self.content = content
        self.stays = stays
        self.requests: list[str] = []
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(self.content)
            if self.stays:
                await reader.read()
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self.closed.set()


@asynccontextmanager
async def asked(pod: Pod, host: str = "127.0.0.1") -> AsyncIterator[DirectAccess]:
    """A way to the pod."""
    server = await asyncio.start_server(pod.serve, host, 0)
    access = DirectAccess(server.sockets[0].getsockname()[1])
    try:
        yield access
    finally:
        await access.close()
        server.close()
        await server.wait_closed()


async def test_a_pod_is_asked_at_its_address() -> None:
    pod = Pod(response(encoded(answer())))
    async with asked(pod) as access:
        assert parse_report(await access(target())) == report()
    assert pod.requests[0].startswith("GET /status HTTP/1.1\r\n")
    assert "Authorization" not in pod.requests[0]


async def test_an_address_of_version_six_stands_in_brackets() -> None:
    if not has_ipv6():
        pytest.skip("this machine has no IPv6")
    pod = Pod(response(encoded(answer())))
    async with asked(pod, "::1") as access:
        assert parse_report(await access(target("::1"))) == report()
    assert "Host: [::1]:" in pod.requests[0]


async def test_each_question_has_a_connection_of_its_own() -> None:
    pod = Pod(response(encoded(answer())), stays=True)
    async with asked(pod) as access:
        await access(target())
        async with asyncio.timeout(5):
            await pod.closed.wait()
        await access(target())
        assert len(pod.requests) == 2


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with asked(Pod(response(encoded(answer())))) as access:
        assert parse_report(await access(target())) == report()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (response(b"", "503 Service Unavailable"), "it answers with HTTP 503"),
        (response(b"", "302 Found\r\nLocation: http://127.0.0.1:1/"), "it answers with HTTP 302"),
        (b"SSH-2.0-OpenSSH\r\n", "it gives no proper answer"),
        (b"", "it gives no proper answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "it gives no proper answer"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "it gives no proper answer",
        ),
    ],
)
async def test_a_wrong_answer_is_none(content: bytes, why: str) -> None:
    async with asked(Pod(content)) as access:
        with pytest.raises(PodUnreachableError, match=f"^{why}$"):
            await access(target())


async def test_an_answer_without_end_is_read_to_the_limit() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    pod = Pod(head + chunk * 8, stays=True)
    async with asked(pod) as access:
        content = await access(target())
        assert MAX_BYTES < len(content) < 2 * MAX_BYTES
        with pytest.raises(UnreadableReportError, match="longer than"):
            parse_report(content)
        async with asyncio.timeout(5):
            await pod.closed.wait()


async def test_a_compressed_answer_is_not_unpacked() -> None:
    body = response(b"\x1f\x8b" + b"\0" * 100, "200 OK\r\nContent-Encoding: gzip")
    async with asked(Pod(body)) as access:
        with pytest.raises(UnreadableReportError, match="no JSON"):
            parse_report(await access(target()))


async def test_a_pod_where_nobody_listens_refuses() -> None:
    async with asked(Pod(b"")) as access:
        with pytest.raises(PodUnreachableError, match=r"^connection refused$"):
            await access(target("127.99.99.99"))


async def test_what_is_no_address_is_not_looked_up() -> None:
    async with asked(Pod(response(encoded(answer())))) as access:
        with pytest.raises(PodUnreachableError):
            await access(target("localhost"))


async def test_a_pod_is_asked_through_the_api_server() -> None:
    paths: list[tuple[str, float, int]] = []

    async def raw_get(path: str, seconds: float, limit: int) -> bytes:
        paths.append((path, seconds, limit))
        return encoded(answer())

    access = ProxiedAccess(raw_get, 9090, seconds=2.0)
    assert parse_report(await access(target())) == report()
    path = "/api/v1/namespaces/tools/pods/http:search-1:9090/proxy/status"
    assert paths == [(path, 2.0, MAX_BYTES + 1)]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (UnreachableError("get proxy", 0, "cut"), "no answer through the API server"),
        (ServerError("get proxy", 502, "…"), "HTTP 502 through the API server"),
        (ForbiddenError("get proxy", 403, "…"), "HTTP 403 through the API server"),
    ],
)
async def test_a_refusal_of_the_api_server_is_none_of_the_pods(error: ApiError, why: str) -> None:
    async def raw_get(path: str, seconds: float, limit: int) -> bytes:
        raise error

    with pytest.raises(PodUnreachableError, match=f"^{why}$"):
        await ProxiedAccess(raw_get, 9090, seconds=2.0)(target())
