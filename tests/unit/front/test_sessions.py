"""The session table and its streams, with an injected clock."""

from __future__ import annotations

import itertools
import string

import pytest

from mcpgroup_gateway.serving.replay import REMEMBERED_SECONDS
from mcpgroup_gateway.serving.session import PENDING_UPDATES, ForgottenStream
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


class Connection:
    """The reader of a stream, or the POST of a call."""

    def __init__(self, *, takes_events: bool = True) -> None:
        self.takes_events = takes_events
        self.is_gone = False
        self.gone_at = 0.0
        self.cuts = 0
        self.pushed: list[bytes] = []

    def cut(self) -> None:
        self.cuts += 1

    def push(self, message: bytes) -> bool:
        if self.takes_events and not self.is_gone:
            self.pushed.append(message)
        return self.takes_events and not self.is_gone


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
    connection = Connection()
    calling.call_began(b"1", call, connection)
    stream = listening.open_stream(connection)
    clock.now += 1000
    assert sessions.expire() == 0
    calling.call_ended(b"1", call, connection, clock.now)
    listening.leave_stream(stream, connection, clock.now)
    assert sessions.expire() == 0
    clock.now += 100
    assert sessions.expire() == 2


def test_at_the_maximum_the_session_idle_longest_gives_way_after_a_minute(clock: Clock) -> None:
    sessions = table(clock)
    first = opened(sessions)
    clock.now += 10
    second, third = opened(sessions), opened(sessions)
    first.call_began(b"1", RecordedCall(), Connection())
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
    call, post = RecordedCall(), Connection()
    session.call_began(b"1", call, post)
    clock.now += 100
    assert sessions.open("2025-11-25") is None
    session.call_ended(b"1", call, post, 1000.0)
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
        session.call_began(b"1", call, Connection())
    stream = session.open_stream(Connection())
    done: list[str] = []

    def broken() -> None:
        raise RuntimeError

    session.on_close(broken)
    session.on_close(lambda: done.append("a"))
    sessions.close(session.id)
    session.on_close(lambda: done.append("late"))
    assert [len(call.reasons) for call in calls] == [1, 1]
    assert stream.ended
    assert done == ["a", "late"]
    assert session.open_stream(Connection()).ended
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
    first, second, post = RecordedCall(), RecordedCall(), Connection()
    session.call_began(b"1", first, post)
    session.call_began(b"1", second, Connection())
    session.call_began(b'"1"', RecordedCall(), Connection())
    session.call_ended(b"1", first, post, clock.now)
    assert session.calls[b"1"] == [second]
    assert session.in_flight == 2


def test_list_changed_waits_for_a_stream_once_a_kind(clock: Clock) -> None:
    session = opened(table(clock))
    for kind in (Kind.TOOL, Kind.RESOURCE, Kind.TEMPLATE, Kind.TOOL):
        session.notify_list_changed(kind)
    assert len(session.open_stream(Connection()).take()) == 2
    assert not session.open_stream(Connection()).lags


def test_updates_wait_for_a_stream_one_a_uri_and_the_oldest_goes(clock: Clock) -> None:
    session = opened(table(clock))
    for number in range(PENDING_UPDATES + 1):
        session.notify_updated(f"x:{number}", b'"old"')
    session.notify_updated("x:50", b'"new"')
    waiting = session.open_stream(Connection()).take()
    assert len(waiting) == PENDING_UPDATES
    assert b'"new"' in waiting[-1]
    session.notify_updated("x:1", b'"live"')
    assert b'"live"' in session.streams[0].take()[0]


def test_a_message_goes_to_the_newest_stream_that_takes_it(clock: Clock) -> None:
    session = opened(table(clock))
    older, lagging = session.open_stream(Connection()), session.open_stream(Connection())
    while lagging.push(b"{}"):
        pass
    assert session.push(b'"over"')
    assert len(older.take()) == 1
    lagging.take()
    assert session.push(b'"again"')
    assert (len(older.take()), len(lagging.take())) == (0, 1)


def test_a_request_goes_to_a_post_only_when_no_get_stream_is_open(clock: Clock) -> None:
    session = opened(table(clock))
    assert not session.push_request(b"1")
    deaf, older, newer = Connection(takes_events=False), Connection(), Connection()
    for post in (older, newer, deaf):
        session.call_began(b"1", RecordedCall(), post)
    assert session.push_request(b"2")
    newer.is_gone = True
    assert session.push_request(b"3")
    assert not session.push(b"4")
    stream = session.open_stream(Connection())
    assert session.push_request(b"5")
    assert (deaf.pushed, older.pushed, newer.pushed) == ([], [b"3"], [b"2"])
    assert len(stream.take()) == 1


def test_a_session_tells_since_when_its_client_is_away(clock: Clock) -> None:
    sessions = table(clock)
    session = opened(sessions)
    assert session.detached_since == clock.now
    call, post, reader = RecordedCall(), Connection(), Connection()
    clock.now += 1
    sessions.use(session.id)
    session.call_began(b"1", call, post)
    assert session.attached
    assert session.detached_since is None
    post.is_gone, post.gone_at = True, clock.now + 2
    clock.now += 10
    assert session.detached_since == clock.now - 8
    # The client does not come back by the end of the call.
    session.call_ended(b"1", call, post, clock.now)
    assert session.detached_since == clock.now - 8
    stream = session.open_stream(reader)
    assert session.attached
    clock.now += 5
    session.leave_stream(stream, reader, clock.now)
    assert session.detached_since == clock.now


def test_a_get_stream_goes_on_where_its_client_left_it(clock: Clock) -> None:
    session = opened(table(clock))
    first, second = Connection(), Connection()
    stream = session.open_stream(first)
    for text in (b'"1"', b'"2"', b'"3"'):
        session.push(text)
    stream.take()
    again = session.resume_stream(f"{stream.name}-1", second)
    assert again is stream
    assert first.cuts == 1
    assert [event.split(b"data: ")[1] for event in stream.take()] == [b'"2"\n\n', b'"3"\n\n']
    assert session.streams == [stream]
    session.leave_stream(stream, first, clock.now)  # the old connection ends late
    assert session.push(b'"4"')


def test_a_get_stream_is_remembered_for_a_while_only(clock: Clock) -> None:
    sessions = table(clock, idle_seconds=10_000)
    session = opened(sessions)
    reader = Connection()
    stream = session.open_stream(reader)
    session.push(b"{}")
    session.leave_stream(stream, reader, clock.now)
    clock.now += REMEMBERED_SECONDS - 1
    sessions.expire()
    assert session.resume_stream(f"{stream.name}-0", reader) is stream
    clock.now += 1000
    sessions.expire()
    assert len(sessions.replay) == 1
    session.leave_stream(stream, reader, clock.now)
    clock.now += REMEMBERED_SECONDS
    sessions.expire()
    assert (len(sessions.replay), sessions.replay.size) == (0, 0)
    assert session.resume_stream(f"{stream.name}-0", reader) not in (None, stream)


@pytest.mark.parametrize(
    "event_id", ["", "7", "x-1", "g9-1", "g1-99", "g1", "-", "p-1", "p1-", "p1-x", "p1-²", "p" * 99]
)
def test_an_id_that_names_no_post_gets_a_new_get_stream(clock: Clock, event_id: str) -> None:
    session = opened(table(clock))
    session.open_stream(Connection())
    reader = Connection()
    stream = session.resume_stream(event_id, reader)
    assert stream is not None
    assert (stream.name, stream.reader) == ("g2", reader)


def test_the_answer_of_a_post_is_kept_until_it_was_sent(clock: Clock) -> None:
    sessions = table(clock, idle_seconds=10_000)
    session = opened(sessions)
    post, reader = Connection(), Connection()
    stream = session.open_post_stream(post)
    stream.put(b'"progress"')
    stream.take()
    stream.detach(post)
    stream.end(b'"answer"')
    clock.now += 1000
    sessions.expire()
    assert session.resume_stream("p1-1", reader) is stream
    assert len(stream.take()) == 1
    session.leave_stream(stream, reader, clock.now, delivered=True)
    assert session.resume_stream("p1-2", reader) is None
    assert session.resume_stream("p1-1", reader) is stream  # lost on the way all the same
    session.leave_stream(stream, reader, clock.now, delivered=True)
    clock.now += REMEMBERED_SECONDS
    sessions.expire()
    with pytest.raises(ForgottenStream):
        session.resume_stream("p1-1", reader)
    assert not len(sessions.replay)


@pytest.mark.parametrize("event_id", ["p1-3", "p2-0", "g2-0 "])
def test_a_post_stream_that_never_was_is_refused(clock: Clock, event_id: str) -> None:
    session = opened(table(clock))
    session.open_post_stream(Connection()).put(b"{}")
    if event_id.startswith("g"):
        assert session.resume_stream(event_id, Connection()) is not None
        return
    with pytest.raises(ForgottenStream):
        session.resume_stream(event_id, Connection())


def test_ending_a_session_forgets_its_streams(clock: Clock) -> None:
    sessions = table(clock)
    session = opened(sessions)
    session.open_post_stream(Connection()).put(b"{}")
    session.open_stream(Connection()).push(b"{}")
    assert len(sessions.replay) == 2
    sessions.close(session.id)
    assert (len(sessions.replay), sessions.replay.size) == (0, 0)


def test_a_post_stream_that_ended_with_nothing_to_fetch_is_forgotten_in_time(clock: Clock) -> None:
    sessions = table(clock)
    session = opened(sessions)
    for number in range(1000):
        post = Connection()
        stream = session.open_post_stream(post)
        stream.priming()
        stream.detach(post)
        session.end_stream(stream, b'{"a":1}' if number == 7 else None, clock.now)
    clock.now += REMEMBERED_SECONDS + 1
    sessions.expire()
    with pytest.raises(ForgottenStream):
        session.resume_stream("p1-0", Connection())
    assert len(sessions.replay) == 1
    kept = session.resume_stream("p8-0", Connection())
    assert kept is not None
    assert len(kept.take()) == 1
