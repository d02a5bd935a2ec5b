"""Members ask, and everything that can go wrong with an answer, without an SDK on either side."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.eras import ERAS, KINDS, TwoEras
from tests.harness.processes import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.era_clients import LegacyClient, Stream

ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
CANCELLED = "notifications/cancelled"
ASKS: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
#: Members whose client sessions can be asked.
OWN = [member for member, kind in KINDS.items() if not kind.shared]
#: Those of them that ask while the call goes on.
LIVE = ["lown", "lhttp"]
#: Those of them that ask in a result.
ASKING = ["mown", "mhttp"]


def content(word: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"word": word}}


def text_of(answer: dict[str, Any]) -> str:
    assert "result" in answer, answer
    return str(answer["result"]["content"][0]["text"])


async def asked(client: LegacyClient, *calls: Stream, number: int = 1) -> list[dict[str, Any]]:
    """The questions of calls, on whichever streams they came."""

    def found() -> list[dict[str, Any]]:
        streams = (*calls, client.heard)
        return [each for s in streams for each in s.messages if "id" in each and "method" in each]

    async with asyncio.timeout(10):
        while len(found()) < number:  # noqa: ASYNC110 - on one stream or the other
            await asyncio.sleep(0.01)
    return found()


@pytest.mark.parametrize("untied", [False, True])
async def test_several_questions_at_once_each_get_their_own_answer(
    tmp_path: Path, untied: bool
) -> None:
    async with TwoEras(tmp_path, LIVE) as group:
        for member in LIVE:
            async with group.client("legacy", ASKS, listening=True) as client:
                call = client.call(member, "ask", {"times": 3, "untied": untied})
                questions = await asked(client, call, number=3)
                ids = [question["id"] for question in questions]
                assert len(set(ids)) == 3
                for number in (1, 2, 0):
                    await client.respond(ids[number], content(f"answer {number}"))
                answer = await call.answer()
                words = [each["content"]["word"] for each in _answers(answer)]
                assert words == ["answer 0", "answer 1", "answer 2"], member


async def test_questions_of_calls_at_once_in_one_process_find_their_way(tmp_path: Path) -> None:
    async with TwoEras(tmp_path, LIVE) as group:
        for member in LIVE:
            async with group.client("legacy", ASKS, listening=True) as client:
                calls = {
                    word: client.call(member, "ask", {"untied": True, "params": {"message": word}})
                    for word in ("one", "two", "three")
                }
                questions = await asked(client, *calls.values(), number=3)
                for question in reversed(questions):
                    await client.respond(question["id"], content(question["params"]["message"]))
                for word, call in calls.items():
                    assert _answers(await call.answer())[0]["content"]["word"] == word, member


@pytest.mark.parametrize("untied", [False, True])
async def test_a_question_that_is_taken_back_is_taken_back_from_the_client(
    tmp_path: Path, untied: bool
) -> None:
    async with TwoEras(tmp_path, LIVE) as group:
        for member in LIVE:
            async with group.client("legacy", ASKS, listening=True) as client:
                call = client.call(member, "take_back", {"untied": untied})
                [question] = await asked(client, call)
                answer = await call.answer()
                assert text_of(answer) == '"taken back"'
                told = [*call.of(CANCELLED), *client.heard.of(CANCELLED)]
                assert len(told) == 1, (member, call.messages, client.heard.messages)
                assert told[0]["params"]["requestId"] == question["id"]
                assert told[0]["params"]["reason"] == "too late"
                await client.respond(question["id"], content("late"))
                # What would have been sent has arrived before this call.
                assert (await client.text(member, "count"))["count"] == 1
                assert not [each for each in _responses(group, member) if "late" in str(each)]


async def test_answers_to_nothing_mean_nothing(tmp_path: Path) -> None:
    async with TwoEras(tmp_path, LIVE) as group:
        for member in LIVE:
            async with (
                group.client("legacy", ASKS, listening=True) as client,
                group.client("legacy", ASKS, listening=True) as stranger,
            ):
                call = client.call(member, "ask")
                [question] = await asked(client, call)
                number = question["id"]
                for other in (number + 1, str(number), -1, "x", 0, None):
                    body = {"id": other, "result": content("wrong")}
                    assert await client.post(**body) in (202, 400)
                await stranger.respond(number, content("stranger"))
                assert not call.ended
                await client.respond(number, content("right"))
                await client.respond(number, content("twice"))
                assert _answers(await call.answer())[0]["content"]["word"] == "right"
                for each in (client, stranger):
                    await each.text(member, "count")  # what would have been sent has arrived before
                answers = _responses(group, member)
                assert len(answers) == 1, answers


async def test_an_error_of_the_client_is_given_to_the_member(tmp_path: Path) -> None:
    fault = {"code": -1, "message": "the user said no", "data": {"why": 1.5}}
    async with TwoEras(tmp_path, LIVE) as group:
        for member in LIVE:
            async with group.client("legacy", ASKS, listening=True) as client:
                call = client.call(member, "ask", {"method": SAMPLE, "params": {"messages": []}})
                [question] = await asked(client, call)
                assert await client.post(id=question["id"], error=fault) == 202
                assert _answers(await call.answer()) == [{"error": fault}]


async def test_an_error_of_the_client_ends_the_call_of_a_modern_member(tmp_path: Path) -> None:
    fault = {"code": -1, "message": "the user said no"}
    async with TwoEras(tmp_path, ASKING) as group:
        for member in ASKING:
            async with group.client("legacy", ASKS, listening=True) as client:
                call = client.call(member, "ask", {"method": SAMPLE, "params": {"messages": []}})
                [question] = await asked(client, call)
                assert await client.post(id=question["id"], error=fault) == 202
                assert (await call.answer())["error"] == fault
                # No answer at all to an elicitation is one of its answers.
                call = client.call(member, "ask")
                question = (await asked(client, call, number=1))[-1]
                assert await client.post(id=question["id"], error=fault) == 202
                assert _answers(await call.answer()) == [{"action": "cancel"}]


async def withdrawn(client: LegacyClient, call: Stream, question: dict[str, Any]) -> None:
    """Wait until the client is told that nobody wants an answer any more."""

    def told() -> list[Any]:
        streams = (call, client.heard)
        return [e["params"]["requestId"] for s in streams for e in s.of(CANCELLED)]

    await until(lambda: told() == [question["id"]], what="the question was not withdrawn")


@pytest.mark.parametrize("listening", [True, False])
async def test_a_question_that_nobody_answers_is_withdrawn(tmp_path: Path, listening: bool) -> None:
    async with TwoEras(tmp_path, OWN, limits={"inputSeconds": 1}) as group:
        for member in OWN:
            async with group.client("legacy", ASKS, listening=listening) as client:
                call = client.call(member, "ask")
                [question] = await asked(client, call)
                assert _answers(await call.answer()) == [{"action": "cancel"}]
                await withdrawn(client, call, question)


async def test_a_question_ends_with_the_call_and_with_its_member(tmp_path: Path) -> None:
    async with TwoEras(tmp_path, OWN) as group:
        for member in OWN:
            arguments = {"params": {"message": member}}  # which no two members die of
            async with group.client("legacy", ASKS, listening=True) as client:
                call = client.call(member, "ask", arguments)
                [question] = await asked(client, call)
                await client.cancel(call)
                await call.finished()
                await withdrawn(client, call, question)
            async with group.client("legacy", ASKS, listening=True) as client:
                call = client.call(member, "ask", arguments)
                [question] = await asked(client, call)
                if KINDS[member].modern:
                    continue  # it does not run while the client is asked
                await group.kill(member)
                assert (await call.answer())["error"]["code"] == -31003
                await withdrawn(client, call, question)


async def test_what_a_client_does_not_declare_it_is_not_asked(tmp_path: Path) -> None:
    async def check(client: Any, member: str) -> None:
        roots = client.call(member, "ask", {"method": "roots/list", "params": {}})
        answer = await roots.answer()
        if KINDS[member].modern and client.era == "modern":
            return  # what a modern member asks of a modern client is between the two
        if KINDS[member].modern:
            assert "error" in answer
        else:
            assert _answers(answer)[0]["error"]["code"] in (-32601, -32603)
        assert not [each for each in roots.before if "id" in each]

    async with TwoEras(tmp_path) as group:
        await group.in_each_pair(check, {"elicitation": {"form": {}}}, listening=True)


@pytest.mark.parametrize("era", ERAS)
async def test_each_pair_asks_and_is_answered(tmp_path: Path, era: str) -> None:
    async def check(client: Any, member: str) -> None:
        if KINDS[member].shared:
            return
        arguments = {"params": {"message": "\u00e9", "x": [1.5]}}
        if client.era == "legacy":
            call = client.call(member, "ask", arguments)
            [question] = await asked(client, call)
            assert question["params"] == arguments["params"]
            await client.respond(question["id"], content("well"))
            assert _answers(await call.answer()) == [content("well")]
            return
        answer = await client.call(member, "ask", arguments).answer()
        assert answer["result"]["resultType"] == "input_required"
        [(key, request)] = answer["result"]["inputRequests"].items()
        assert request == {"method": ELICIT, "params": arguments["params"]}
        more = {
            "inputResponses": {key: content("well")},
            "requestState": answer["result"]["requestState"],
        }
        answer = await client.call(member, "ask", arguments, more=more).answer()
        assert _answers(answer) == [content("well")]

    async with TwoEras(tmp_path) as group:
        await group.in_each_pair(check, ASKS, eras=[era], listening=True)


async def test_an_answer_may_take_longer_than_the_deadlines_of_the_call(tmp_path: Path) -> None:
    async def answered_late(client: Any, member: str) -> None:
        if client.era == "legacy":
            call = client.call(member, "ask")
            [question] = await asked(client, call)
            await asyncio.sleep(8)
            await client.respond(question["id"], content("late"))
        else:
            answer = await client.call(member, "ask").answer()
            [key] = answer["result"]["inputRequests"]
            await asyncio.sleep(8)
            state = answer["result"]["requestState"]
            more = {"inputResponses": {key: content("late")}, "requestState": state}
            call = client.call(member, "ask", more=more)
        assert _answers(await call.answer()) == [content("late")]

    patience = {"callTimeoutSeconds": 2, "maxCallSeconds": 4}
    async with (
        TwoEras(tmp_path, OWN, fields=patience) as group,
        contextlib.AsyncExitStack() as all_,
    ):
        slow = [
            asyncio.create_task(
                answered_late(await all_.enter_async_context(group.client(era, ASKS)), member)
            )
            for member in OWN
            for era in ERAS
        ]
        others = [await all_.enter_async_context(group.client(era, ASKS)) for era in ERAS]
        while not all(task.done() for task in slow):
            for member in OWN:
                for other in others:
                    await other.text(member, "seen")
            await asyncio.sleep(0.2)
        await asyncio.gather(*slow)
        for member in (await group.gateway.status())["members"]:
            assert (member["inRotation"], member["breaker"]) == (True, "Closed"), member
            assert member["p95Seconds"] < 2, "what a client took is not the member's latency"
        assert await group.gateway.metric("mcpgroup_evictions_total") == 0


async def test_a_client_without_a_stream_for_10_s_ends_its_questions(tmp_path: Path) -> None:
    async with TwoEras(tmp_path, OWN) as group, contextlib.AsyncExitStack() as stack:
        calls = []
        for member in OWN:
            client = await stack.enter_async_context(group.client("legacy", ASKS))
            call = client.call(member, "ask")
            await asked(client, call)
            calls.append((client, member, call))
        began = time.monotonic()
        for _, _, call in calls:
            await call.leave()
        live = [member for member in OWN if not KINDS[member].modern]
        while not all(_responses(group, member) for member in live):
            assert time.monotonic() - began < 20
            await asyncio.sleep(0.1)
        assert 9 < time.monotonic() - began < 15
        for member in live:
            assert _responses(group, member)[0]["result"] == {"action": "cancel"}
        await group.gateway.wait_for(
            lambda status: not any(member["inFlight"] for member in status["members"])
        )


def _responses(group: TwoEras, member: str) -> list[dict[str, Any]]:
    return [e["message"] for e in group.noted(member) if "method" not in e["message"]]


def _answers(answer: dict[str, Any]) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = json.loads(text_of(answer))["answers"]
    return answers
