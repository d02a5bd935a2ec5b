"""What the protocol asks of a server, with clients of each revision, with a session and without."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import mcp
import pytest
from tests.harness.gateway import Gateway, Reply
from tests.harness.members import CallLog, FaultyHttp, faulty
from tests.harness.messages import ACCEPT
from tests.harness.processes import until

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ("2025-03-26", "2025-06-18", "2025-11-25")


def logged(reply: Reply) -> list[str]:
    messages = [json.loads(message) for message in reply.messages[:-1]]
    assert all(message["method"] == "notifications/message" for message in messages)
    return [message["params"]["level"] for message in messages]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_each_session_gets_log_messages_of_its_own_level_and_no_others(
    transport: str,
) -> None:
    async with FaultyHttp("h", "--sse") as http:
        member = faulty("a") if transport == "stdio" else http.spec()
        async with Gateway(members=[member]) as gateway:
            await gateway.all_ready()
            loud, quiet, silent = [await gateway.open_session() for _ in range(3)]
            for session, level in ((loud, "debug"), (quiet, "error")):
                reply = await gateway.request("logging/setLevel", {"level": level}, session=session)
                assert reply.result == {}

            async def levels(session: str, level: str) -> list[str]:
                return logged(await gateway.call("log", {"level": level}, session=session))

            for level, gets_quiet in (("debug", []), ("warning", []), ("error", ["error"])):
                assert await levels(loud, level) == [level]
                assert await levels(quiet, level) == gets_quiet
            many = [("debug", loud), ("emergency", quiet), ("info", quiet), ("info", silent)] * 5
            for (level, session), found in zip(
                many,
                await asyncio.gather(*(levels(session, level) for level, session in many)),
                strict=True,
            ):
                hidden = session == quiet and level == "info"
                if hidden:
                    assert not found
                elif transport == "http":
                    assert found == [level]
                else:  # over one pipe nobody can say whose a message is while other calls run
                    assert found in ([], [level])
            bad = await gateway.request("logging/setLevel", {"level": "loud"}, session=loud)
            assert bad.error["code"] == -32602
            # The member was told: the most verbose level over a shared pipe, else the client's own.
            facts = (await gateway.call("whoami", session=quiet)).result["structuredContent"]
            assert facts["level"] == ("debug" if transport == "stdio" else "error")


async def test_a_level_reaches_upstream_sessions_that_open_later() -> None:
    async with FaultyHttp("h", "--sse") as http, Gateway(members=[http.spec()]) as gateway:
        await gateway.all_ready()
        session = await gateway.open_session()
        await gateway.request("logging/setLevel", {"level": "alert"}, session=session)
        facts = (await gateway.call("whoami", session=session)).result["structuredContent"]
        assert facts["level"] == "alert"


@pytest.mark.parametrize("version", VERSIONS)
async def test_clients_of_each_revision_are_served(version: str) -> None:
    members = [faulty(f"m{v[:4]}{v[5:7]}", "--protocol-version", v) for v in VERSIONS]
    async with Gateway(members=members) as gateway:
        await gateway.all_ready()
        hello = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        reply = await gateway.request("initialize", hello)
        assert reply.result["protocolVersion"] == version
        capabilities = reply.result["capabilities"]
        assert set(capabilities) >= {"tools", "prompts", "resources", "logging", "completions"}
        assert not capabilities["resources"].get("subscribe")
        session = reply.headers["Mcp-Session-Id"]
        for headers in ({"MCP-Protocol-Version": version}, {}):
            names = set()
            for _ in range(3):
                reply = await gateway.call("whoami", session=session, headers=headers)
                names.add(reply.text)
            assert names == {"m202503", "m202506", "m202511"}
        other = {"MCP-Protocol-Version": "2031-01-01"}
        refused = await gateway.call("whoami", session=session, headers=other)
        assert refused.status == 400


@pytest.mark.parametrize("asked", ["2024-10-07", "2031-01-01", "x"])
async def test_an_unknown_revision_is_answered_with_the_newest(asked: str) -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        hello = {"protocolVersion": asked, "capabilities": {}, "clientInfo": {}}
        reply = await gateway.request("initialize", hello)
        assert reply.result["protocolVersion"] == "2025-11-25"


async def test_plain_json_rpc_calls_need_no_session() -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        await gateway.all_ready()
        for accept in ("application/json", "*/*", ""):
            plain = {"Accept": accept}
            reply = await gateway.call("progress", {"steps": 2}, headers=plain)
            assert reply.headers["Content-Type"].startswith("application/json")
            assert reply.text == "2 steps"
        for method, params in (
            ("ping", {}),
            ("tools/list", {}),
            ("prompts/list", {}),
            ("resources/list", {}),
            ("resources/templates/list", {}),
            ("prompts/get", {"name": "greet"}),
            ("resources/read", {"uri": "test://a/own"}),
            (
                "completion/complete",
                {
                    "ref": {"type": "ref/prompt", "name": "greet"},
                    "argument": {"name": "who", "value": "a"},
                },
            ),
        ):
            assert "result" in (await gateway.request(method, params)).message, method
        for method in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
            reply = await gateway.request(method, {"level": "info", "uri": "test://a/own"})
            assert (reply.status, reply.error["code"]) == (400, -32600), method
        note = b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}'
        assert (await gateway.post(note)).status == 202
        assert (await gateway.post(b'{"jsonrpc":"2.0","id":1,"result":{}}')).status == 400
        async with gateway.http.get(gateway.url, headers={"Accept": ACCEPT}) as answer:
            assert answer.status == 400
        async with gateway.http.delete(gateway.url) as answer:
            assert answer.status == 400


async def test_what_is_not_offered_yet_is_an_unknown_method() -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        await gateway.all_ready()
        session = await gateway.open_session()
        for method in ("resources/subscribe", "resources/unsubscribe", "tasks/list", "no/such"):
            params = {"uri": "test://a/own"}
            reply = await gateway.request(method, params, session=session)
            assert (reply.status, reply.error["code"]) == (200, -32601), method


async def test_resources_are_read_from_a_member_that_has_them() -> None:
    async with Gateway(members=[faulty("a"), faulty("b")]) as gateway:
        await gateway.all_ready()
        for name in ("a", "b"):
            reply = await gateway.request("resources/read", {"uri": f"test://{name}/own"})
            assert reply.result["contents"][0]["text"] == f"test://{name}/own on {name}"
        reply = await gateway.request("resources/read", {"uri": "test://items/42"})
        assert reply.result["contents"][0]["text"].startswith("test://items/42 on ")
        reply = await gateway.request("resources/read", {"uri": "test://no/such"})
        assert reply.error["code"] == -32002


async def test_completion_asks_only_members_that_have_it() -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        await gateway.all_ready()

        async def values(kind: str, name: str) -> list[str]:
            key = "name" if kind == "prompt" else "uri"
            params = {
                "ref": {"type": f"ref/{kind}", key: name},
                "argument": {"name": "x", "value": "al"},
            }
            completion = (await gateway.request("completion/complete", params)).result
            found: list[str] = completion["completion"]["values"]
            return found

        assert await values("prompt", "greet") == ["alice", "albert"]
        assert await values("prompt", "a__greet") == ["alice", "albert"]
        assert await values("resource", "test://items/{id}") == ["alice", "albert"]
        assert await values("prompt", "nobody") == []
        reply = await gateway.request("completion/complete", {"ref": {"type": "ref/none"}})
        assert reply.error["code"] == -32602


async def test_more_than_a_thousand_tools_are_listed_in_pages(tmp_path: Path) -> None:
    tools = [
        {"name": f"t{number:04}", "inputSchema": {"type": "object"}, "x": number}
        for number in range(2500)
    ]
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(tools))
    many = faulty("many", "--tools-file", str(path), "--page-size", "70")
    async with Gateway(members=[many, faulty("a")]) as gateway:
        await gateway.all_ready()
        async with gateway.client() as client:
            found: list[str] = []
            sizes: list[int] = []
            cursor = None
            while True:
                page = await client.list_tools(cursor=cursor)
                found += [tool.name for tool in page.tools]
                sizes.append(len(page.tools))
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert len(found) == len(set(found)) == sum(sizes)
            assert set(found) >= {tool["name"] for tool in tools} | {"echo", "only_a"}
            assert sizes[:2] == [1000, 1000]
            assert len(sizes) == 3
            assert (await client.call_tool("t2499", {})).content[0].text == "t2499 on many"  # type: ignore[union-attr]


async def test_delete_ends_a_session_and_what_belongs_to_it(call_log: CallLog) -> None:
    own = faulty("own", *call_log.flags, isolation="PerSession")
    async with Gateway(members=[own]) as gateway:
        await gateway.all_ready()
        session, other = await gateway.open_session(), await gateway.open_session()
        pids = {
            each: (await gateway.call("whoami", session=each)).result["structuredContent"]["pid"]
            for each in (session, other)
        }
        assert pids[session] != pids[other]
        slow = asyncio.create_task(gateway.call("sleep", {"seconds": 30}, session=session))
        await call_log.until(1, tool="sleep")
        assert await gateway.close_session(session) in (200, 204)
        async with asyncio.timeout(5):
            assert b"result" not in (await slow).body
        await call_log.until(1, event="told", timeout=2)
        assert (await gateway.call("echo", session=session)).status == 404
        assert await gateway.close_session(session) == 404
        await until(lambda: pids[session] not in {p.pid for p in gateway.descendants()}, 5)
        assert (await gateway.call("whoami", session=other)).result["structuredContent"][
            "pid"
        ] == pids[other]
        assert (await gateway.status())["sessions"]["open"] == 1


async def test_lists_stay_whole_while_a_member_is_down(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    alive.touch()
    down = faulty("b", "--fail-start-until-file", str(alive))
    async with Gateway(members=[faulty("a"), down]) as gateway:
        await gateway.all_ready()
        async with gateway.client() as client:
            before = [tool.name for tool in (await client.list_tools()).tools]
            assert {"only_a", "only_b"} <= set(before)
            alive.unlink()
            [process] = [
                p for p in gateway.descendants() if p.pid == (await gateway.member("b"))["pid"]
            ]
            process.kill()
            await gateway.wait_for(
                lambda s: not next(m for m in s["members"] if m["name"] == "b")["inRotation"]
            )
            during = await client.list_tools(cache_mode="refresh")
            assert [tool.name for tool in during.tools] == before
            with pytest.raises(mcp.MCPError) as refused:
                await client.call_tool("only_b", {})
            assert refused.value.code == -31001
            alive.touch()
            await gateway.wait_state("b")
            assert (await client.call_tool("only_b", {})).content


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_call_that_the_official_client_gives_up_is_cancelled_at_the_member(
    transport: str, call_log: CallLog
) -> None:
    async with FaultyHttp("h", "--sse", *call_log.flags) as http:
        member = faulty("a", *call_log.flags) if transport == "stdio" else http.spec()
        async with Gateway(members=[member]) as gateway:
            await gateway.all_ready()
            async with gateway.client() as client:
                task = asyncio.create_task(client.call_tool("sleep", {"seconds": 30}))
                await call_log.until(1, tool="sleep")
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                await call_log.until(1, event="cancelled", timeout=3)
                assert (await client.call_tool("echo", {"n": 1})).content
            status = await gateway.status()
            assert all(m["inRotation"] and not m["inFlight"] for m in status["members"])
