"""Calls that seem to kill their members."""

from __future__ import annotations

from mcpgroup_gateway.core.quarantine import Quarantine

TOOL, ARGUMENTS = "crash", b'{"n":1}'


def lose(
    quarantine: Quarantine,
    now: float,
    endpoint: str = "a",
    began_at: float | None = None,
    arguments: bytes = ARGUMENTS,
) -> bool:
    return quarantine.record_loss(
        TOOL, arguments, endpoint=endpoint, began_at=now if began_at is None else began_at, now=now
    )


def test_two_losses_within_a_minute_keep_the_pair_away_for_a_minute() -> None:
    quarantine = Quarantine()
    assert not lose(quarantine, 100.0)
    assert quarantine.remaining(TOOL, ARGUMENTS, now=101.0) == 0
    assert lose(quarantine, 159.0, "b")
    assert quarantine.remaining(TOOL, ARGUMENTS, now=159.0) == 60
    assert quarantine.remaining(TOOL, ARGUMENTS, now=218.0) == 1
    assert quarantine.remaining(TOOL, ARGUMENTS, now=219.0) == 0


def test_losses_a_minute_apart_are_no_pattern() -> None:
    quarantine = Quarantine()
    lose(quarantine, 100.0)
    assert not lose(quarantine, 160.0, "b")
    assert lose(quarantine, 165.0, "c")


def test_other_arguments_and_other_tools_are_not_touched() -> None:
    quarantine = Quarantine()
    lose(quarantine, 100.0)
    lose(quarantine, 101.0, "b")
    assert quarantine.remaining(TOOL, b'{"n":2}', now=102.0) == 0
    assert quarantine.remaining("crash2", ARGUMENTS, now=102.0) == 0
    assert not lose(quarantine, 102.0, "c", arguments=b"{}")


def test_fifty_equal_calls_lost_by_one_crash_are_one_loss() -> None:
    quarantine = Quarantine()
    for _ in range(50):
        assert not lose(quarantine, 100.0, "a", began_at=99.0)
    assert quarantine.remaining(TOOL, ARGUMENTS, now=100.0) == 0


def test_a_second_crash_of_the_same_member_counts() -> None:
    quarantine = Quarantine()
    lose(quarantine, 100.0, "a", began_at=99.0)
    assert lose(quarantine, 110.0, "a", began_at=105.0)


def test_a_straggler_of_a_counted_crash_prolongs_nothing() -> None:
    quarantine = Quarantine()
    lose(quarantine, 100.0, "a")
    lose(quarantine, 101.0, "b", began_at=100.5)
    assert lose(quarantine, 130.0, "b", began_at=100.7)
    assert quarantine.remaining(TOOL, ARGUMENTS, now=130.0) == 31


def test_the_table_is_bounded_and_forgets_the_oldest() -> None:
    quarantine = Quarantine(max_pairs=3)
    for number in range(5):
        lose(quarantine, 100.0 + number, arguments=b"%d" % number)
    assert len(quarantine) == 3
    assert not lose(quarantine, 110.0, "b", arguments=b"0")
    assert lose(quarantine, 110.0, "b", arguments=b"4")


def test_a_pair_whose_time_is_over_leaves_the_table() -> None:
    quarantine = Quarantine()
    lose(quarantine, 100.0)
    lose(quarantine, 101.0, "b")
    quarantine.remaining(TOOL, ARGUMENTS, now=500.0)
    assert len(quarantine) == 0
