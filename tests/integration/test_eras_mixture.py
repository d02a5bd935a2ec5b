"""Many clients of both eras do everything at once, and nobody hears what is another's."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

from tests.harness.eras import ERAS, KINDS, TwoEras

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.era_clients import Stream

CLIENTS = 24
ROUNDS = 12
ASKS: dict[str, Any] = {"elicitation": {"form": {}}}


class Worker:
    """One client; all that it says and may hear bears its name."""

    def __init__(self, client: Any, name: str, chance: random.Random) -> None:
        self.client = client
        self.name = name
        self.chance = chance
        self.answered: set[Any] = set()
        self.done = 0

    async def run(self) -> None:
        for number in range(ROUNDS):
            member = self.chance.choice(list(KINDS))
            deed = self.chance.choice([self.progress, self.log, self.ask, self.cancel])
            await deed(member, f"{self.name}-{number}")
            self.done += 1
        if self.client.era == "legacy":
            for message in self.client.heard.messages:
                self.check_own(message)

    def check_own(self, message: dict[str, Any]) -> None:
        if message.get("method") in ("notifications/message", "elicitation/create"):
            assert self.name in json.dumps(message), (self.name, message)

    async def progress(self, member: str, word: str) -> None:
        arguments = {"steps": 3, "late": True, "invented": True, "pause": 0.005}
        call = self.client.call(member, "progress", arguments, token=word, request_id=1)
        await call.finished(30)
        reported = [
            (each["params"]["progressToken"], each["params"]["progress"])
            for each in call.of("notifications/progress")
        ]
        assert reported == [(word, 1), (word, 2), (word, 3)], (member, call.messages)

    async def log(self, member: str, word: str) -> None:
        level = None if self.client.era == "legacy" else "notice"
        call = self.client.call(member, "log", {"word": word}, request_id=1, log_level=level)
        await call.finished(30)
        # What one process says during calls of several may belong to any of them, and clients
        # without a session that declare the same are served by one.
        if level is not None and KINDS[member].http:
            assert call.before, (member, call.messages)
        for each in call.before:
            assert each["params"]["data"].startswith(word), (member, call.messages)

    async def ask(self, member: str, word: str) -> None:
        if KINDS[member].shared:
            return
        arguments = {"params": {"message": word}}
        call = self.client.call(member, "ask", arguments)
        if self.client.era == "legacy":
            answer = await self._answer_question(call, word)
        else:
            asked = (await call.answer(30))["result"]
            [(key, request)] = asked["inputRequests"].items()
            assert request["params"]["message"] == word
            responses = {key: {"action": "accept", "content": {"word": word}}}
            more = {"inputResponses": responses, "requestState": asked["requestState"]}
            answer = await self.client.call(member, "ask", arguments, more=more).answer(30)
        text = answer["result"]["content"][0]["text"]
        assert json.loads(text)["answers"][0]["content"]["word"] == word, (member, answer)

    async def _answer_question(self, call: Stream, word: str) -> dict[str, Any]:
        async with asyncio.timeout(30):
            while True:
                for each in (*call.messages, *self.client.heard.messages):
                    if each.get("method") != "elicitation/create" or each["id"] in self.answered:
                        continue
                    self.answered.add(each["id"])
                    assert each["params"]["message"] == word
                    content = {"action": "accept", "content": {"word": word}}
                    await self.client.respond(each["id"], content)
                    return await call.answer(30)
                await asyncio.sleep(0.01)

    async def cancel(self, member: str, word: str) -> None:
        arguments = {"word": word, "say": True, "chatter": True}
        call = self.client.call(member, "sleep", arguments, token=word)
        await call.first("notifications/progress", timeout=30)
        await self.client.cancel(call)
        await call.finished()
        assert len(call.messages) == 1, (member, call.messages)


async def test_many_clients_at_once_never_hear_each_other(tmp_path: Path) -> None:
    async with TwoEras(tmp_path) as group:

        async def one(number: int) -> int:
            era = ERAS[number % 2]
            async with group.client(era, ASKS, listening=True) as client:
                worker = Worker(client, f"<{number}>", random.Random(number))  # noqa: S311
                await worker.run()
                return worker.done

        done = await asyncio.gather(*(one(number) for number in range(CLIENTS)))
        assert sum(done) == CLIENTS * ROUNDS
        await group.gateway.wait_for(
            lambda status: not any(member["inFlight"] for member in status["members"])
        )
        assert await group.gateway.metric("mcpgroup_evictions_total") == 0
