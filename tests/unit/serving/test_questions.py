"""Open questions: each ends once, and what members ask takes bounded memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from mcpgroup_gateway.members.upstream import GATEWAY_IDENTITY
from mcpgroup_gateway.serving.questions import Questions
from mcpgroup_gateway.serving.replay import ReplayBudget
from mcpgroup_gateway.serving.sessions import Session
from mcpgroup_gateway.wire.envelope import parse_message

if TYPE_CHECKING:
    from mcpgroup_gateway.members.upstream import Upstream
    from mcpgroup_gateway.wire.envelope import Message

MEGABYTE = b'{"message":"%b"}' % (b"x" * 1_000_000)


def session(name: str = "s") -> Session:
    return Session(name, "2025-11-25", GATEWAY_IDENTITY, 0.0, ReplayBudget())


class Asked:
    """What became of questions."""

    def __init__(self, seconds: float = 60) -> None:
        self.questions = Questions(lambda: seconds)
        self.ends: list[bytes | None] = []

    def ask(self, where: Session, params: bytes = b"{}", **who: object) -> bytes | None:
        def done(answer: Message | None) -> None:
            self.ends.append(None if answer is None else bytes(answer.result))

        question = self.questions.ask(
            where,
            "elicitation/create",
            params,
            done,
            upstream=cast("Upstream | None", who.get("upstream")),
            raw_id=cast("bytes", who.get("raw_id", b"")),
        )
        return None if question is None else question.id


async def test_a_question_ends_once_whatever_comes_after() -> None:
    asked, where = Asked(), session()
    number = asked.ask(where)
    assert number is not None
    answer = parse_message(b'{"jsonrpc":"2.0","id":%b,"result":{"a":1}}' % number)
    assert asked.questions.answered(where, answer)
    assert not asked.questions.answered(where, answer)
    asked.questions.session_ended(where)
    assert asked.ends == [b'{"a":1}']
    assert len(asked.questions) == 0


async def test_nobody_answers_in_time() -> None:
    asked = Asked(seconds=0.01)
    asked.ask(session())
    async with asyncio.timeout(5):
        while not asked.ends:  # noqa: ASYNC110 - a timer announces nothing
            await asyncio.sleep(0.005)
    assert asked.ends == [None]
    assert len(asked.questions) == 0


async def test_another_session_cannot_answer() -> None:
    asked, where, other = Asked(), session("s"), session("t")
    number = asked.ask(where)
    answer = parse_message(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % (number or b""))
    assert not asked.questions.answered(other, answer)
    assert asked.ends == []
    asked.questions.session_ended(where)


async def test_what_members_ask_of_one_session_and_of_all_takes_bounded_memory() -> None:
    asked, sessions = Asked(), [session(str(number)) for number in range(40)]
    first = [asked.ask(sessions[0], MEGABYTE) for _ in range(10)]
    assert sum(number is not None for number in first) == 4
    for each in sessions:
        for _ in range(10):
            asked.ask(each, MEGABYTE)
    assert len(asked.questions) <= 67
    for each in sessions:
        asked.questions.session_ended(each)
    assert len(asked.questions) == 0
    assert asked.ask(sessions[0], MEGABYTE) is not None  # the room was given back
    asked.questions.session_ended(sessions[0])


@pytest.mark.parametrize("params", [b"{}", MEGABYTE * 9])
async def test_one_question_of_any_size_is_asked(params: bytes) -> None:
    asked, where = Asked(), session()
    assert asked.ask(where, params) is not None
    asked.questions.session_ended(where)


async def test_a_member_takes_back_its_own_question_only() -> None:
    asked, where = Asked(), session()
    one, other = cast("Upstream", object()), cast("Upstream", object())
    for upstream in (one, one, other):
        asked.ask(where, upstream=upstream, raw_id=b"1")
    for left in (3, 2, 1, 1):
        assert len(asked.questions) == left
        asked.questions.taken_back(one, b"2", None)
        asked.questions.taken_back(one, b"1", "enough")
    asked.questions.session_ended(where)
    asked.questions.taken_back(other, b"1", None)
    assert asked.ends == [None] * 3
