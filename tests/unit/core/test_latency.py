from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_gateway.core.latency import MAX_AGE_SECONDS, MAX_SAMPLES, LatencyWindow


def test_without_samples_there_is_no_percentile() -> None:
    assert LatencyWindow().p95(0) is None


def test_the_percentile_is_of_the_newest_samples_only() -> None:
    window = LatencyWindow()
    for _ in range(MAX_SAMPLES):
        window.add(0, 100)
    for _ in range(MAX_SAMPLES):
        window.add(1, 1)
    assert window.p95(1) == 1


def test_samples_age_out_by_time() -> None:
    window = LatencyWindow()
    window.add(0, 9)
    window.add(30, 1)
    assert window.p95(30) == 9
    assert window.p95(MAX_AGE_SECONDS + 0.1) == 1
    assert window.p95(MAX_AGE_SECONDS + 30.1) is None


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=300))
def test_it_is_the_nearest_rank(samples: list[float]) -> None:
    window = LatencyWindow()
    for sample in samples:
        window.add(0, sample)
        window.p95(0)
    recent = sorted(samples[-MAX_SAMPLES:])
    assert window.p95(0) == recent[math.ceil(0.95 * len(recent)) - 1]
