"""Members of every era and habit in a group: they start, are probed and are replaced."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.gateway import Gateway
from tests.harness.members import faulty, stdio
from tests.harness.processes import ROOT, until
from tests.servers.raw_http import Handler, Member, Peer, RawServer, Request, response, result
from tests.servers.raw_modern import ModernMember, complete

if TYPE_CHECKING:
    from pathlib import Path

TOOLS = [{"name": "t", "inputSchema": {"type": "object"}}]
HEALTH = {"intervalSeconds": 1}


def eras(habit: str, log: Path, *flags: str, **fields: Any) -> dict[str, Any]:
    script = str(ROOT / "tests" / "servers" / "eras.py")
    command = [sys.executable, "-S", script, habit, "--log", str(log), *flags]
    return stdio("m", command, **fields)


def heard(log: Path) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line if line == "started" else json.loads(line).get("method") for line in lines]


class Replaceable:
    """A member at a URL behind which another server may be put."""

    def __init__(self, era: str) -> None:
        self.put(era)

    def put(self, era: str) -> None:
        async def listed(request: Request, peer: Peer) -> None:
            made = complete if era == "modern" else result_of
            await peer.send(response(made(request, tools=TOOLS, ttlMs=0, cacheScope="public")))

        server = ModernMember() if era == "modern" else Strict()
        self._handler: Handler = server.on("tools/list", listed)

    async def __call__(self, request: Request, peer: Peer) -> None:
        await self._handler(request, peer)


class Strict(Member):
    """Keeps sessions as the SDKs do: without one nothing but `initialize` is served."""

    async def __call__(self, request: Request, peer: Peer) -> None:
        begins = request.rpc_method == "initialize"
        if not begins and request.headers.get("mcp-session-id") != self.session:
            text = b'{"jsonrpc":"2.0","error":{"code":-32000,"message":"no session"},"id":null}'
            await peer.send(response(text, status=400))
        else:
            await super().__call__(request, peer)


def result_of(request: Request, **members: Any) -> bytes:
    return result(request, members)


@pytest.mark.parametrize("habit", ["modern", "legacy", "silent", "exits", "lenient", "locked"])
@pytest.mark.parametrize("isolation", ["Shared", "PerSession"])
async def test_a_member_of_any_habit_starts_without_a_failure_and_serves(
    habit: str, isolation: str, tmp_path: Path
) -> None:
    log = tmp_path / "heard"
    member = eras(habit, log, isolation=isolation)
    async with Gateway(members=[member], health=HEALTH) as gateway:
        await gateway.all_ready()
        session = await gateway.open_session()
        assert (await gateway.call("meta", session=session)).result["content"] == []
        probe = "server/discover" if habit in ("modern", "locked") else "ping"
        asked = heard(log).count(probe)
        await until(lambda: heard(log).count(probe) > asked, 10)
        assert ("ping" in heard(log)) is (probe == "ping")
        assert await gateway.metric("mcpgroup_evictions_total") == 0
        status = await gateway.member("m")
        assert (status["state"], status["inRotation"]) == ("Ready", True)
        assert heard(log).count("server/discover") == 1 or probe == "server/discover"


async def test_a_given_era_is_spoken_and_not_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "heard"
    async with Gateway(members=[eras("legacy", log, era="Legacy")]) as gateway:
        await gateway.all_ready()
        assert heard(log)[:2] == ["started", "initialize"]


async def test_a_modern_member_hears_of_no_session() -> None:
    async with (
        RawServer(Replaceable("modern")) as server,
        Gateway(members=[{"name": "m", "http": {"url": server.url}}], health=HEALTH) as gateway,
    ):
        await gateway.all_ready()
        for _ in range(2):
            session = await gateway.open_session()
            assert (await gateway.call("t", session=session)).result is not None
            await gateway.close_session(session)
        probes = len(server.probes)
        await server.until(lambda: len(server.probes) > probes, 10)
        assert {each.method for each in server.requests} == {"POST"}
        methods = {each.rpc_method for each in server.requests}
        assert methods <= {"tools/list", "tools/call", "subscriptions/listen"}


async def test_an_upgrade_behind_a_url_costs_no_caller_an_error() -> None:
    member = Replaceable("legacy")
    async with (
        RawServer(member) as server,
        Gateway(members=[{"name": "m", "http": {"url": server.url}}]) as gateway,
    ):
        await gateway.all_ready()
        session = await gateway.open_session()
        await gateway.call("t", session=session)
        member.put("modern")
        for _ in range(3):
            assert "result" in (await gateway.call("t", session=session)).message
        assert server.requests[-1].headers["mcp-protocol-version"] == "2026-07-28"
        assert await gateway.metric("mcpgroup_evictions_total") == 0


async def test_a_downgrade_behind_a_url_is_noticed_at_the_first_call_it_refuses() -> None:
    member = Replaceable("modern")
    async with (
        RawServer(member) as server,
        Gateway(members=[{"name": "m", "http": {"url": server.url}}]) as gateway,
    ):
        await gateway.all_ready()
        session = await gateway.open_session()
        await gateway.call("t", session=session)
        member.put("legacy")
        first = (await gateway.call("t", session=session)).message
        assert "result" in first or first["error"]["code"] == -31007

        def opened() -> bool:
            return bool(server.seen("initialize"))

        await server.until(opened, 10)
        assert "result" in (await gateway.call("t", session=session)).message
        assert "mcp-session-id" in server.seen("tools/call")[-1].headers
        assert await gateway.metric("mcpgroup_evictions_total") == 0


async def test_members_of_both_eras_serve_one_name(tmp_path: Path) -> None:
    modern = {**eras("modern", tmp_path / "a"), "name": "a"}
    legacy = {**eras("legacy", tmp_path / "b"), "name": "b"}
    async with Gateway(members=[modern, legacy, faulty("c")]) as gateway:
        await gateway.all_ready()
        session = await gateway.open_session()
        for _ in range(4):
            assert (await gateway.call("meta", session=session)).result["content"] == []
        assert "tools/call" in heard(tmp_path / "a")
        assert "tools/call" in heard(tmp_path / "b")
