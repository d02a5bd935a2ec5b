"""The queue for members with a concurrency limit."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from mcpgroup_gateway.core.waiting import WAITERS_A_SLOT, WaitingRoom


def test_who_waits_longest_goes_first() -> None:
    room: WaitingRoom[str] = WaitingRoom()
    for waiter in ("first", "second", "third"):
        assert room.enter(waiter, ["a"], slots=1)
    assert [room.freed("a") for _ in range(4)] == ["first", "second", "third", None]


def test_a_call_takes_the_first_slot_of_any_of_its_members() -> None:
    room: WaitingRoom[str] = WaitingRoom()
    room.enter("either", ["a", "b"], slots=2)
    room.enter("only a", ["a"], slots=1)
    assert room.freed("b") == "either"
    assert room.freed("b") is None
    assert room.freed("a") == "only a"


def test_four_calls_a_slot_may_wait_and_no_more() -> None:
    room: WaitingRoom[int] = WaitingRoom()
    taken = [room.enter(number, ["a", "b"], slots=3) for number in range(20)]
    assert taken == [True] * 12 + [False] * 8
    assert room.waiting_for("a") == room.waiting_for("b") == 12


def test_who_leaves_is_not_called_and_makes_room() -> None:
    room: WaitingRoom[int] = WaitingRoom()
    for number in range(4):
        room.enter(number, ["a"], slots=1)
    assert not room.enter(9, ["a"], slots=1)
    assert room.leave(0)
    assert not room.leave(0)
    assert room.enter(9, ["a"], slots=1)
    assert room.freed("a") == 1


def test_nobody_waits_for_nothing_or_twice() -> None:
    room: WaitingRoom[int] = WaitingRoom()
    assert not room.enter(1, [], slots=0)
    room.enter(1, ["a"], slots=1)
    with pytest.raises(ValueError, match="once"):
        room.enter(1, ["b"], slots=1)
    assert len(room) == 1
    assert room.waiting_for("b") == 0


@given(st.lists(st.sets(st.sampled_from("abc"), min_size=1), min_size=1, max_size=12))
def test_nobody_starves_while_slots_of_its_members_come_free(wanted: list[set[str]]) -> None:
    room: WaitingRoom[int] = WaitingRoom()
    inside = [number for number, ids in enumerate(wanted) if room.enter(number, ids, slots=3)]
    served = set()
    # Whoever is at place n of any queue needs at most n slots of that endpoint.
    for _ in range(len(inside)):
        served |= {room.freed(name) for name in "abc"}
    assert served - {None} == set(inside)
    assert len(room) == 0


class Room(RuleBasedStateMachine):
    """Against a plain list that is searched from the front."""

    waiters = Bundle("waiters")

    def __init__(self) -> None:
        super().__init__()
        self.room: WaitingRoom[int] = WaitingRoom()
        self.model: list[tuple[int, frozenset[str]]] = []
        self.count = 0

    @rule(
        target=waiters,
        ids=st.frozensets(st.sampled_from("abc"), min_size=1),
        slots=st.integers(1, 2),
    )
    def enter(self, ids: frozenset[str], slots: int) -> int:
        self.count += 1
        same = sum(wanted == ids for _, wanted in self.model)
        taken = self.room.enter(self.count, ids, slots=slots)
        assert taken is (same < WAITERS_A_SLOT * slots)
        if taken:
            self.model.append((self.count, ids))
        return self.count

    @rule(name=st.sampled_from("abc"))
    def free(self, name: str) -> None:
        expected = next((waiter for waiter, ids in self.model if name in ids), None)
        assert self.room.freed(name) == expected
        self.model = [entry for entry in self.model if entry[0] != expected]

    @precondition(lambda self: self.model)
    @rule(waiter=waiters)
    def leave(self, waiter: int) -> None:
        waits = any(entry[0] == waiter for entry in self.model)
        assert self.room.leave(waiter) is waits
        self.model = [entry for entry in self.model if entry[0] != waiter]

    @invariant()
    def the_counts_agree(self) -> None:
        counts = Counter(name for _, ids in self.model for name in ids)
        assert len(self.room) == len(self.model)
        assert all(self.room.waiting_for(name) == counts[name] for name in "abc")


TestRoom = Room.TestCase


def test_only_those_without_another_member_are_stranded_when_one_goes() -> None:
    room: WaitingRoom[str] = WaitingRoom()
    for waiter, endpoints in (("x", ["a"]), ("y", ["a", "b"]), ("z", ["a"])):
        assert room.enter(waiter, endpoints, slots=1)
    assert room.stranded("a") == ["x", "z"]
    assert room.stranded("a") == []
    assert room.freed("b") == "y"
    assert len(room) == 0
