"""Ten thousand confused messages of clients to a whole gateway, while honest ones are served."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.asking import asking
from tests.harness.inside import Inside, inside, modern
from tests.harness.messages import ACCEPT, messages_of, request
from tests.harness.mutations import confused
from tests.servers import babble

if TYPE_CHECKING:
    from pathlib import Path

SEED = 20261130
MESSAGES = 10_000
SENDERS = 16
ASKABLE: dict[str, Any] = {"elicitation": {}}
CONTENT = {"action": "accept", "content": {"answer": "yes"}}
EVENT_IDS = ["g1-1", "p1-1", "g999-1", "p1-", "-", "x", "p1-" + "9" * 40, "g1-0", "p2-1, p3-1"]


class Vandal:
    """Sends what is nearly right, in the sessions of others' where it can."""

    def __init__(self, gateway: Inside, sessions: list[str]) -> None:
        self.gateway = gateway
        self.sessions = sessions
        self.states = ["", "x.y"]
        self.rng = random.Random(SEED)  # noqa: S311 - repeatable on purpose
        self.left = MESSAGES
        self.statuses: dict[int, int] = {}

    async def run(self) -> None:
        while self.left > 0:
            self.left -= 1
            status = await self._one()
            assert status < 500, status
            self.statuses[status] = self.statuses.get(status, 0) + 1

    async def _one(self) -> int:
        rng = self.rng
        match rng.randrange(8):
            case 0:
                return await self._get()
            case 1 | 2:
                return await self._modern()
            case 3:
                body: Any = [self._legacy() for _ in range(rng.randrange(4))]
            case _:
                body = self._legacy()
        data = json.dumps(body).encode()
        if rng.random() < 0.2:
            data = babble.mutated(rng, data)
        return await self._post(data, {"Mcp-Session-Id": rng.choice(self.sessions)})

    async def _post(self, data: bytes, headers: dict[str, str]) -> int:
        fields = {"Content-Type": "application/json", "Accept": ACCEPT, **headers}
        gateway = self.gateway
        async with gateway.http.post(gateway.url, data=data, headers=fields) as answer:
            async for message in messages_of(answer):
                result = message.get("result") if isinstance(message, dict) else None
                if isinstance(result, dict) and "requestState" in result:
                    self.states = [*self.states[-20:], result["requestState"]]
            return answer.status

    async def _get(self) -> int:
        headers = {"Accept": "text/event-stream", "Mcp-Session-Id": self.rng.choice(self.sessions)}
        if self.rng.random() < 0.9:
            headers["Last-Event-ID"] = self.rng.choice(EVENT_IDS)
        async with self.gateway.http.get(self.gateway.url, headers=headers) as answer:
            return answer.status

    def _legacy(self) -> Any:
        rng = self.rng
        number = rng.choice([rng.randrange(1, 300), "1", None, 1.5, 10**30])
        message = rng.choice(
            [
                {"jsonrpc": "2.0", "id": number, "result": CONTENT},
                {"jsonrpc": "2.0", "id": number, "error": {"code": -1, "message": "no"}},
                request("tools/call", number, name="quick"),
                request("tools/list", number, cursor="x"),
                request("resources/subscribe", number, uri="file:///a"),
                request("resources/unsubscribe", number, uri="file:///a"),
                request("logging/setLevel", number, level="debug"),
                request("completion/complete", number, ref={"type": "ref/prompt", "name": "x"}),
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": {"requestId": "never"},
                },
                {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
                {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}},
            ]
        )
        return confused(rng, message) if rng.random() < 0.5 else message

    async def _modern(self) -> int:
        rng = self.rng
        state = rng.choice(self.states)
        if rng.random() < 0.5:
            at = rng.randrange(len(state) + 1)
            state = state[:at] + rng.choice(["", "A", ".", "é"]) + state[at + 1 :]
        more = {"requestState": state, "inputResponses": {"input-1": CONTENT, "x": {}}}
        arguments = {"question": rng.choice(["one", "two"])}
        message, headers = modern(
            "tools/call", 1, ASKABLE, None, name="ask", arguments=arguments, **more
        )
        if rng.random() < 0.5:
            message["params"] = {**message["params"], "inputResponses": confused(rng, more)}
        if rng.random() < 0.3:
            del message["params"]["requestState"]
        return await self._post(json.dumps(message).encode(), headers)


@pytest.mark.timeout(200)
async def test_ten_thousand_confused_messages_harm_no_honest_client(tmp_path: Path) -> None:
    limits = {"inputSeconds": 60}
    members = [asking("a", era="Modern", isolation="Shared"), asking("b", era="Legacy")]
    async with inside(tmp_path / "group.json", members=members, limits=limits) as gateway:
        await gateway.ready()
        sessions = [await gateway.open_session({}) for _ in range(3)]
        sessions.append(await gateway.open_session({}, "2025-03-26"))
        vandal = Vandal(gateway, sessions)
        done = asyncio.Event()
        served = 0

        async def honest(number: int) -> None:
            nonlocal served
            session = await gateway.open_session(ASKABLE)
            while not done.is_set():
                arguments = {"question": f"{number}?"}
                call = request("tools/call", number, name="ask", arguments=arguments)
                async with gateway.send(call, session=session) as answer:
                    async for message in messages_of(answer):
                        if message.get("method") == "elicitation/create":
                            assert message["params"]["message"] == f"{number}?"
                            reply = {"jsonrpc": "2.0", "id": message["id"], "result": CONTENT}
                            await gateway.post(reply, session=session)
                        elif "result" in message:
                            assert message["id"] == number
                            assert message["result"]["content"][0]["text"] == "yes"
                            served += 1
                await asyncio.sleep(0.05)
            await gateway.end_session(session)

        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(honest(number))
            vandals = [group.create_task(vandal.run()) for _ in range(SENDERS)]
            streams = asyncio.create_task(_end_streams(gateway, sessions, done))
            await asyncio.wait(vandals)
            done.set()
        await streams
        assert served > 20
        assert vandal.statuses[200] > 500
        assert vandal.statuses[400] > 500
        for session in sessions:
            assert await gateway.end_session(session) in (204, 404)
        gateway.replica.context.pending.close()
        await gateway.until(lambda: not set(gateway.tables()) - {"upstreams"}, 15)
        assert gateway.log.faults == []


async def _end_streams(gateway: Inside, sessions: list[str], done: asyncio.Event) -> None:
    """GET streams last until somebody ends them."""
    while not done.is_set():
        await asyncio.sleep(0.02)
        for session in gateway.replica.sessions.all():
            if session.id in sessions:
                session.end_streams()
