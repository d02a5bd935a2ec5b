"""Which key is worked on next."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_operator.workqueue import MAX_BACKOFF_SECONDS, WorkQueue


class Counts:
    """What the queue told."""

    def __init__(self) -> None:
        self.adds = 0
        self.retries = 0

    def added(self) -> None:
        self.adds += 1

    def retried(self) -> None:
        self.retries += 1


def queue() -> WorkQueue[str]:
    return WorkQueue(Random(1), Counts())  # noqa: S311 - jitter


def test_a_key_stands_in_the_queue_once() -> None:
    keys = queue()
    for _ in range(3):
        keys.add("a", 0.0)

    assert keys.take(0.0) == "a"
    assert keys.take(0.0) is None


def test_a_key_asked_for_while_it_is_worked_on_comes_again_afterwards() -> None:
    keys = queue()
    keys.add("a", 0.0)
    keys.take(0.0)
    keys.add("a", 1.0)
    keys.add("a", 1.0)

    assert keys.take(1.0) is None
    keys.done("a", 2.0)
    assert keys.take(2.0) == "a"
    keys.done("a", 3.0)
    assert keys.take(3.0) is None


def test_a_key_comes_back_after_its_delay_and_not_before() -> None:
    keys = queue()
    keys.add_after("a", 5.0, 0.0)

    assert keys.next_due(0.0) == 5.0
    assert keys.take(4.9) is None
    assert keys.take(5.0) == "a"


def test_of_two_delays_the_earlier_counts() -> None:
    keys = queue()
    keys.add_after("a", 5.0, 0.0)
    keys.add_after("a", 2.0, 0.0)
    keys.add_after("a", 9.0, 0.0)

    assert keys.next_due(0.0) == 2.0
    assert keys.take(2.0) == "a"
    keys.done("a", 2.0)
    assert keys.take(100.0) is None


def test_a_change_does_not_wait_for_a_delay() -> None:
    keys = queue()
    keys.add_after("a", 60.0, 0.0)
    keys.add("a", 1.0)

    assert keys.take(1.0) == "a"
    keys.done("a", 1.0)
    assert keys.take(61.0) is None


def test_backoff_doubles_up_to_a_bound_and_starts_anew_after_success() -> None:
    keys = queue()
    delays = [keys.add_failed("a", 0.0) for _ in range(15)]

    assert all(0.1 * 2**n <= delays[n] <= 0.2 * 2**n for n in range(8))
    assert all(MAX_BACKOFF_SECONDS / 2 <= delay <= MAX_BACKOFF_SECONDS for delay in delays[9:])
    keys.forgive("a")
    assert keys.add_failed("a", 0.0) <= 0.2


def test_a_server_that_asks_for_time_gets_it() -> None:
    assert queue().add_failed("a", 0.0, at_least=7.0) == 7.0


def test_a_server_that_says_when_to_come_back_is_not_asked_earlier_whatever_changes() -> None:
    keys = queue()
    keys.add("a", 0.0)
    keys.take(0.0)
    keys.add("a", 0.5)
    assert keys.add_failed("a", 1.0, at_least=7.0) == 7.0
    keys.done("a", 1.0)
    assert keys.take(1.0) is None
    keys.add("a", 5.0)
    assert keys.take(7.9) is None
    assert keys.next_due(7.9) == 8.0
    assert keys.take(8.0) == "a"
    keys.done("a", 9.0)
    keys.add("a", 9.0)
    assert keys.take(9.0) == "a"


def test_no_server_makes_a_key_wait_for_a_day() -> None:
    keys = queue()
    assert keys.add_failed("a", 0.0, at_least=86_400.0) == MAX_BACKOFF_SECONDS
    keys.add("a", 1.0)
    assert keys.take(MAX_BACKOFF_SECONDS) == "a"


def test_a_key_that_is_gone_need_not_wait_when_it_is_back() -> None:
    keys = queue()
    keys.add_failed("a", 0.0, at_least=30.0)
    keys.forget("a")
    keys.add("a", 1.0)
    assert keys.take(1.0) == "a"


def test_how_long_the_oldest_work_takes_is_known() -> None:
    keys = queue()
    keys.add("a", 0.0)
    keys.take(1.0)

    assert keys.longest_running(4.0) == 3.0
    keys.done("a", 4.0)
    assert keys.longest_running(9.0) == 0.0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "after", "failed", "take", "done"]),
            st.sampled_from("abc"),
            st.floats(0, 10),
        ),
        max_size=60,
    )
)
def test_no_key_is_worked_on_twice_at_once_and_none_is_lost(
    steps: list[tuple[str, str, float]],
) -> None:
    keys = queue()
    now, running, owed = 0.0, set(), set()
    for step, key, seconds in steps:
        now += seconds
        if step == "add":
            keys.add(key, now)
            owed.add(key)
        elif step == "after":
            keys.add_after(key, seconds, now)
            owed.add(key)
        elif step == "failed":
            keys.add_failed(key, now)
            owed.add(key)
        elif step == "take":
            taken = keys.take(now)
            if taken is not None:
                assert taken not in running
                running.add(taken)
                owed.discard(taken)
        elif running:
            done = min(running)
            running.discard(done)
            keys.done(done, now)
    for key in sorted(running):
        keys.done(key, now)

    now += 1000.0
    found = set()
    while (taken := keys.take(now)) is not None:
        found.add(taken)
        keys.done(taken, now)
    assert owed <= found


def test_times_that_no_longer_count_do_not_pile_up() -> None:
    keys = queue()
    for number in range(5_000):
        now = number / 10
        keys.add("a", now)
        assert keys.take(now) == "a"
        keys.add_after("a", 600.0, now)
        keys.done("a", now)

    assert len(keys._later) < 200
    assert keys.next_due(500.0) == 499.9 + 600.0
