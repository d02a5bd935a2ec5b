"""Ends of calls at every point where they wait: nothing runs on, nothing stays open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.harness.asking import asking
from tests.harness.inside import Inside, inside, modern
from tests.harness.messages import messages_of, request
from tests.servers.raw_http import Member, Peer, RawServer, Request, response, result

from mcpgroup_gateway.members.upstream import MemberFailure
from mcpgroup_gateway.serving.interface import Caller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ASKABLE: dict[str, Any] = {"elicitation": {}}
ECHO = {"name": "echo", "inputSchema": {"type": "object"}}
CALL = {"name": "echo", "arguments": {}}


class Scripted(Member):
    """Lists one tool, declares logging and resources; keeps what was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []
        self.on("initialize", self.initialize)
        self.on("tools/list", self._list)
        self.on("tools/call", self._call)

    async def initialize(self, asked: Request, peer: Peer) -> None:
        value = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "logging": {}, "resources": {"subscribe": True}},
            "serverInfo": {"name": "raw", "version": "1"},
        }
        await peer.send(response(result(asked, value), headers=(("Mcp-Session-Id", "s"),)))

    async def _list(self, asked: Request, peer: Peer) -> None:
        await peer.send(response(result(asked, {"tools": [ECHO]})))

    async def _call(self, asked: Request, peer: Peer) -> None:
        self.calls.append(asked.id)
        await peer.send(response(result(asked, {"content": []})))


@contextlib.asynccontextmanager
async def behind(member: Member, tmp_path: Path, **fields: Any) -> AsyncIterator[Inside]:
    async with RawServer(member) as server:
        spec = {"name": "a", "http": {"url": server.url}, "era": "Legacy", **fields}
        async with inside(tmp_path / "group.json", members=[spec]) as gateway:
            await gateway.ready()
            yield gateway
            assert gateway.log.faults == []


async def disconnected(gateway: Inside, message: Any, when: asyncio.Event, **headers: str) -> None:
    """Send a request and leave once `when` is set."""
    call = asyncio.create_task(gateway.post(message, **headers))
    async with asyncio.timeout(5):
        await when.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


async def test_a_call_given_up_while_its_log_level_is_set_never_reaches_the_member(
    tmp_path: Path,
) -> None:
    member, asked, answer = Scripted(), asyncio.Event(), asyncio.Event()

    async def set_level(message: Request, peer: Peer) -> None:
        asked.set()
        await answer.wait()
        await peer.send(response(result(message, {})))

    member.on("logging/setLevel", set_level)
    async with behind(member, tmp_path, isolation="Shared") as gateway:
        level = {"io.modelcontextprotocol/logLevel": "debug"}
        message, headers = modern("tools/call", 1, None, level, **CALL)
        await disconnected(gateway, message, asked, **headers)
        await gateway.until(lambda: not gateway.tables(), 1)
        answer.set()
        status, messages = await gateway.post(request("tools/call", 2, **CALL))
        assert (status, messages[-1]["result"]) == (200, {"content": []})
        assert len(member.calls) == 1


async def test_a_call_given_up_while_its_lost_session_is_opened_anew_never_reaches_the_member(
    tmp_path: Path,
) -> None:
    member, opening, go_on = Scripted(), asyncio.Event(), asyncio.Event()
    lost = 0

    async def call(message: Request, peer: Peer) -> None:
        nonlocal lost
        lost += 1
        if lost == 1:
            member.on("initialize", slow)
            await peer.send(response(status=404))
        else:
            member.calls.append(message.id)
            await peer.send(response(result(message, {"content": []})))

    async def slow(message: Request, peer: Peer) -> None:
        opening.set()
        await go_on.wait()
        await member.initialize(message, peer)

    member.on("tools/call", call)
    async with behind(member, tmp_path, isolation="PerSession") as gateway:
        await disconnected(gateway, request("tools/call", 1, **CALL), opening)
        await gateway.until(lambda: set(gateway.tables()) <= {"upstreams"}, 1)
        go_on.set()
        status, _ = await gateway.post(request("tools/call", 2, **CALL))
        assert status == 200
        assert len(member.calls) == 1


async def test_a_client_that_leaves_before_it_listens_ends_what_it_asked_for(
    tmp_path: Path,
) -> None:
    member, asked = Scripted(), asyncio.Event()

    async def silent(message: Request, peer: Peer) -> None:
        asked.set()
        await peer.gone.wait()

    member.on("resources/subscribe", silent)
    async with behind(member, tmp_path, isolation="Shared") as gateway:
        uris = [f"file:///{number}" for number in range(1000)]
        listen = {"notifications": {"resourceSubscriptions": uris}}
        message, headers = modern("subscriptions/listen", 1, **listen)
        await disconnected(gateway, message, asked, **headers)
        await gateway.until(lambda: not gateway.tables(), 1)


class Followed(Scripted):
    """Keeps which resources it was asked to tell of, and answers when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.followed = False
        self.running = self.most = 0
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()
        self.on("resources/subscribe", self._follow)
        self.on("resources/unsubscribe", self._follow)

    async def _follow(self, message: Request, peer: Peer) -> None:
        self.followed = message.rpc_method == "resources/subscribe"
        self.asked.append(message.rpc_method)
        self.running += 1
        self.most = max(self.most, self.running)
        self.arrived.set()
        await self.go_on.wait()
        self.running -= 1
        await peer.send(response(result(message, {})))


async def _follow(gateway: Inside, session: str, what: str) -> None:
    message = request(f"resources/{what}", 1, uri="file:///a")
    status, messages = await gateway.post(message, session=session)
    assert (status, messages) == (200, [{"jsonrpc": "2.0", "id": 1, "result": {}}])


@contextlib.asynccontextmanager
async def _one_of_two_follows(
    member: Followed, tmp_path: Path
) -> AsyncIterator[tuple[Inside, str, str]]:
    """Two sessions; the first follows the resource, and what is asked now waits for `go_on`."""
    async with behind(member, tmp_path, isolation="Shared") as gateway:
        first, second = await gateway.open_session(), await gateway.open_session()
        member.go_on.set()
        await _follow(gateway, first, "subscribe")
        member.go_on.clear()
        member.arrived.clear()
        yield gateway, first, second


async def test_who_leaves_while_another_begins_to_follow_takes_nothing_from_it(
    tmp_path: Path,
) -> None:
    member = Followed()
    async with _one_of_two_follows(member, tmp_path) as (gateway, first, second):
        begins = asyncio.create_task(_follow(gateway, second, "subscribe"))
        arrives = asyncio.create_task(member.arrived.wait())
        # The member may be asked again, but need not be.
        await asyncio.wait((begins, arrives), timeout=5, return_when=asyncio.FIRST_COMPLETED)
        arrives.cancel()
        leaves = asyncio.create_task(_follow(gateway, first, "unsubscribe"))
        await asyncio.wait((leaves,), timeout=0.5)  # it may not wait for the other
        member.go_on.set()
        await asyncio.gather(begins, leaves)
        assert member.followed, member.asked
        await _follow(gateway, second, "unsubscribe")
        assert not member.followed, member.asked


async def test_who_begins_to_follow_while_another_leaves_is_asked_for_after_it(
    tmp_path: Path,
) -> None:
    member = Followed()
    async with _one_of_two_follows(member, tmp_path) as (gateway, first, second):
        leaves = asyncio.create_task(_follow(gateway, first, "unsubscribe"))
        await asyncio.wait_for(member.arrived.wait(), 5)
        begins = asyncio.create_task(_follow(gateway, second, "subscribe"))
        # It must wait for what is under way, so there is no event to wait for.
        await asyncio.wait((begins,), timeout=0.5)
        member.go_on.set()
        await asyncio.gather(begins, leaves)
        asked = [method.removeprefix("resources/") for method in member.asked]
        assert asked == ["subscribe", "unsubscribe", "subscribe"]
        assert member.most == 1


async def test_a_call_whose_session_has_ended_opens_nothing_at_a_member(tmp_path: Path) -> None:
    async with behind(Scripted(), tmp_path, isolation="PerSession") as gateway:
        context = gateway.replica.context
        session = gateway.replica.sessions.use(await gateway.open_session())
        assert session is not None
        assert await gateway.end_session(session.id) == 204
        [endpoint] = context.group.endpoints.values()
        with pytest.raises(MemberFailure, match="the session has ended"):
            context.claim(endpoint, Caller(session))
        assert not gateway.tables()


async def test_log_levels_set_faster_than_a_member_takes_them_cost_one_request_at_a_time(
    tmp_path: Path,
) -> None:
    member, levels = Scripted(), []
    go_on = asyncio.Event()

    async def set_level(message: Request, peer: Peer) -> None:
        levels.append(message.message["params"]["level"])
        await go_on.wait()
        await peer.send(response(result(message, {})))

    member.on("logging/setLevel", set_level)
    async with behind(member, tmp_path, isolation="Shared") as gateway:
        session = await gateway.open_session()
        for number in range(100):
            level = "info" if number < 99 else "error"
            await gateway.post(request("logging/setLevel", number, level=level), session=session)
        assert len(levels) == 1
        go_on.set()
        await gateway.until(lambda: levels == ["info", "error"])
        assert await gateway.end_session(session) == 204


async def _park(gateway: Inside) -> dict[str, Any]:
    """A call of `ask` that waits for its client: what the client comes back with."""
    arguments: dict[str, Any] = {"name": "ask", "arguments": {"question": "well?"}}
    message, headers = modern("tools/call", 1, ASKABLE, **arguments)
    status, messages = await gateway.post(message, **headers)
    assert status == 200, messages
    asked = messages[-1]["result"]
    assert asked["resultType"] == "input_required", asked
    answer = {"action": "accept", "content": {"answer": "yes"}}
    responses = dict.fromkeys(asked["inputRequests"], answer)
    return {**arguments, "requestState": asked["requestState"], "inputResponses": responses}


async def _come_back(gateway: Inside, back: dict[str, Any]) -> dict[str, Any]:
    message, headers = modern("tools/call", 2, ASKABLE, **back)
    _, messages = await gateway.post(message, **headers)
    return messages[-1]


async def test_a_call_that_waits_for_its_client_does_not_hold_up_the_removal_of_its_member(
    tmp_path: Path,
) -> None:
    path = tmp_path / "group.json"
    members = [asking("a", era="Legacy"), asking("b", era="Legacy")]
    async with inside(path, members=members, drain={"timeoutSeconds": 2}) as gateway:
        await gateway.ready()
        back = await _park(gateway)
        endpoints = gateway.replica.context.group.endpoints
        used = next(endpoint.member for endpoint in endpoints.values() if endpoint.in_flight)
        document = json.loads(path.read_text())
        left = [member for member in members if member["name"] != used]
        document["spec"]["members"] = left
        new = path.with_suffix(".new")
        new.write_text(json.dumps(document))
        os.replace(new, path)
        await gateway.until(lambda: len(endpoints) == 1, 15)
        assert (await _come_back(gateway, back))["error"]["code"] == -31003
        assert gateway.log.faults == []
        assert not set(gateway.tables()) - {"upstreams"}


async def test_a_call_that_waits_for_its_client_ends_with_its_process(tmp_path: Path) -> None:
    members = [asking("a", era="Legacy")]
    async with inside(tmp_path / "group.json", members=members) as gateway:
        await gateway.ready()
        before = {process.pid for process in psutil.Process().children()}
        back = await _park(gateway)
        own = [each for each in psutil.Process().children() if each.pid not in before]
        assert own
        for process in own:
            process.kill()
        await gateway.until(lambda: "in_flight" not in gateway.tables(), 5)
        assert (await _come_back(gateway, back))["error"]["code"] == -31003
        assert gateway.log.faults == []


async def test_of_two_that_come_back_at_once_one_gets_the_answer(tmp_path: Path) -> None:
    members = [asking("a", era="Legacy")]
    async with inside(tmp_path / "group.json", members=members) as gateway:
        await gateway.ready()
        for _ in range(10):
            back = await _park(gateway)
            answers = await asyncio.gather(*(_come_back(gateway, back) for _ in range(3)))
            codes = sorted(answer.get("error", {}).get("code", 0) for answer in answers)
            assert codes == [-31003, -31003, 0]
        assert gateway.log.faults == []
        assert not set(gateway.tables()) - {"upstreams"}


@pytest.mark.parametrize(
    ("when", "outcomes"),
    [("before", ["yes"]), ("with", ["yes", "cancel"]), ("after", ["cancel"])],
)
async def test_an_answer_in_the_moment_in_which_its_time_is_over_ends_the_question_once(
    when: str, outcomes: list[str], tmp_path: Path
) -> None:
    members = [asking("a", era="Legacy")]
    limits = {"inputSeconds": 1}
    async with inside(tmp_path / "group.json", members=members, limits=limits) as gateway:
        await gateway.ready()
        session = await gateway.open_session(ASKABLE)
        call = request("tools/call", 1, name="ask", arguments={"question": "well?"})
        async with asyncio.timeout(20), gateway.send(call, session=session) as stream:
            messages = messages_of(stream)
            question = await anext(messages)
            assert question["method"] == "elicitation/create", question
            content = {"action": "accept", "content": {"answer": "yes"}}
            reply = {"jsonrpc": "2.0", "id": question["id"], "result": content}
            rest = []
            if when == "after":
                rest = [each async for each in messages]
            else:
                await asyncio.sleep({"before": 0.3, "with": 0.998}[when])
            status, _ = await gateway.post(reply, session=session)
            assert status == 202
            rest += [each async for each in messages]
        [answer] = [each for each in rest if each.get("id") == 1]
        assert answer["result"]["content"][0]["text"] in outcomes
        assert await gateway.end_session(session) == 204
        await gateway.until(lambda: not gateway.tables())
        assert gateway.log.faults == []
