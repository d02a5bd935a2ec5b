"""Nothing that an API server answers costs kopf a watch; each failure is told and waited for."""

from __future__ import annotations

import asyncio
import contextlib
import json
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.unit.operator.virtual_time import VirtualLoop, run
from yarl import URL

from mcpgroup_operator.kinds import CONFIG_MAP, GROUP
from mcpgroup_operator.traffic import (
    ANSWER_SECONDS,
    MAX_PAUSE_SECONDS,
    MAX_RETRY_AFTER_SECONDS,
    SOUND_SECONDS,
    Traffic,
)
from mcpgroup_operator.watches import Watch, WatchMonitor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

MAPS = Watch(CONFIG_MAP, None)
GROUPS = Watch(GROUP, "a")
LIST = "/api/v1/configmaps?limit=1"
WATCH = "/api/v1/configmaps?watch=true&resourceVersion=7"
INACTIVITY = 70.0


class Listener:
    def __init__(self) -> None:
        self.told: list[str] = []

    def listed(self, watch: Watch) -> None:
        self.told.append(f"listed {watch.kind.plural}")

    def failed(self, watch: Watch) -> None:
        self.told.append(f"failed {watch.kind.plural}")

    def restarted(self, watch: Watch) -> None:
        self.told.append(f"restarted {watch.kind.plural}")


class Content:
    """`pieces` may have errors to raise, and seconds to wait."""

    def __init__(self, pieces: Iterable[bytes | Exception | float]) -> None:
        self._pieces = pieces

    def exception(self) -> BaseException | None:
        """aiohttp asks for it when the response is closed."""
        return None

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            else:
                yield piece


def answer(
    status: int = 200,
    body: Any = None,
    pieces: Iterable[bytes | Exception | float] = (),
    retry_after: str = "",
) -> Any:
    encoded = json.dumps(body).encode()

    async def read() -> bytes:
        return encoded

    headers = {"Retry-After": retry_after} if retry_after else {}
    return SimpleNamespace(status=status, headers=headers, read=read, content=Content(pieces))


def refusal(code: int, retry_after: str = "") -> Any:
    status = {"kind": "Status", "code": code, "reason": "Because", "message": "not now"}
    return answer(code, status, retry_after=retry_after)


def a_list(version: str = "7") -> Any:
    items = [{"metadata": {"name": "secret"}}]
    return answer(body={"metadata": {"resourceVersion": version, "continue": "x"}, "items": items})


def event(kind: str = "ADDED", **fields: Any) -> bytes:
    return json.dumps({"type": kind, "object": fields}).encode() + b"\n"


class Scene:
    """Requests of kopf's, one after the other; `answers` may be errors, or seconds of nothing."""

    def __init__(self, loop: VirtualLoop, prefix: str = "") -> None:
        self.loop = loop
        self.listener = Listener()
        self.monitor = WatchMonitor([MAPS, GROUPS], loop.time)
        self.traffic = Traffic(
            self.monitor,
            self.listener,
            Random(1),  # noqa: S311 - jitter
            inactivity_seconds=INACTIVITY,
            prefix=prefix,
            clock=loop.time,
        )
        self.sent: list[float] = []

    async def ask(self, target: str, given: Any) -> Any:
        async def handler(_: Any) -> Any:
            self.sent.append(self.loop.time())
            if isinstance(given, Exception):
                raise given
            if isinstance(given, float):
                await asyncio.sleep(given)
            return given

        request = SimpleNamespace(url=URL(f"https://cluster{target}"))
        return await self.traffic(request, handler)  # type: ignore[arg-type]

    async def fails(self, target: str, given: Any) -> None:
        with pytest.raises(aiohttp.ClientPayloadError):
            await self.ask(target, given)

    async def lines(self, given: Any, target: str = WATCH) -> list[bytes]:
        response = await self.ask(target, given)
        assert response.status == 200
        return [line async for line in response.content.iter_chunked(1024)]


def scene(play: Callable[[Scene], Awaitable[None]], prefix: str = "") -> None:
    async def on_loop(loop: VirtualLoop) -> None:
        await play(Scene(loop, prefix))

    run(on_loop)


def is_expired(line: bytes) -> bool:
    told = json.loads(line)
    return bool(told["type"] == "ERROR" and told["object"]["code"] == 410)


def test_of_a_list_only_its_version_is_shown() -> None:
    async def play(s: Scene) -> None:
        response = await s.ask(LIST, a_list("41"))
        shown = json.loads(response._body)
        assert shown["items"] == []
        assert shown["metadata"] == {"resourceVersion": "41"}
        assert s.listener.told == ["listed configmaps"]

    scene(play)


@pytest.mark.parametrize(
    "body", [[], None, {}, {"metadata": {}}, {"metadata": {"resourceVersion": ""}}]
)
def test_what_is_no_list_is_a_failure(body: Any) -> None:
    async def play(s: Scene) -> None:
        await s.fails(LIST, answer(body=body))
        assert s.listener.told == ["failed configmaps"]

    scene(play)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 429, 500, 503, 504])
def test_a_refused_list_looks_like_a_broken_connection(code: int) -> None:
    async def play(s: Scene) -> None:
        await s.fails(LIST, refusal(code))
        assert s.listener.told == ["failed configmaps"]

    scene(play)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 500, 503, 504])
def test_a_refused_watch_looks_like_a_version_that_is_too_old(code: int) -> None:
    async def play(s: Scene) -> None:
        (line,) = await s.lines(refusal(code))
        assert is_expired(line)
        assert s.listener.told == ["failed configmaps"]

    scene(play)


def test_the_answer_to_a_refused_watch_can_be_closed() -> None:
    async def play(s: Scene) -> None:
        response = await s.ask(WATCH, refusal(404))
        assert response.content.exception() is None

    scene(play)


def test_a_watch_that_comes_too_often_goes_on_from_its_version() -> None:
    async def play(s: Scene) -> None:
        await s.fails(WATCH, refusal(429, retry_after="3"))
        began = s.loop.time()
        await s.ask(WATCH, answer())
        assert s.loop.time() - began == 3
        assert s.listener.told == ["failed configmaps"]

    scene(play)


def test_nobody_waits_for_ever_because_a_server_says_so() -> None:
    async def play(s: Scene) -> None:
        await s.fails(LIST, refusal(503, retry_after="86400"))
        began = s.loop.time()
        await s.ask(LIST, a_list())
        assert s.loop.time() - began == MAX_RETRY_AFTER_SECONDS

    scene(play)


@pytest.mark.parametrize("fault", [aiohttp.ServerDisconnectedError(), OSError(111, "refused")])
@pytest.mark.parametrize("target", [LIST, WATCH])
def test_no_connection_is_a_failure(target: str, fault: Exception) -> None:
    async def play(s: Scene) -> None:
        await s.fails(target, fault)
        assert s.listener.told == ["failed configmaps"]

    scene(play)


def test_no_answer_is_a_failure() -> None:
    async def play(s: Scene) -> None:
        began = s.loop.time()
        await s.fails(LIST, 3600.0)
        assert s.loop.time() - began == ANSWER_SECONDS
        assert s.listener.told == ["failed configmaps"]

    scene(play)


def test_each_failure_in_a_row_waits_longer_and_never_long() -> None:
    async def play(s: Scene) -> None:
        for _ in range(20):
            await s.fails(LIST, refusal(500))
        waits = [late - early for early, late in zip(s.sent, s.sent[1:], strict=False)]
        assert 0 < waits[0] <= 0.2
        assert waits[3] > waits[0]
        assert max(waits) <= MAX_PAUSE_SECONDS
        assert min(waits[8:]) >= MAX_PAUSE_SECONDS / 2

    scene(play)


def test_one_kind_that_fails_delays_no_other() -> None:
    async def play(s: Scene) -> None:
        for _ in range(8):
            await s.fails(LIST, refusal(403))
        began = s.loop.time()
        await s.ask("/apis/mcpgroup.dev/v1alpha1/namespaces/a/mcpservergroups", a_list())
        assert s.loop.time() == began

    scene(play)


def test_a_list_that_succeeds_before_a_watch_that_fails_shortens_no_pause() -> None:
    async def play(s: Scene) -> None:
        for _ in range(10):
            await s.ask(LIST, a_list())
            await s.lines(refusal(500))
        began = s.loop.time()
        await s.ask(LIST, a_list())
        assert s.loop.time() - began >= MAX_PAUSE_SECONDS / 2

    scene(play)


def test_a_stream_that_brings_something_makes_good() -> None:
    async def play(s: Scene) -> None:
        for _ in range(8):
            await s.fails(LIST, refusal(500))
        await s.lines(answer(pieces=[event(a=1)]))
        await s.fails(LIST, refusal(500))
        began = s.loop.time()
        await s.ask(LIST, a_list())
        assert s.loop.time() - began <= 0.2

    scene(play)


def test_events_pass_as_they_are_however_their_pieces_fall() -> None:
    async def play(s: Scene) -> None:
        events = [event(text="ERROR"), event("DELETED", a="ö" * 500), event("BOOKMARK")]
        stream = b"\n".join(events)
        pieces = [stream[i : i + 7] for i in range(0, len(stream), 7)]
        assert await s.lines(answer(pieces=pieces)) == events
        assert s.listener.told == []

    scene(play)


@pytest.mark.parametrize("code", [410, 500, 504])
def test_an_error_in_a_stream_looks_like_a_version_that_is_too_old(code: int) -> None:
    async def play(s: Scene) -> None:
        error = event("ERROR", code=code, reason="Because", message="that is so")
        first, last = await s.lines(answer(pieces=[event(a=1) + error[:9], error[9:], event()]))
        assert first == event(a=1)
        assert is_expired(last)
        assert s.listener.told == ["restarted configmaps", "failed configmaps"]

    scene(play)


@pytest.mark.parametrize("line", [b"<html>no</html>\n", b'{"type":"ERROR"}\n', b"1\n"])
def test_a_line_that_is_no_event_ends_the_stream(line: bytes) -> None:
    async def play(s: Scene) -> None:
        (told,) = await s.lines(answer(pieces=[line, event()]))
        assert is_expired(told)
        assert "restarted configmaps" in s.listener.told

    scene(play)


def test_a_stream_that_breaks_off_is_opened_anew() -> None:
    async def play(s: Scene) -> None:
        broken = answer(pieces=[event(a=1), event(b=2)[:9], aiohttp.ClientPayloadError("cut")])
        stream = (await s.ask(WATCH, broken)).content.iter_chunked(9)
        assert await anext(stream) == event(a=1)
        with pytest.raises(aiohttp.ClientPayloadError):
            await anext(stream)
        assert s.listener.told == ["restarted configmaps", "failed configmaps"]

    scene(play)


def test_a_server_that_ends_streams_at_once_is_not_asked_without_pause() -> None:
    async def play(s: Scene) -> None:
        for _ in range(12):
            assert await s.lines(answer()) == []
        assert s.sent[-1] - s.sent[0] > 4 * MAX_PAUSE_SECONDS / 2

    scene(play)


def test_a_quiet_stream_that_ends_in_time_is_a_good_one() -> None:
    async def play(s: Scene) -> None:
        for _ in range(12):
            assert await s.lines(answer(pieces=[SOUND_SECONDS])) == []
        assert s.sent[-1] - s.sent[0] == 11 * SOUND_SECONDS
        assert s.listener.told == []

    scene(play)


def test_a_silent_stream_that_kopf_gives_up_is_told_and_no_failure() -> None:
    async def play(s: Scene) -> None:
        silent = answer(pieces=[event(a=1), 3600.0])
        stream = (await s.ask(WATCH, silent)).content.iter_chunked(9)
        assert await anext(stream) == event(a=1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), INACTIVITY)
        assert s.listener.told == ["restarted configmaps"]
        assert s.monitor.age(MAPS) == INACTIVITY
        await s.ask(WATCH, answer())
        assert s.sent[-1] - s.sent[0] == INACTIVITY

    scene(play)


def test_an_end_of_the_operator_is_no_failure() -> None:
    async def play(s: Scene) -> None:
        response = await s.ask(WATCH, answer(pieces=[event(a=1), 3600.0]))

        async def read() -> None:
            async for _ in response.content.iter_chunked(9):
                pass

        task = asyncio.create_task(read())
        await asyncio.sleep(10)
        task.cancel()
        await asyncio.wait({task})
        assert s.listener.told == []

    scene(play)


def test_a_request_counts_as_asked_for_until_its_stream_ended() -> None:
    async def play(s: Scene) -> None:
        begun = s.monitor.begin(GROUPS)
        response = await s.ask(WATCH, answer(pieces=[100.0]))
        reading = asyncio.create_task(anext(response.content.iter_chunked(9), b""))
        await asyncio.sleep(90)
        assert s.monitor.lost(1000) == {}
        await reading
        await asyncio.sleep(20)
        assert s.monitor.lost(1000) == {MAPS: "its task ended"}
        s.monitor.end(begun)

    scene(play)


@pytest.mark.parametrize(
    "target",
    [
        "/version",
        "/api/v1/configmaps/a",
        "/api/v1/namespaces/b/configmaps",
        "/api/v1/secrets",
        "/apis/mcpgroup.dev/v1/namespaces/a/mcpservergroups",
    ],
)
def test_other_requests_pass(target: str) -> None:
    async def play(s: Scene) -> None:
        given = refusal(404)
        assert await s.ask(target, given) is given
        assert s.listener.told == []

    scene(play)


def test_the_api_server_may_be_below_a_path() -> None:
    async def play(s: Scene) -> None:
        await s.ask("/clusters/one" + LIST, a_list())
        assert s.listener.told == ["listed configmaps"]

    scene(play, prefix="/clusters/one/")


@pytest.mark.parametrize("target", [LIST, WATCH])
def test_a_refusal_is_not_heard_and_yet_no_silence(target: str) -> None:
    async def play(s: Scene) -> None:
        await asyncio.sleep(100)
        with contextlib.suppress(aiohttp.ClientPayloadError):
            await s.ask(target, refusal(403))
        assert s.monitor.age(MAPS) == 100
        assert s.monitor.deaf(50) == [GROUPS]

    scene(play)
