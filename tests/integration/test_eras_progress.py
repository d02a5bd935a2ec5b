"""Progress and log messages find their way back, whatever the eras on both sides are."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from tests.harness.era_clients import LegacyClient, Stream
from tests.harness.eras import ERAS, KINDS, TwoEras

if TYPE_CHECKING:
    from pathlib import Path

PROGRESS = "notifications/progress"
TOKENS = [7, "seven", "7", 0, -3, 123456789012345678901234567890]


def reported(stream: Stream) -> list[tuple[Any, Any]]:
    return [(m["params"]["progressToken"], m["params"]["progress"]) for m in stream.of(PROGRESS)]


async def test_progress_has_the_clients_own_token_and_order(tmp_path: Path) -> None:
    async def check(client: Any, member: str) -> None:
        for token in TOKENS:
            arguments = {"steps": 4, "invented": True, "late": True}
            call = client.call(member, "progress", arguments, token=token)
            await call.finished()
            assert reported(call) == [(token, number) for number in (1, 2, 3, 4)]
            assert "method" not in call.messages[-1]
            # The value and its JSON type, byte for byte.
            for raw in call.raw[:-1]:
                assert f'"progressToken":{json.dumps(token)}'.encode() in raw
            params = call.messages[0]["params"]
            assert (params["total"], params["message"]) == (4, "step 1")
        call = client.call(member, "progress", {"invented": True})
        await call.finished()
        assert len(call.messages) == 1, "no progress without a token"

    async with TwoEras(tmp_path) as group:
        await group.in_each_pair(check)


async def test_a_client_without_a_session_gets_progress_and_cancels_by_leaving(
    tmp_path: Path,
) -> None:
    async with TwoEras(tmp_path) as group, group.client("legacy", listening=False) as client:
        client.headers = {}
        for member in KINDS:
            call = client.call(member, "progress", {"late": True}, token=9)
            await call.finished()
            assert reported(call) == [(9, 1), (9, 2), (9, 3)], member
            call = client.call(member, "sleep", {"say": True}, token=9)
            await call.first(PROGRESS)
            await call.leave()
            await group.until_noted(member, "stopped")
            # JSON alone has no room for what comes before an answer.
            json_only = {"Accept": "application/json"}
            plain = client.call(member, "progress", token=9, headers=json_only)
            await plain.answer()
            assert len(plain.messages) == 1


async def test_clients_that_all_use_the_same_ids_and_tokens_never_meet(tmp_path: Path) -> None:
    async with TwoEras(tmp_path) as group:

        async def one(era: str, member: str, number: int) -> None:
            async with group.client(era) as client:
                steps = 2 + number % 5
                word = f"{era}-{member}-{number}"
                arguments = {"steps": steps, "pause": 0.02, "late": True, "invented": True}
                call = client.call(member, "progress", arguments, token=1, request_id=1)
                other = client.ask(
                    "tools/call",
                    {
                        "name": f"{member}__seen",
                        "arguments": {},
                        "_meta": {"test/result": json.dumps({"content": [], "word": word})},
                    },
                )
                assert (await other)["result"]["word"] == word
                await call.finished(60)
                assert reported(call) == [(1, step) for step in range(1, steps + 1)], word
                assert call.messages[-1]["id"] == 1

        pairs = [(era, member) for era in ERAS for member in KINDS]
        clients = [one(*pairs[number % len(pairs)], number) for number in range(60)]
        await asyncio.gather(*clients)


async def test_what_is_logged_is_filtered_by_the_level_that_was_asked_for(tmp_path: Path) -> None:
    async def check(client: Any, member: str) -> None:
        legacy = isinstance(client, LegacyClient)
        for level, expected in (("debug", 8), ("warning", 5), ("emergency", 1)):
            if legacy:
                await client.ask("logging/setLevel", {"level": level})
                call = client.call(member, "log", {"word": level})
            else:
                call = client.call(member, "log", {"word": level}, log_level=level)
            await call.finished()
            logged = [each["params"]["data"] for each in call.of("notifications/message")]
            assert len(logged) == expected, logged
            assert logged[0] == f"{level}{level}"
            assert all(each["params"]["logger"] == "test" for each in call.before)
        if not legacy:
            call = client.call(member, "log")
            await call.finished()
            assert len(call.messages) == 1, "nothing is logged for whom asked for nothing"

    async with TwoEras(tmp_path) as group:
        await group.in_each_pair(check)


async def test_a_level_is_one_sessions_own_and_others_hear_nothing(tmp_path: Path) -> None:
    async with TwoEras(tmp_path) as group:
        for member in KINDS:
            async with (
                group.client("legacy", listening=True) as loud,
                group.client("legacy", listening=True) as quiet,
                group.client("modern") as modern,
            ):
                await loud.ask("logging/setLevel", {"level": "debug"})
                await quiet.ask("logging/setLevel", {"level": "alert"})
                calls = [
                    each.call(member, "log", {"word": word})
                    for each, word in ((loud, "loud-"), (quiet, "quiet-"), (modern, "modern-"))
                ]
                for call in calls:
                    await call.finished()
                heard = [
                    [each["params"]["data"] for each in stream.of("notifications/message")]
                    for stream in (*calls, loud.heard, quiet.heard)
                ]
                own = [heard[0] + heard[3], heard[1] + heard[4], heard[2]]
                for said, word in zip(own, ("loud-", "quiet-", "modern-"), strict=True):
                    assert all(data.startswith(word) for data in said), (member, own)
                # What one process says during calls of several may belong to any of them.
                if not KINDS[member].shared:
                    assert [len(said) for said in own] == [8, 2, 0], (member, own)
                assert len(own[1]) <= 2
                assert own[2] == []


async def test_members_are_told_the_level_in_the_way_of_their_era(tmp_path: Path) -> None:
    async with TwoEras(tmp_path) as group:
        async with group.client("legacy") as client:
            await client.ask("logging/setLevel", {"level": "error"})
            for member, kind in KINDS.items():
                seen = await client.text(member, "seen")
                if kind.modern:
                    assert seen["meta"]["io.modelcontextprotocol/logLevel"] == "error", member
                else:
                    told = await group.until_noted(member, method="logging/setLevel")
                    assert told[-1]["message"]["params"] == {"level": "error"}
        async with group.client("modern") as client:
            for member, kind in KINDS.items():
                if kind.modern:
                    seen = await client.text(member, "seen", log_level="notice")
                    assert seen["meta"]["io.modelcontextprotocol/logLevel"] == "notice"
                    seen = await client.text(member, "seen")
                    assert "io.modelcontextprotocol/logLevel" not in seen["meta"]
