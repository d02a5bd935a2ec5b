"""When an endpoint that runs is what a configuration asks for."""

from __future__ import annotations

import pytest

from mcpgroup_gateway.serving.identity import Identity


@pytest.mark.parametrize(
    ("runs", "wanted", "stays"),
    [
        (Identity("x", "1"), Identity("x", "1"), True),
        (Identity("x", "1"), Identity("y", "1"), False),
        (Identity("x", "1"), Identity("x", "2"), False),
        (Identity("x", "1"), Identity("x", None), True),  # it was given its value
        (Identity("x", None), Identity("x", "1"), True),  # it waits for it
        (Identity("x", None), Identity("y", None), False),
    ],
)
def test_an_endpoint_stays_with_its_source_and_the_values_of_its_secrets(
    runs: Identity, wanted: Identity, stays: bool
) -> None:
    assert runs.matches(wanted) is stays


def test_a_value_that_is_missing_now_is_not_forgotten() -> None:
    runs = Identity("x", "1").updated(Identity("x", None))
    assert not runs.matches(Identity("x", "2"))
    assert Identity("x", None).updated(Identity("x", "2")) == Identity("x", "2")
