"""Which era is found for which habits of a member."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.harness.simulated_time import SimulatedLoop, simulated

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members import negotiation
from mcpgroup_gateway.members.negotiation import Era, negotiate, read_discovery
from mcpgroup_gateway.members.upstream import Handshake, MemberFailure
from mcpgroup_gateway.wire.envelope import Message, parse_message

MODERN = {
    "resultType": "complete",
    "supportedVersions": ["2025-11-25", "2026-07-28"],
    "capabilities": {"tools": {}},
    "instructions": "Be kind.",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "m", "version": "1"}},
}
LEGACY = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "l"}}


def result(value: Any) -> Message:
    return parse_message(json.dumps({"jsonrpc": "2.0", "id": 1, "result": value}).encode())


def error(code: int, data: Any = None) -> Message:
    fault = {"code": code, "message": "no"} | ({} if data is None else {"data": data})
    return parse_message(json.dumps({"jsonrpc": "2.0", "id": 1, "error": fault}).encode())


def refused(failure: Failure, status: int | None = None) -> MemberFailure:
    return MemberFailure(failure, str(failure), sent=True, status=status)


UNSUPPORTED = error(-32022, {"supported": ["2026-07-28"], "requested": "2026-07-28"})
METHOD_NOT_FOUND = error(-32601)

Answer = Message | MemberFailure | None


class Scripted:
    """Answers from two lists; None is silence until the test is over, floats are seconds."""

    def __init__(self, discover: list[Answer], initialize: list[Answer], late: float = 0) -> None:
        self.asked: list[str] = []
        self._answers = {"discover": discover, "initialize": initialize}
        self._late = late

    async def discover(self, version: str) -> Message:
        assert version == "2026-07-28"
        if self._late:
            late, self._late = self._late, 0
            self.asked.append("discover")
            await asyncio.sleep(late)
            return self._given("discover")
        return await self._ask("discover")

    async def initialize(self) -> Message:
        return await self._ask("initialize")

    async def _ask(self, what: str) -> Message:
        self.asked.append(what)
        if self._answers[what][0] is None:
            self._answers[what].pop(0)
            await asyncio.Event().wait()
        return self._given(what)

    def _given(self, what: str) -> Message:
        answer = self._answers[what].pop(0)
        assert answer is not None
        if isinstance(answer, MemberFailure):
            raise answer
        return answer


def found(
    member: Scripted, era: Era = Era.AUTO, known: Handshake | None = None, deadline: float = 6
) -> Handshake:
    return simulated(lambda _: negotiate(member, era, known, deadline))


def test_a_proper_answer_makes_a_member_modern_and_is_its_handshake() -> None:
    member = Scripted([result(MODERN)], [])
    handshake = found(member)
    assert handshake.modern
    assert json.loads(handshake.capabilities) == {"tools": {}}
    assert json.loads(handshake.server_info) == {"name": "m", "version": "1"}
    assert handshake.instructions == "Be kind."
    assert member.asked == ["discover"]


@pytest.mark.parametrize(
    "answer",
    [
        METHOD_NOT_FOUND,
        error(-32600),
        error(-32602),
        error(-32000),
        error(-32022),
        error(-32022, {"supported": ["2025-11-25"]}),
        error(-32022, {"supported": "2026-07-28"}),
        result({}),
        result([]),
        result(LEGACY),
        result({**MODERN, "supportedVersions": ["2025-11-25"]}),
        result({**MODERN, "supportedVersions": {"2026-07-28": True}}),
        result({**MODERN, "capabilities": None}),
        result({**MODERN, "resultType": "input_required"}),
        refused(Failure.NOT_RUN, 404),
        refused(Failure.NOT_RUN, 405),
        refused(Failure.HTTP_ERROR, 400),
        refused(Failure.HTTP_ERROR, 406),
        refused(Failure.HTTP_ERROR, 500),
        refused(Failure.MALFORMED, 200),
        refused(Failure.RESET),
    ],
)
def test_anything_else_is_answered_with_initialize_at_once(answer: Answer) -> None:
    member = Scripted([answer], [result(LEGACY)])
    handshake = found(member, deadline=60)
    assert handshake.protocol_version == "2025-11-25"
    assert member.asked == ["discover", "initialize"]


@pytest.mark.parametrize("failure", [Failure.REFUSED, Failure.TLS, Failure.EXIT])
def test_a_member_that_is_not_there_is_of_no_era(failure: Failure) -> None:
    member = Scripted([refused(failure)], [])
    with pytest.raises(MemberFailure) as caught:
        found(member)
    assert caught.value.failure is failure
    assert member.asked == ["discover"]


def test_a_silent_member_is_asked_again_with_initialize() -> None:
    member = Scripted([None], [result(LEGACY)])
    assert not found(member).modern
    assert member.asked == ["discover", "initialize"]


def test_the_late_answer_of_a_slow_start_decides_against_a_refused_initialize() -> None:
    """Both questions waited in the pipe: the first one settled the era of the connection."""
    for hello in (UNSUPPORTED, METHOD_NOT_FOUND):
        member = Scripted([result(MODERN), result(MODERN)], [hello], late=4)
        assert found(member, deadline=9).modern


def test_the_late_answer_of_a_slow_start_decides_while_initialize_is_silent() -> None:
    member = Scripted([result(MODERN)], [None], late=5)
    assert found(member).modern
    assert member.asked == ["discover", "initialize"]


def test_a_late_refusal_leaves_initialize_to_decide() -> None:
    member = Scripted([METHOD_NOT_FOUND], [result(LEGACY)], late=5)
    assert not found(member).modern


def test_a_member_that_refuses_initialize_with_its_modern_versions_is_asked_again() -> None:
    member = Scripted([error(-32603), result(MODERN)], [UNSUPPORTED])
    assert found(member).modern
    assert member.asked == ["discover", "initialize", "discover"]


def test_a_member_that_refuses_both_has_failed_with_the_answer_to_initialize() -> None:
    member = Scripted([METHOD_NOT_FOUND], [error(-32603)])
    with pytest.raises(MemberFailure, match="initialize with the error -32603"):
        found(member)
    member = Scripted([None], [refused(Failure.NOT_RUN, 401)])
    with pytest.raises(MemberFailure) as caught:
        found(member)
    assert caught.value.status == 401


def test_what_was_legacy_is_not_asked_for_its_era_again() -> None:
    known = Handshake("2025-11-25", b"{}", b"{}", None)
    member = Scripted([], [result(LEGACY)])
    assert not found(member, known=known).modern
    assert member.asked == ["initialize"]


@pytest.mark.parametrize("answer", [UNSUPPORTED, METHOD_NOT_FOUND, error(-32602)])
def test_what_was_legacy_and_refuses_initialize_is_asked_for_its_era(answer: Message) -> None:
    known = Handshake("2025-11-25", b"{}", b"{}", None)
    member = Scripted([result(MODERN)], [answer])
    assert found(member, known=known).modern
    assert member.asked == ["initialize", "discover"]


def test_what_was_modern_may_be_legacy_now() -> None:
    known = read_discovery(result(MODERN))
    member = Scripted([METHOD_NOT_FOUND], [result(LEGACY)])
    assert not found(member, known=known).modern


def test_a_given_era_is_not_doubted() -> None:
    member = Scripted([], [result(LEGACY)])
    assert not found(member, Era.LEGACY).modern
    member = Scripted([result(MODERN)], [])
    assert found(member, Era.MODERN).modern
    member = Scripted([METHOD_NOT_FOUND], [])
    with pytest.raises(MemberFailure, match="does not speak 2026-07-28"):
        found(member, Era.MODERN)
    assert member.asked == ["discover"]


def test_another_modern_version_is_asked_for_when_it_is_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    class Newer(Scripted):
        async def discover(self, version: str) -> Message:
            asked.append(version)
            return UNSUPPORTED if version == "2027-01-01" else result(MODERN)

    monkeypatch.setattr(negotiation, "MODERN_VERSIONS", ("2027-01-01", "2026-07-28"))
    for era in (Era.AUTO, Era.MODERN):
        handshake = found(Newer([], []), era)
        assert handshake.protocol_version == "2026-07-28"
    assert asked == ["2027-01-01", "2026-07-28"] * 2


def test_a_deadline_of_the_caller_leaves_no_question_behind() -> None:
    async def scene(_: SimulatedLoop) -> None:
        member = Scripted([None], [None])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await negotiate(member, Era.AUTO, None, 6)
        assert len(asyncio.all_tasks()) == 1

    simulated(scene)
