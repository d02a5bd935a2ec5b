"""What may be sent again: exactly what followed, of one stream only, within the bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.serving.replay import REMEMBERED_SECONDS, EventLog, Replay, ReplayBudget
from mcpgroup_gateway.wire.sse import encode_event

EVENTS, BYTES = 8, 6_000

#: (session, stream, size of the message, kept)
SENT = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2_000), st.booleans()),
    max_size=60,
)


def replay(budget: ReplayBudget | None = None) -> Replay[EventLog]:
    return Replay(ReplayBudget() if budget is None else budget, EVENTS, BYTES)


def log(owner: Replay[EventLog], name: str) -> EventLog:
    made = owner.logs[name] = EventLog(name, owner)
    return made


@given(SENT, st.integers(0, 40))
def test_what_followed_an_id_is_sent_again_and_nothing_else(
    sent: list[tuple[int, int, int, bool]], after: int
) -> None:
    budget = ReplayBudget(max_events=20, max_bytes=15_000)
    sessions = [replay(budget) for _ in range(3)]
    logs = [[log(owner, f"p{n}") for n in range(3)] for owner in sessions]
    expected: dict[EventLog, list[bytes]] = {each: [] for own in logs for each in own}
    for session, stream, size, kept in sent:
        target = logs[session][stream]
        message = b"%d %d " % (session, stream) + b"x" * size
        number = len(expected[target]) + 1
        data = target.append(message, kept=kept)
        assert data == encode_event(message, b"p%d-%d" % (stream, number))
        expected[target].append(data)
        assert budget.size == sum(owner.size for owner in sessions)
        assert len(budget) == sum(map(len, sessions)) <= 20
        assert budget.size <= 15_000
        for owner in sessions:
            assert len(owner) <= EVENTS
            assert owner.size <= BYTES
    for own, owner in zip(logs, sessions, strict=True):
        assert sum(map(len, own)) == len(owner)
        for each in own:
            again = each.after(after)
            # In order, without repetition, and a part of what followed: gaps come of the bounds.
            following = iter(expected[each][after:])
            assert all(data in following for data in again)


@given(SENT)
def test_within_the_bounds_nothing_is_lost(sent: list[tuple[int, int, int, bool]]) -> None:
    owner: Replay[EventLog] = Replay(ReplayBudget())
    logs = [log(owner, f"g{n}") for n in range(3)]
    expected: list[list[bytes]] = [[], [], []]
    for _, stream, size, kept in sent:
        expected[stream].append(logs[stream].append(b"x" * size, kept=kept))
    for each, events in zip(logs, expected, strict=True):
        for after in range(len(events) + 1):
            assert each.after(after) == events[after:]


def test_over_the_bound_notifications_go_first_and_answers_last() -> None:
    owner = replay()
    calls, answered = log(owner, "p1"), log(owner, "p2")
    answered.append(b"answer", kept=True)
    for _ in range(3 * EVENTS):
        calls.append(b"progress", kept=False)
    assert len(answered.after(0)) == 1
    assert len(calls.after(0)) == EVENTS - 1
    for _ in range(EVENTS):
        calls.append(b"request", kept=True)
    assert not answered.after(0)
    assert all(b"request" in event for event in calls.after(0))


def test_an_event_larger_than_the_bound_stays_alone() -> None:
    owner = replay()
    stream = log(owner, "p1")
    stream.append(b"small", kept=True)
    stream.append(b"x" * 2 * BYTES, kept=True)
    assert [len(event) > BYTES for event in stream.after(0)] == [True]
    stream.append(b"notification", kept=False)
    assert len(stream.after(1)) == 1
    stream.append(b"small", kept=True)
    assert [len(event) > BYTES for event in stream.after(0)] == [False]


def test_a_stream_that_ended_is_forgotten_with_its_last_event() -> None:
    owner = replay()
    ended, live = log(owner, "p1"), log(owner, "p2")
    ended.append(b"answer", kept=True)
    ended.ended = True
    for _ in range(EVENTS):
        live.append(b"request", kept=True)
    assert list(owner.logs) == ["p2"]
    assert not ended.remembered


def test_a_retired_log_is_forgotten_in_time_unless_it_is_kept() -> None:
    budget = ReplayBudget()
    owner = replay(budget)
    first, second = log(owner, "p1"), log(owner, "p2")
    for each in (first, second):
        each.append(b"{}", kept=False)
    owner.retire(first, 0.0)
    owner.retire(second, 1.0)
    owner.retire(first, 2.0)
    budget.expire(REMEMBERED_SECONDS + 1.0)
    assert list(owner.logs) == ["p1"]
    owner.keep(first)
    budget.expire(1000.0)
    assert len(first) == 1
    owner.clear()
    assert (len(budget), budget.size, owner.logs) == (0, 0, {})


def test_a_forgotten_stream_may_go_on_without_being_remembered() -> None:
    budget = ReplayBudget()
    owner = replay(budget)
    stream = log(owner, "p1")
    stream.append(b"{}", kept=False)
    owner.clear()
    assert stream.append(b"{}", kept=False).startswith(b"event: message\nid: p1-2\n")
    assert not stream.after(0)
    assert not len(budget)
