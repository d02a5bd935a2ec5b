"""Which call a message belongs to that names none."""

from __future__ import annotations

from mcpgroup_gateway.members.only_call import AFTERWARDS_SECONDS, CallsInFlight


def test_it_belongs_to_the_only_call() -> None:
    calls: CallsInFlight[str] = CallsInFlight(lambda: 0.0)
    assert calls.only is None
    calls.begin("a")
    assert calls.only == calls.speaking == "a"
    calls.begin("b")
    assert calls.only is None
    assert calls.speaking is None
    calls.end("a")
    assert calls.speaking == "b"


def test_a_call_that_was_given_up_may_go_on_speaking_for_a_while() -> None:
    now = 100.0
    calls: CallsInFlight[str] = CallsInFlight(lambda: now)
    calls.begin("a")
    calls.give_up("a")
    calls.give_up("never begun")
    calls.begin("b")
    assert calls.only == "b"
    assert calls.speaking is None
    now += AFTERWARDS_SECONDS
    assert calls.speaking == "b"
