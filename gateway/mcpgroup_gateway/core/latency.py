"""How long a member's recent answers took."""

from __future__ import annotations

import math
from collections import deque

MAX_SAMPLES = 128
MAX_AGE_SECONDS = 60.0


class LatencyWindow:
    """The newest answers of one endpoint, bounded in number and in age.

    `add` is on the path of every call and only appends; the sort is paid by whoever asks for the
    percentile, and once a change only.
    """

    __slots__ = ("_cached", "_samples")

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=MAX_SAMPLES)
        self._cached: float | None = None

    def add(self, now: float, seconds: float) -> None:
        """Take the duration of a call that was answered; failed attempts never come here."""
        self._samples.append((now, seconds))
        self._cached = None

    def p95(self, now: float) -> float | None:
        """The 95th percentile (nearest rank) in seconds; None without a recent answer."""
        samples = self._samples
        oldest = now - MAX_AGE_SECONDS
        while samples and samples[0][0] < oldest:
            samples.popleft()
            self._cached = None
        if not samples:
            return None
        if self._cached is None:
            ordered = sorted(seconds for _, seconds in samples)
            self._cached = ordered[math.ceil(0.95 * len(ordered)) - 1]
        return self._cached
