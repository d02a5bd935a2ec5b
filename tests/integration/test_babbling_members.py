"""Members that say ten thousand random and damaged messages between their answers.

Each client gets exactly its own answer, or is told that its member spoiled it; nothing is logged as
a fault of ours, nothing is left open, and the gateway serves on.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.inside import Inside, inside, modern
from tests.harness.members import stdio
from tests.harness.messages import messages_of, request
from tests.harness.processes import ROOT
from tests.servers import babble
from tests.servers.babbling import answer_of
from tests.servers.raw_http import (
    Peer,
    RawServer,
    Request,
    chunk,
    event,
    response,
    stream_head,
)
from tests.servers.raw_sse import ACCEPTED, OldStream

if TYPE_CHECKING:
    from pathlib import Path

SEED = 20261130
CLIENTS = 64
CALLS = 10
NOISE = 16
ASKABLE: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
#: What a client may be told in place of its answer: its member failed it.
SPOILED = {-31002, -31003, -31007}


class Babbler:
    """A member over HTTP; `how` is json, sse or old, `era` legacy or modern."""

    def __init__(self, how: str, era: str) -> None:
        self.how = how
        self.era = era
        self.rng = random.Random(SEED)  # noqa: S311 - repeatable on purpose
        self.said = 0
        self.streams: list[OldStream] = []
        self.in_flight: dict[Any, None] = {}
        self.talking: set[asyncio.Task[None]] = set()

    def noise(self, token: int | None, *, whole: bool) -> bytes:
        self.said += 1
        return babble.message(self.rng, token, whole=whole)

    async def __call__(self, asked: Request, peer: Peer) -> None:
        if asked.method == "GET":
            await self._get(peer)
        elif asked.method != "POST":
            await peer.send(response(status=405))
        elif asked.id is None or not asked.rpc_method:
            await peer.send(response(status=202, content_type=None))
        elif self.how == "old" and asked.target == "/sse":
            await peer.send(response(status=405))
        elif asked.rpc_method == "tools/call":
            await self._call(asked, peer)
        else:
            await self._answer(asked, peer, self.body(asked))

    def body(self, asked: Request) -> bytes:
        result = answer_of(self.era, asked.rpc_method, asked.message.get("params", {}))
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": asked.id}
        body |= (
            {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
        )
        return babble.encode(body)

    async def _answer(self, asked: Request, peer: Peer, body: bytes) -> None:
        if self.how == "old":
            await peer.send(ACCEPTED)
            await self.stream_of(asked).say(body)
            return
        unknown = b'"error"' in body
        headers = (("Mcp-Session-Id", "s"),) if asked.rpc_method == "initialize" else ()
        await peer.send(response(body, status=404 if unknown else 200, headers=headers))

    async def _get(self, peer: Peer) -> None:
        if self.era == "modern":
            await peer.send(response(status=405))
            return
        await peer.send(stream_head())
        if self.how == "old":
            self.streams.append(OldStream(peer))
            data = b"event: endpoint\ndata: /messages?id=%d\n\n" % (len(self.streams) - 1)
            await peer.send(chunk(data))
            return
        for _ in range(20):
            await peer.send(chunk(event(self.noise(None, whole=False))))
            await asyncio.sleep(0.005)
        await peer.gone.wait()

    async def _call(self, asked: Request, peer: Peer) -> None:
        rng = self.rng
        if self.how == "json":
            await asyncio.sleep(rng.random() / 50)
            await self._answer(asked, peer, self._damaged(self.body(asked)))
            return
        whole = rng.random() < 0.8
        self.in_flight[asked.id] = None
        if self.how == "old":
            await peer.send(ACCEPTED)
            # It goes on whatever becomes of the connection of the POST.
            talk = asyncio.create_task(self._talk(asked, self.stream_of(asked), whole=whole))
            self.talking.add(talk)
            talk.add_done_callback(self.talking.discard)
        else:
            await peer.send(stream_head())
            await self._talk(asked, OldStream(peer), whole=whole)

    async def _talk(self, asked: Request, stream: OldStream, *, whole: bool) -> None:
        token = asked.message["params"].get("_meta", {}).get("progressToken")
        rng = self.rng
        for _ in range(NOISE):
            await stream.write(event(self.noise(token, whole=whole or self.how == "old")))
            if self.how == "sse" and rng.random() < 0.3:  # the answer to another's call
                other = rng.choice(tuple(self.in_flight))
                if other != asked.id:
                    stolen = {"content": [{"type": "text", "text": "stolen"}]}
                    await stream.say(
                        babble.encode({"jsonrpc": "2.0", "id": other, "result": stolen})
                    )
            if rng.random() < 0.1:
                await asyncio.sleep(0.001)
        if self.how == "old" and not whole:
            await stream.write(b"event: message\ndata: {\n\n: x\n\nevent: x\ndata: {}\n\n")
        body = self.body(asked)
        await stream.say(body)
        if self.how == "old":
            await stream.say(body)
        else:
            await stream.write(b"")
        self.in_flight.pop(asked.id, None)

    def _damaged(self, body: bytes) -> bytes:
        if self.rng.random() < 0.5:
            return body
        return babble.mutated(self.rng, self.noise(None, whole=self.rng.random() < 0.5))

    def stream_of(self, asked: Request) -> OldStream:
        return self.streams[int(asked.target.rpartition("?id=")[2])]


class Crowd:
    """Clients of every kind that call `echo`, answer what they are asked, and keep count."""

    def __init__(self, gateway: Inside) -> None:
        self.gateway = gateway
        self.own = 0
        self.spoiled = 0
        self.asked = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                kind = (self.in_session, self.without_session, self.modern)[number % 3]
                group.create_task(kind(number))

    def take(self, message: dict[str, Any], mark: str) -> bool:
        """Look at one message of the stream of a call; True when it was the answer."""
        if "method" in message:
            if message["method"] == "notifications/progress":
                assert message["params"]["progressToken"] == mark
            return False
        assert message["id"] == mark, message
        if "error" in message:
            assert message["error"]["code"] in SPOILED, message
            self.spoiled += 1
        elif message["result"].get("resultType") != "input_required":
            content = message["result"].get("content")
            if content and "text" in content[0]:
                assert json.loads(content[0]["text"]) == {"mark": mark}, message
            self.own += 1
        return True

    async def in_session(self, number: int) -> None:
        gateway = self.gateway
        session = await gateway.open_session(ASKABLE)
        for call in range(CALLS):
            mark = f"{number}-{call}"
            message = request("tools/call", mark, **_echo(mark))
            answered = False
            async with gateway.send(message, session=session) as answer:
                assert answer.status == 200
                async for each in messages_of(answer):
                    if "id" in each and "method" in each:
                        self.asked += 1
                        if self.asked % 2:
                            reply = {"jsonrpc": "2.0", "id": each["id"], "result": {"action": "x"}}
                            await gateway.post(reply, session=session)
                    else:
                        answered |= self.take(each, mark)
            assert answered
        assert await gateway.end_session(session) == 204

    async def without_session(self, number: int) -> None:
        for call in range(CALLS):
            mark = f"{number}-{call}"
            status, messages = await self.gateway.post(request("tools/call", mark, **_echo(mark)))
            assert status == 200
            assert [self.take(each, mark) for each in messages][-1]

    async def modern(self, number: int) -> None:
        for call in range(CALLS):
            mark = f"{number}-{call}"
            more: dict[str, Any] = {}
            for _ in range(40):
                message, headers = modern("tools/call", mark, ASKABLE, **_echo(mark), **more)
                status, messages = await self.gateway.post(message, **headers)
                assert status in (200, 400), messages
                assert self.take(messages[-1], mark)
                result = messages[-1].get("result", {})
                if result.get("resultType") != "input_required":
                    break
                self.asked += 1
                if self.asked % 7 == 0:
                    break  # and never comes back
                responses = {key: {"action": "decline"} for key in result["inputRequests"]}
                more = {"requestState": result["requestState"], "inputResponses": responses}


def _echo(mark: str) -> dict[str, Any]:
    return {"name": "echo", "arguments": {"mark": mark}, "_meta": {"progressToken": mark}}


async def _babble_at(gateway: Inside, *, spoils: bool = False) -> None:
    """`spoils` says that the member damages some answers, or the streams that they are in."""
    await gateway.ready()
    crowd = Crowd(gateway)
    await crowd.run()
    assert crowd.own > CLIENTS * CALLS / 4
    assert (crowd.spoiled > CLIENTS * CALLS / 10) is spoils
    gateway.replica.context.pending.close()  # of clients that never came back
    await gateway.until(lambda: not set(gateway.tables()) - {"upstreams", "sessions"}, seconds=15)
    status, messages = await gateway.post(request("tools/list", 1))
    assert (status, messages[-1]["result"]["tools"][0]["name"]) == (200, "echo")
    assert gateway.log.faults == []


#: A member that spoils several answers in a row is taken out for a moment, as it should be, and
#: then its callers are told so. Here it stays: whose answer is whose is the question.
STEADY: dict[str, Any] = {
    "limits": {"inputSeconds": 60},
    "health": {"unhealthyThreshold": 100},
    "memberBreaker": {"failureThreshold": 0},
}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_process_that_babbles_answers_each_caller_its_own(era: str, tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-m", "tests.servers.babbling", era, str(SEED), str(NOISE)]
    member = stdio("a", command, isolation="PerSession", callTimeoutSeconds=5)
    member["stdio"]["workingDir"] = str(ROOT)
    async with inside(tmp_path / "group.json", members=[member], **STEADY) as gateway:
        await _babble_at(gateway)


@pytest.mark.parametrize(
    ("how", "era"),
    [
        ("json", "legacy"),
        ("sse", "legacy"),
        ("old", "legacy"),
        ("json", "modern"),
        ("sse", "modern"),
    ],
)
async def test_a_server_that_babbles_answers_each_caller_its_own(
    how: str, era: str, tmp_path: Path
) -> None:
    babbler = Babbler(how, era)
    async with RawServer(babbler) as server:
        url = server.url.replace("/mcp", "/sse") if how == "old" else server.url
        transport = {"transport": "Sse"} if how == "old" else {}
        member = {
            "name": "a",
            "http": {"url": url},
            **transport,
            "isolation": "PerSession",
            "callTimeoutSeconds": 5,
        }
        async with inside(tmp_path / "group.json", members=[member], **STEADY) as gateway:
            await _babble_at(gateway, spoils=how != "old")
    # Without streams there is one message a call: its answer, or what comes in its place.
    assert babbler.said > CLIENTS * CALLS * (1 / 4 if how == "json" else NOISE / 2)
