"""`transport: Auto`: streamable HTTP first, the old transport where that is not spoken."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.transport_choice import TransportChoice, UrlTransports
from mcpgroup_gateway.members.upstream import MemberFailure, Opening

if TYPE_CHECKING:
    from mcpgroup_gateway.members.upstream import Upstream


def status(number: int, failure: Failure = Failure.NOT_RUN) -> MemberFailure:
    return MemberFailure(failure, f"HTTP {number}", sent=False, status=number)


REFUSED = MemberFailure(Failure.REFUSED, "connection refused", sent=False)


class Speaks:
    """A connector that opens sessions, or fails in the way it is told."""

    def __init__(self, name: str, tried: list[str], failure: MemberFailure | None) -> None:
        self.name = name
        self.failure = failure
        self.deadlines: list[float] = []
        self.closed = 0
        self._tried = tried

    async def open(self, _: Opening, deadline: float) -> Upstream:
        self._tried.append(self.name)
        self.deadlines.append(deadline)
        if self.failure is not None:
            raise self.failure
        return cast("Upstream", self.name)

    async def close(self) -> None:
        self.closed += 1


class Auto:
    """A choice over URLs; each is a pair of what streamable HTTP and the old transport do."""

    def __init__(self, *urls: tuple[MemberFailure | None, MemberFailure | None]) -> None:
        self.tried: list[str] = []
        self.pairs = [
            (
                Speaks(f"streamable{number}", self.tried, streamable),
                Speaks(f"sse{number}", self.tried, sse),
            )
            for number, (streamable, sse) in enumerate(urls)
        ]
        self.choice = TransportChoice([UrlTransports(*pair) for pair in self.pairs])

    async def open(self, deadline: float = 30.0) -> str:
        self.tried.clear()
        opening = Opening(on_notification=lambda _: None, on_lost=lambda _: None, control=True)
        session = await self.choice.open(opening, deadline)
        return cast("str", session)

    async def fails(self) -> MemberFailure:
        with pytest.raises(MemberFailure) as caught:
            await self.open()
        return caught.value


async def test_a_member_that_speaks_streamable_http_is_asked_nothing_else() -> None:
    auto = Auto((None, None))
    assert await auto.open() == "streamable0"
    assert auto.tried == ["streamable0"]


@pytest.mark.parametrize("number", [400, 404, 405, 406, 415, 501])
async def test_where_it_is_not_spoken_the_old_transport_is_found_and_remembered(
    number: int,
) -> None:
    auto = Auto((status(number), None))
    assert await auto.open() == "sse0"
    assert auto.tried == ["streamable0", "sse0"]
    assert await auto.open() == "sse0"
    assert auto.tried == ["sse0"]


@pytest.mark.parametrize(
    "failure",
    [
        status(401),
        status(403),
        status(500, Failure.HTTP_ERROR),
        REFUSED,
        MemberFailure(Failure.START_FAILED, "no answer in time", sent=False),
    ],
)
async def test_any_other_failure_stands(failure: MemberFailure) -> None:
    auto = Auto((failure, None))
    assert await auto.fails() is failure
    assert auto.tried == ["streamable0"]


async def test_when_neither_is_spoken_the_first_failure_is_told_with_both_names() -> None:
    auto = Auto((status(404), status(405)))
    found = await auto.fails()
    assert (found.failure, found.status, found.sent) == (Failure.NOT_RUN, 404, False)
    for word in ("HTTP 404", "streamable HTTP", "HTTP 405", "HTTP+SSE"):
        assert word in found.reason


async def test_after_a_failed_start_everything_is_found_out_again() -> None:
    auto = Auto((status(404), None))
    assert await auto.open() == "sse0"
    (streamable, sse) = auto.pairs[0]
    sse.failure = REFUSED
    assert await auto.fails() is REFUSED
    assert auto.tried == ["sse0"]
    streamable.failure, sse.failure = None, status(405)
    assert await auto.open() == "streamable0"
    assert auto.tried == ["streamable0"]


async def test_a_member_that_changed_its_transport_is_found_out_in_the_same_start() -> None:
    auto = Auto((status(404), None))
    assert await auto.open() == "sse0"
    (streamable, sse) = auto.pairs[0]
    streamable.failure, sse.failure = None, status(405)
    assert await auto.open() == "streamable0"
    assert auto.tried == ["sse0", "streamable0"]


async def test_each_url_may_speak_its_own() -> None:
    auto = Auto((REFUSED, None), (status(404), None))
    assert await auto.open() == "sse1"
    assert auto.tried == ["streamable0", "streamable1", "sse1"]
    assert await auto.open() == "sse1"
    assert auto.tried == ["streamable0", "sse1"]
    auto.pairs[0][0].failure = None
    assert await auto.open() == "streamable0"


async def test_the_time_of_a_start_is_shared() -> None:
    auto = Auto((status(404), None))
    await auto.open(deadline=30.0)
    streamable, sse = auto.pairs[0]
    assert 29.0 < streamable.deadlines[0] <= 30.0
    assert sse.deadlines[0] <= 10.0
    await auto.open(deadline=30.0)
    assert 29.0 < sse.deadlines[1] <= 30.0


async def test_closing_closes_all() -> None:
    auto = Auto((None, None), (None, None))
    await auto.choice.close()
    assert [each.closed for pair in auto.pairs for each in pair] == [1, 1, 1, 1]
