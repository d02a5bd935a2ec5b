"""Members and clients that send far too much: the gateway serves on, and forgets it afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.harness.asking import asking
from tests.harness.inside import Inside, inside, modern
from tests.harness.members import stdio
from tests.harness.messages import messages_of, request
from tests.harness.processes import ROOT
from tests.servers.babbling import answer_of
from tests.servers.raw_http import Peer, RawServer, Request, chunk, event, response, stream_head

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ASKABLE: dict[str, Any] = {"elicitation": {}}
FLOOD = [sys.executable, "-S", "-m", "tests.servers.flooding"]
#: What a flood may add for a while, and what may be left of it.
ROOM = 150 * 1024 * 1024
#: Questions of one session that may be open at once.
MAX_QUESTIONS = 100


def flooding(*flags: str, **fields: Any) -> dict[str, Any]:
    member = stdio("a", [*FLOOD, *flags], isolation="PerSession", **fields)
    member["stdio"]["workingDir"] = str(ROOT)
    return member


async def _serves(gateway: Inside) -> None:
    async with asyncio.timeout(15):
        status, messages = await gateway.post(request("tools/list", 1))
    assert status == 200
    assert messages[-1]["result"]["tools"]


async def _flooded(gateway: Inside, session: str, watch: Callable[[], None]) -> None:
    """Wait until the member has said all of it, with a look now and then; the gateway serves."""
    wait = request("tools/call", 2, name="wait")
    waiting = asyncio.create_task(gateway.post(wait, session=session))
    while not waiting.done():
        watch()
        await _serves(gateway)
        await asyncio.wait({waiting}, timeout=0.02)
    status, messages = await waiting
    assert status == 200
    assert "result" in messages[-1], messages
    watch()


@pytest.mark.parametrize("when", ["in a call", "outside of calls"])
async def test_a_process_that_asks_a_hundred_thousand_times_harms_nobody(
    when: str, tmp_path: Path
) -> None:
    async with inside(tmp_path / "group.json", members=[flooding("questions", when)]) as gateway:
        await gateway.ready()
        before = psutil.Process().memory_info().rss
        session = await gateway.open_session(ASKABLE)
        call = request("tools/call", 1, name="flood")
        seen = 0
        most_open = 0
        answered = False

        def watch() -> None:
            nonlocal most_open
            most_open = max(most_open, len(gateway.replica.context.questions))
            assert psutil.Process().memory_info().rss - before < ROOM

        accept = {"Accept": "text/event-stream", "Mcp-Session-Id": session}
        async with asyncio.timeout(60), gateway.http.get(gateway.url, headers=accept) as stream:
            assert stream.status == 200  # it is never read
            async with gateway.send(call, session=session) as answer:
                async for message in messages_of(answer):
                    asks = message.get("method") == "elicitation/create"
                    seen += asks
                    if asks and seen <= 100:
                        reply = {"jsonrpc": "2.0", "id": message["id"]}
                        declined = {**reply, "result": {"action": "decline"}}
                        await gateway.post(declined, session=session)
                    answered |= message.get("id") == 1 and "result" in message
                    watch()
            await _flooded(gateway, session, watch)
        assert answered
        assert (seen > 100) is (when == "in a call")
        assert 0 < most_open <= MAX_QUESTIONS
        await _serves(gateway)
        assert await gateway.end_session(session) == 204
        await gateway.until(lambda: not gateway.tables(), 20)
        assert gateway.log.faults == []
        assert len(gateway.log.warnings) < 1000


async def test_a_member_that_says_a_hundred_thousand_things_of_itself_harms_nobody(
    tmp_path: Path,
) -> None:
    spec = {**flooding("news", "outside of calls"), "isolation": "Shared"}
    async with inside(tmp_path / "group.json", members=[spec]) as gateway:
        await gateway.ready()
        before = psutil.Process().memory_info().rss
        listen = {"notifications": {"resourceSubscriptions": ["file:///a"]}}
        message, headers = modern("subscriptions/listen", 1, **listen)
        session = await gateway.open_session()
        subscribed = await gateway.post(
            request("resources/subscribe", 1, uri="file:///a"), session=session
        )
        assert subscribed[0] == 200
        assert "result" in subscribed[1][-1], subscribed

        def watch() -> None:
            assert psutil.Process().memory_info().rss - before < ROOM

        async with asyncio.timeout(60), gateway.send(message, **headers) as answer:
            assert answer.status == 200
            status, _ = await gateway.post(request("tools/call", 1, name="flood"), session=session)
            assert status == 200
            await _flooded(gateway, session, watch)
            # Only now it reads: what came first is still there for it.
            messages = messages_of(answer)
            told = [(await anext(messages))["method"] for _ in range(2)]
            assert told == [
                "notifications/subscriptions/acknowledged",
                "notifications/resources/updated",
            ]
        assert await gateway.end_session(session) == 204
        await gateway.until(lambda: not gateway.tables(), 20)
        assert gateway.log.faults == []


class Quiet:
    """A legacy member over HTTP that answers; GET streams stay open and silent."""

    async def __call__(self, asked: Request, peer: Peer) -> None:
        if asked.method == "GET":
            await peer.send(stream_head())
            await peer.gone.wait()
        elif asked.method != "POST" or asked.id is None or not asked.rpc_method:
            await peer.send(response(status=202, content_type=None))
        else:
            result = answer_of("legacy", asked.rpc_method, asked.message.get("params", {}))
            body: dict[str, Any] = {"jsonrpc": "2.0", "id": asked.id}
            fault = {"code": -32601, "message": "no"}
            body |= {"error": fault} if result is None else {"result": result}
            headers = (("Mcp-Session-Id", "s"),) if asked.rpc_method == "initialize" else ()
            await peer.send(response(json.dumps(body).encode(), headers=headers))


async def test_clients_that_declare_ever_other_capabilities_keep_few_sessions_open(
    tmp_path: Path,
) -> None:
    async with RawServer(Quiet()) as server:
        member = {"name": "a", "http": {"url": server.url}, "era": "Legacy"}
        members = [{**member, "isolation": "PerSession"}]
        async with inside(tmp_path / "group.json", members=members) as gateway:
            await gateway.ready()
            for start in range(0, 2000, 50):
                calls = []
                for number in range(start, start + 50):
                    can: dict[str, Any] = {"elicitation": {}, "experimental": {f"x{number}": {}}}
                    message, headers = modern("tools/call", 1, can, name="echo")
                    calls.append(gateway.post(message, **headers))
                for status, messages in await asyncio.gather(*calls):
                    assert status == 200, messages
            assert len(gateway.replica.context.upstreams) <= 64 + 50
            await _serves(gateway)
            assert gateway.log.faults == []


async def test_streams_and_listens_opened_by_the_thousand_leave_nothing(tmp_path: Path) -> None:
    async with RawServer(Quiet()) as server:
        member = {"name": "a", "http": {"url": server.url}, "era": "Legacy"}
        members = [{**member, "isolation": "Shared"}]
        limits = {"requestsInFlight": 5000}
        async with inside(tmp_path / "group.json", members=members, limits=limits) as gateway:
            await gateway.ready()
            session = await gateway.open_session()
            async with contextlib.AsyncExitStack() as stack:
                for number in range(1000):
                    uris = [f"file:///{number % 10}/{name}" for name in "abc"]
                    listen = {
                        "notifications": {"resourceSubscriptions": uris, "toolsListChanged": True}
                    }
                    message, headers = modern("subscriptions/listen", number, **listen)
                    answer = await stack.enter_async_context(gateway.send(message, **headers))
                    assert answer.status == 200
                    accept = {"Accept": "text/event-stream", "Mcp-Session-Id": session}
                    stream = await stack.enter_async_context(
                        gateway.http.get(gateway.url, headers=accept)
                    )
                    assert stream.status == 200
                assert len(gateway.replica.service.listening) == 1000
                await _serves(gateway)
            assert await gateway.end_session(session) == 204
            await gateway.until(lambda: not gateway.tables(), 20)
            assert len(gateway.replica.sessions.replay) == 0
            assert gateway.log.faults == []


@pytest.mark.timeout(200)
async def test_a_thousand_calls_with_questions_leave_nothing_open_and_no_memory(
    tmp_path: Path,
) -> None:
    members = [asking("a", era="Legacy")]
    async with inside(tmp_path / "group.json", members=members) as gateway:
        await gateway.ready()
        session = await gateway.open_session(ASKABLE)
        content = {"action": "accept", "content": {"answer": "yes"}}

        async def ask(number: int) -> None:
            call = request("tools/call", number, name="ask", arguments={"question": "well?"})
            async with gateway.send(call, session=session) as answer:
                async for message in messages_of(answer):
                    if message.get("method") == "elicitation/create":
                        reply = {"jsonrpc": "2.0", "id": message["id"], "result": content}
                        await gateway.post(reply, session=session)
                    elif "result" in message:
                        assert message["result"]["content"][0]["text"] == "yes"

        async def park(number: int) -> None:
            more: dict[str, Any] = {}
            result: dict[str, Any] = {}
            for _ in range(2):
                arguments = {"name": "ask", "arguments": {"question": "well?"}, **more}
                message, headers = modern("tools/call", number, ASKABLE, None, **arguments)
                status, messages = await gateway.post(message, **headers)
                assert status == 200
                result = messages[-1]["result"]
                if result["resultType"] == "input_required":
                    responses = dict.fromkeys(result["inputRequests"], content)
                    more = {"requestState": result["requestState"], "inputResponses": responses}
            assert result["content"][0]["text"] == "yes"

        sizes = []
        for _ in range(5):
            for start in range(0, 100, 10):
                await asyncio.gather(*(ask(start + n) for n in range(10)))
                await asyncio.gather(*(park(start + n) for n in range(10)))
            sizes.append(psutil.Process().memory_info().rss)
        assert sizes[-1] - sizes[1] < 20 * 1024 * 1024, sizes
        assert await gateway.end_session(session) == 204
        await gateway.until(lambda: not set(gateway.tables()) - {"upstreams"}, 10)
        assert gateway.log.faults == []


class Asking(Quiet):
    """Asks in every call, on its stream, and answers never."""

    async def __call__(self, asked: Request, peer: Peer) -> None:
        if asked.rpc_method != "tools/call":
            await super().__call__(asked, peer)
            return
        question = {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {}}
        await peer.send(stream_head())
        await peer.send(chunk(event(json.dumps(question).encode())))
        await peer.gone.wait()


async def test_of_calls_whose_clients_never_come_back_a_bounded_number_is_kept(
    tmp_path: Path,
) -> None:
    async with RawServer(Asking()) as server:
        member = {"name": "a", "http": {"url": server.url}, "era": "Legacy"}
        members = [{**member, "isolation": "PerSession"}]
        async with inside(tmp_path / "group.json", members=members) as gateway:
            await gateway.ready()

            async def park() -> None:
                message, headers = modern("tools/call", 1, ASKABLE, None, name="echo")
                status, messages = await gateway.post(message, **headers)
                assert (status, messages[-1]["result"]["resultType"]) == (200, "input_required")

            for _ in range(24):
                await asyncio.gather(*(park() for _ in range(50)))
            assert gateway.tables()["pending"] == 1000
            await _serves(gateway)
            gateway.replica.context.pending.close()
            await gateway.until(lambda: not set(gateway.tables()) - {"upstreams"}, 10)
            assert gateway.log.faults == []
