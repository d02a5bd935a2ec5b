"""The session table and its streams, with an injected clock."""

from __future__ import annotations

import itertools
import string

import pytest

from mcpgroup_gateway.serving.event_stream import STREAM_BYTES, STREAM_MESSAGES, EventStream
from mcpgroup_gateway.serving.sessions import Session, SessionTable, unguessable_id
from mcpgroup_gateway.wire.protocol import Kind


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class RecordedCall:
    def __init__(self) -> None:
        self.reasons: list[str | None] = []

    async def run(self) -> bytes | None:
        return None

    def cancel(self, reason: str | None) -> None:
        self.reasons.append(reason)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def table(clock: Clock, max_sessions: int = 3, idle_seconds: float = 100) -> SessionTable:
    ids = (f"s{n}" for n in itertools.count(1))
    return SessionTable(
        max_sessions=max_sessions, idle_seconds=idle_seconds, clock=clock, ids=lambda: next(ids)
    )


def opened(sessions: SessionTable) -> Session:
    session = sessions.open("2025-11-25")
    assert session is not None
    return session


def test_ids_are_long_distinct_and_visible_ascii() -> None:
    ids = {unguessable_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(each) >= 43 for each in ids)
    assert set("".join(ids)) <= set(string.ascii_letters + string.digits + "-_")


def test_a_session_expires_once_idle_for_long_enough(clock: Clock) -> None:
    sessions = table(clock)
    session = opened(sessions)
    clock.now += 99
    assert sessions.expire() == 0
    assert sessions.use(session.id) is session
    clock.now += 99
    assert sessions.expire() == 0
    clock.now += 1
    assert sessions.expire() == 1
    assert session.closed
    assert sessions.use(session.id) is None


def test_calls_and_streams_keep_a_session(clock: Clock) -> None:
    sessions = table(clock)
    calling, listening = opened(sessions), opened(sessions)
    call = RecordedCall()
    calling.call_began(b"1", call)
    stream = listening.open_stream()
    clock.now += 1000
    assert sessions.expire() == 0
    calling.call_ended(b"1", call, clock.now)
    listening.close_stream(stream, clock.now)
    assert sessions.expire() == 0
    clock.now += 100
    assert sessions.expire() == 2


def test_at_the_maximum_the_session_idle_longest_gives_way_after_a_minute(clock: Clock) -> None:
    sessions = table(clock)
    first = opened(sessions)
    clock.now += 10
    second, third = opened(sessions), opened(sessions)
    first.call_began(b"1", RecordedCall())
    clock.now += 59
    assert sessions.open("2025-11-25") is None
    assert sessions.seconds_until_room() == pytest.approx(1.0)
    clock.now += 1
    fourth = opened(sessions)
    assert second.closed
    assert {session.id for session in sessions} == {first.id, third.id, fourth.id}


def test_a_place_that_is_given_back_is_taken_at_once(clock: Clock) -> None:
    sessions = table(clock, max_sessions=1)
    session = opened(sessions)
    assert sessions.open("2025-11-25") is None
    assert sessions.close(session.id)
    assert not sessions.close(session.id)
    opened(sessions)


def test_when_all_sessions_are_busy_the_next_try_is_a_second_away(clock: Clock) -> None:
    sessions = table(clock, max_sessions=1)
    session = opened(sessions)
    call = RecordedCall()
    session.call_began(b"1", call)
    clock.now += 100
    assert sessions.open("2025-11-25") is None
    session.call_ended(b"1", call, 1000.0)
    clock.now += sessions.seconds_until_room()
    opened(sessions)


def test_new_limits_hold_from_the_next_session_on(clock: Clock) -> None:
    sessions = table(clock, max_sessions=1)
    opened(sessions)
    assert sessions.open("2025-11-25") is None
    sessions.reconfigure(max_sessions=2, idle_seconds=10)
    opened(sessions)
    clock.now += 10
    assert sessions.expire() == 2


def test_closing_cancels_calls_ends_streams_and_runs_every_callback(clock: Clock) -> None:
    sessions = table(clock)
    session = opened(sessions)
    calls = [RecordedCall(), RecordedCall()]
    for call in calls:
        session.call_began(b"1", call)
    stream = session.open_stream()
    done: list[str] = []

    def broken() -> None:
        raise RuntimeError

    session.on_close(broken)
    session.on_close(lambda: done.append("a"))
    sessions.close(session.id)
    session.on_close(lambda: done.append("late"))
    assert [len(call.reasons) for call in calls] == [1, 1]
    assert stream.closed
    assert done == ["a", "late"]
    assert session.open_stream().closed
    assert not session.push(b"{}")


def test_the_listener_hears_how_sessions_begin_and_end(clock: Clock) -> None:
    heard: list[str] = []
    sessions = SessionTable(
        max_sessions=1,
        idle_seconds=100,
        clock=clock,
        listener=lambda session, what: heard.append(what),
    )
    opened(sessions)
    clock.now += 60
    opened(sessions)
    clock.now += 100
    sessions.expire()
    sessions.close(opened(sessions).id)
    opened(sessions)
    sessions.close_all()
    assert heard == [
        *("opened", "displaced", "opened", "idle"),
        *("opened", "deleted", "opened", "shutdown"),
    ]


def test_equal_ids_in_flight_are_told_apart_by_their_calls(clock: Clock) -> None:
    session = opened(table(clock))
    first, second = RecordedCall(), RecordedCall()
    session.call_began(b"1", first)
    session.call_began(b"1", second)
    session.call_began(b'"1"', RecordedCall())
    session.call_ended(b"1", first, clock.now)
    assert session.calls[b"1"] == [second]
    assert session.in_flight == 2


def test_a_stream_is_bounded_in_messages_and_bytes(clock: Clock) -> None:
    stream = EventStream()
    assert [stream.push(b"{}") for _ in range(STREAM_MESSAGES + 1)].count(True) == STREAM_MESSAGES
    wide = EventStream()
    assert wide.push(b"x" * (STREAM_BYTES + 1))  # one large message alone may pass
    assert not wide.push(b"x")
    session = opened(table(clock))
    older, lagging = session.open_stream(), session.open_stream()
    while lagging.push(b"{}"):
        pass
    assert session.push(b"{}")
    assert not older.closed


async def test_a_stream_gives_what_is_queued_before_it_ends() -> None:
    stream = EventStream()
    stream.push(b"1")
    stream.push(b"2")
    stream.close()
    assert not stream.push(b"3")
    assert await stream.next() == [b"1", b"2"]
    assert await stream.next() is None


def test_list_changed_waits_for_a_stream_once_a_kind(clock: Clock) -> None:
    session = opened(table(clock))
    for kind in (Kind.TOOL, Kind.RESOURCE, Kind.TEMPLATE, Kind.TOOL):
        session.notify_list_changed(kind)
    stream = session.open_stream()
    assert len(stream._messages) == 2
    assert not session.open_stream()._messages
