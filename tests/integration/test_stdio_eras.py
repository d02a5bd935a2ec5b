"""Members over stdio of both eras, and how the era of each is found out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.processes import ROOT, until

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members import negotiation
from mcpgroup_gateway.members.negotiation import Era
from mcpgroup_gateway.members.stdio import StdioConnector
from mcpgroup_gateway.members.upstream import (
    NOTHING_FORWARDED,
    ClientIdentity,
    Forwarded,
    MemberFailure,
    Opening,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from mcpgroup_gateway.members.stdio_exchange import StdioExchange
    from mcpgroup_gateway.members.stdio_session import StdioUpstream
    from mcpgroup_gateway.wire.envelope import Message

CLIENT = ClientIdentity(b'{"elicitation":{}}', b'{"name":"someone","version":"2"}')
CANCELLED = MemberFailure(Failure.CANCELLED, "the caller gave up", sent=True)


class Server:
    """The server of `tests/servers/eras.py` and what it has read."""

    def __init__(self, path: Path, habit: str, *flags: str) -> None:
        script = str(ROOT / "tests" / "servers" / "eras.py")
        self.log = path / "heard"
        self.command = [sys.executable, "-S", script, habit, "--log", str(self.log), *flags]

    @property
    def heard(self) -> list[str]:
        """Methods in the order of their arrival, `started` for each process."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line if line == "started" else self._method(line) for line in lines]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line[0] == "{"]

    def _method(self, line: str) -> str:
        return str(json.loads(line).get("method", "response"))


class Opened:
    def __init__(self, upstream: StdioUpstream) -> None:
        self.upstream = upstream
        self.notifications: list[Message] = []
        self.requests: list[Message] = []

    def call(
        self, tool: str, *, token: int | None = None, forwarded: Forwarded = NOTHING_FORWARDED
    ) -> StdioExchange:
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        params = json.dumps({"name": tool, **meta}).encode()
        return self.upstream.request(
            "tools/call", params, progress_token=token, forwarded=forwarded
        )

    async def result(self, tool: str, **options: Any) -> dict[str, Any]:
        exchange = self.call(tool, **options)
        try:
            async with asyncio.timeout(10):
                result: dict[str, Any] = json.loads(bytes((await exchange.next()).result))
                return result
        finally:
            exchange.close()


@contextlib.asynccontextmanager
async def opened(
    connector: StdioConnector,
    *,
    asks: bool = False,
    with_session: bool = False,
    deadline: float = 20,
) -> AsyncIterator[Opened]:
    notifications: list[Message] = []
    requests: list[Message] = []
    on_request: Callable[[Message], None] | None = requests.append if asks else None
    opening = Opening(
        on_notification=notifications.append,
        on_lost=lambda _: None,
        control=True,
        client=CLIENT,
        on_request=on_request,
        with_session=with_session,
    )
    upstream = await connector.open(opening, deadline)
    it = Opened(upstream)
    it.notifications, it.requests = notifications, requests
    try:
        yield it
    finally:
        await upstream.close()


async def next_of(exchange: StdioExchange) -> Message:
    async with asyncio.timeout(10):
        return await exchange.next()


# Finding the era


async def test_a_legacy_member_costs_one_question_once(tmp_path: Path) -> None:
    server = Server(tmp_path, "legacy")
    connector = StdioConnector("m", server.command)
    async with opened(connector) as it:
        assert it.upstream.handshake.protocol_version == "2025-11-25"
        await it.result("x")
    async with opened(connector) as it:
        await it.result("x")
    ready = ["initialize", "notifications/initialized", "tools/call"]
    assert server.heard == ["started", "server/discover", *ready, "started", *ready]


async def test_a_modern_member_hears_no_initialize(tmp_path: Path) -> None:
    server = Server(tmp_path, "modern")
    connector = StdioConnector("m", server.command)
    for _ in range(2):
        async with opened(connector) as it:
            assert it.upstream.handshake.modern
            assert it.upstream.handshake.instructions == "Be modern."
            assert json.loads(it.upstream.handshake.server_info)["name"] == "eras"
            await it.result("x")
    assert server.heard == ["started", "server/discover", "tools/call"] * 2


async def test_a_modern_member_is_asked_once_whether_it_has_sessions_too(tmp_path: Path) -> None:
    server = Server(tmp_path, "modern")
    connector = StdioConnector("m", server.command)
    async with opened(connector):
        pass
    for _ in range(2):
        async with opened(connector, asks=True, with_session=True) as it:
            assert it.upstream.handshake.modern
    assert server.heard.count("initialize") == 1


async def test_a_silent_member_is_legacy_after_a_while_and_from_then_on_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(negotiation, "PATIENCE_SECONDS", 0.3)
    server = Server(tmp_path, "silent")
    connector = StdioConnector("m", server.command)
    async with opened(connector) as it:
        assert not it.upstream.handshake.modern
        await it.result("x")
    began = time.monotonic()
    async with opened(connector) as it:
        assert time.monotonic() - began < 0.3
    assert server.heard.count("started") == 2
    assert server.heard.count("server/discover") == 1


async def test_a_silent_member_falls_back_within_a_short_deadline(tmp_path: Path) -> None:
    server = Server(tmp_path, "silent")
    async with opened(StdioConnector("m", server.command), deadline=1.5) as it:
        assert not it.upstream.handshake.modern


async def test_a_member_that_exits_at_the_question_is_started_again_with_initialize(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path, "exits")
    connector = StdioConnector("m", server.command)
    async with opened(connector) as it:
        assert not it.upstream.handshake.modern
        await it.result("x")
    async with opened(connector):
        pass
    ready = ["started", "initialize", "notifications/initialized"]
    assert server.heard == ["started", "server/discover", *ready, "tools/call", *ready]


async def test_a_member_that_exits_whatever_is_said_has_failed_to_start(tmp_path: Path) -> None:
    server = Server(tmp_path, "broken")
    connector = StdioConnector("m", server.command)
    with pytest.raises(MemberFailure, match="exited with code 3 before it was ready") as caught:
        async with opened(connector):
            pass
    assert caught.value.failure is Failure.START_FAILED
    assert server.heard == ["started", "server/discover", "started", "initialize"]


async def test_a_member_that_answers_everything_with_a_result_is_legacy(tmp_path: Path) -> None:
    server = Server(tmp_path, "lenient")
    async with opened(StdioConnector("m", server.command)) as it:
        assert not it.upstream.handshake.modern


@pytest.mark.parametrize(("habit", "modern"), [("modern", True), ("legacy", False)])
async def test_a_slow_start_is_no_verdict(
    habit: str, modern: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both questions wait in the pipe when the server begins to read."""
    monkeypatch.setattr(negotiation, "PATIENCE_SECONDS", 0.1)
    server = Server(tmp_path, habit, "--start-delay", "0.5")
    async with opened(StdioConnector("m", server.command)) as it:
        assert it.upstream.handshake.modern is modern
        assert (await it.result("x"))["content"] == []
    assert server.heard[:3] == ["started", "server/discover", "initialize"]
    assert "notifications/cancelled" not in server.heard


async def test_a_member_that_refuses_initialize_because_it_is_modern_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(negotiation, "PATIENCE_SECONDS", 0.1)
    server = Server(tmp_path, "locked")
    async with opened(StdioConnector("m", server.command)) as it:
        assert it.upstream.handshake.modern
    assert server.heard == ["started", "server/discover", "initialize", "server/discover"]


async def test_what_was_found_is_forgotten_when_a_start_fails(tmp_path: Path) -> None:
    """A server is replaced by a version of the other era."""
    link = tmp_path / "server"
    legacy, modern = Server(tmp_path, "legacy"), Server(tmp_path, "modern")

    def install(server: Server | None) -> None:
        link.unlink(missing_ok=True)
        if server is not None:
            link.write_text("#!/bin/sh\nexec " + " ".join(f"'{each}'" for each in server.command))
            link.chmod(0o755)

    connector = StdioConnector("m", [str(link)])
    for server, is_modern in ((legacy, False), (modern, True), (legacy, False)):
        install(None)
        with pytest.raises(MemberFailure):
            async with opened(connector):
                pass
        install(server)
        async with opened(connector) as it:
            assert it.upstream.handshake.modern is is_modern


@pytest.mark.parametrize(("before", "after"), [("legacy", "modern"), ("modern", "legacy")])
async def test_a_member_that_changed_its_era_starts_without_a_failure(
    before: str, after: str, tmp_path: Path
) -> None:
    link = tmp_path / "server"
    connector = StdioConnector("m", [str(link)])
    for habit in (before, after):
        command = Server(tmp_path, habit).command
        link.write_text("#!/bin/sh\nexec " + " ".join(f"'{each}'" for each in command))
        link.chmod(0o755)
        async with opened(connector) as it:
            assert it.upstream.handshake.modern is (habit == "modern")


async def test_a_given_era_is_not_asked_for(tmp_path: Path) -> None:
    server = Server(tmp_path, "legacy")
    async with opened(StdioConnector("m", server.command, era=Era.LEGACY)):
        pass
    assert server.heard == ["started", "initialize", "notifications/initialized"]
    with pytest.raises(MemberFailure, match="era Modern"):
        async with opened(StdioConnector("m", server.command, era=Era.MODERN)):
            pass
    assert server.heard[3:] == ["started", "server/discover"]


# Speaking modern


async def test_every_request_says_version_client_capabilities_and_its_log_level(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path, "modern")
    async with opened(StdioConnector("m", server.command)) as it:
        own = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "someone", "version": "2"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        }
        assert (await it.result("x"))["meta"] == own
        assert (await it.result("x", token=7))["meta"] == {**own, "progressToken": 7}
        level = {"io.modelcontextprotocol/logLevel": "info"}
        forwarded = Forwarded(log_level="info")
        assert (await it.result("x", forwarded=forwarded))["meta"] == {**own, **level}


async def test_progress_and_log_reach_the_call_and_a_cancel_reaches_the_member(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path, "modern")
    async with opened(StdioConnector("m", server.command)) as it:
        exchange = it.call("slow", token=7)
        assert (await next_of(exchange)).method == "notifications/message"
        assert (await next_of(exchange)).method == "notifications/progress"
        exchange.abort(CANCELLED)
        exchange.close()
        await until(lambda: "notifications/cancelled" in server.heard, 5)
        params = server.messages[-1]["params"]
        assert params["requestId"] == exchange.id


async def test_notifications_of_a_listen_reach_it_and_no_other(tmp_path: Path) -> None:
    server = Server(tmp_path, "modern")
    async with opened(StdioConnector("m", server.command)) as it:
        listens = [it.upstream.request("subscriptions/listen", b"{}") for _ in range(2)]
        for listen in listens:
            ack = await next_of(listen)
            assert ack.method == "notifications/subscriptions/acknowledged"
        await it.result("change")
        for listen in listens:
            changed = await next_of(listen)
            assert changed.method == "notifications/tools/list_changed"
            tag = json.loads(bytes(changed.params))["_meta"][
                "io.modelcontextprotocol/subscriptionId"
            ]
            assert tag == listen.id
        assert it.notifications == []
        await it.result("end_listens")
        for listen in listens:
            assert (await next_of(listen)).is_response
            listen.close()


async def test_a_member_may_end_a_listen_with_a_cancel(tmp_path: Path) -> None:
    server = Server(tmp_path, "modern")
    async with opened(StdioConnector("m", server.command)) as it:
        listen = it.upstream.request("subscriptions/listen", b"{}")
        await next_of(listen)
        await it.result("cancel_listens")
        with pytest.raises(MemberFailure) as caught:
            await next_of(listen)
        assert caught.value.failure is Failure.RESET
        listen.close()
        assert "notifications/cancelled" not in server.heard


async def test_a_modern_member_that_asks_is_refused_at_once(tmp_path: Path) -> None:
    server = Server(tmp_path, "modern")
    async with opened(StdioConnector("m", server.command), asks=True) as it:
        assert (await it.result("ask"))["answer"] is None
        assert it.requests == []
    refusal = next(message for message in server.messages if "error" in message)
    assert refusal["error"]["code"] == -32601


# Requests of legacy members


async def test_a_request_of_the_member_reaches_the_only_call_and_is_answered(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path, "legacy")
    async with opened(StdioConnector("m", server.command), asks=True) as it:
        exchange = it.call("ask")
        asked = await next_of(exchange)
        assert asked.method == "elicitation/create"
        result = b'{"action":"accept","content":{"text":"%b"}}' % (b"x" * 1_000_000)
        it.upstream.respond(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (asked.raw_id, result))
        answer = await next_of(exchange)
        assert json.loads(bytes(answer.result))["answer"] == json.loads(result)
        exchange.close()


async def test_a_request_that_two_calls_could_have_caused_goes_to_the_session(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path, "legacy")
    async with opened(StdioConnector("m", server.command), asks=True) as it:
        other, exchange = it.call("slow"), it.call("ask")
        await until(lambda: bool(it.requests), 5)
        asked = it.requests[0]
        it.upstream.respond(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % asked.raw_id)
        assert json.loads(bytes((await next_of(exchange)).result))["answer"] == {}
        exchange.close()
        other.close()


async def test_a_member_that_cancels_its_request_says_so_to_the_session(tmp_path: Path) -> None:
    server = Server(tmp_path, "legacy")
    async with opened(StdioConnector("m", server.command), asks=True) as it:
        exchange = it.call("drop")
        asked = await next_of(exchange)
        await until(lambda: bool(it.notifications), 5)
        cancelled = it.notifications[0]
        assert cancelled.method == "notifications/cancelled"
        assert json.loads(bytes(cancelled.params))["requestId"] == json.loads(asked.raw_id)
        exchange.close()


async def test_without_a_client_that_could_answer_a_request_is_refused(tmp_path: Path) -> None:
    server = Server(tmp_path, "legacy")
    async with opened(StdioConnector("m", server.command)) as it:
        assert (await it.result("ask"))["answer"] is None
        await it.result("x")
        assert it.notifications == []


# Real servers


@pytest.mark.parametrize("module", ["mcp_server_time", "mcp_server_git"])
async def test_servers_of_the_sdk_are_modern_and_legacy_when_told_so(module: str) -> None:
    for era, modern in ((Era.AUTO, True), (Era.LEGACY, False)):
        connector = StdioConnector("m", [sys.executable, "-m", module], era=era)
        async with opened(connector, deadline=60) as it:
            assert it.upstream.handshake.modern is modern
            exchange = it.upstream.request("tools/list", b"{}")
            result = json.loads(bytes((await next_of(exchange)).result))
            exchange.close()
            assert result["tools"]
            assert ("resultType" in result) is modern


async def test_a_server_of_the_sdk_that_starts_slowly_is_modern(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(negotiation, "PATIENCE_SECONDS", 0.01)
    connector = StdioConnector("m", [sys.executable, "-m", "mcp_server_time"])
    async with opened(connector, deadline=60) as it:
        assert it.upstream.handshake.modern
        params = b'{"name":"get_current_time","arguments":{"timezone":"Asia/Tokyo"}}'
        exchange = it.upstream.request("tools/call", params)
        assert b"Asia/Tokyo" in bytes((await next_of(exchange)).result)
        exchange.close()
