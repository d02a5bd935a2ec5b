"""The seven ways to choose one of several endpoints that could all serve a call.

`choose` looks and changes nothing, so that `explain` tells what the next call would get; `picked`
is told what was really chosen. Candidates come in manifest order, which breaks every tie. A call
that only one endpoint can serve is no choice: strategies do not hear of it.
"""

from __future__ import annotations

import hashlib
from statistics import median
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from mcpgroup_gateway.core.endpoint import Endpoint

#: LeastLatency: how many calls in flight weigh as much as one second of latency.
_CALLS_A_SECOND = 0.5


class Strategy(Protocol):
    def choose(
        self, candidates: Sequence[Endpoint], *, now: float, key: bytes
    ) -> tuple[Endpoint, float | None]:
        """One of the candidates, with its score where the strategy has one.

        `key` is what ConsistentHash hashes, empty when the caller has none.
        """
        ...

    def picked(self, endpoint: Endpoint, candidates: Sequence[Endpoint]) -> None:
        """`endpoint` gets the call; it was chosen among `candidates`."""
        ...


class RoundRobin:
    """The next in manifest order after the last one chosen.

    The cursor is a place in the manifest and not an index into the candidates, so that a member
    that comes and goes skews nothing: each lap passes every other one exactly once.
    """

    def __init__(self) -> None:
        self._last: Endpoint | None = None

    def choose(
        self, candidates: Sequence[Endpoint], *, now: float, key: bytes
    ) -> tuple[Endpoint, float | None]:
        last = self._last
        if last is not None:
            # The position is read from the endpoint, which a reload may have moved.
            place = (last.position, last.id)
            for endpoint in candidates:
                if (endpoint.position, endpoint.id) > place:
                    return endpoint, None
        return candidates[0], None

    def picked(self, endpoint: Endpoint, candidates: Sequence[Endpoint]) -> None:
        self._last = endpoint


class WeightedRoundRobin:
    """nginx's smooth weighted round robin: 5/1/1 gives a a b a c a a.

    Each choice adds its weight to every candidate and takes the sum of the weights from the
    largest. What an absent member had gained is dropped, so that it cannot come back with it.

    Source: nginx, ngx_http_upstream_round_robin.c.
    """

    def __init__(self) -> None:
        self._current: dict[str, int] = {}

    def choose(
        self, candidates: Sequence[Endpoint], *, now: float, key: bytes
    ) -> tuple[Endpoint, float | None]:
        current = self._current
        best = candidates[0]
        most = current.get(best.id, 0) + best.weight
        for endpoint in candidates[1:]:
            gained = current.get(endpoint.id, 0) + endpoint.weight
            if gained > most:
                best, most = endpoint, gained
        return best, float(most)

    def picked(self, endpoint: Endpoint, candidates: Sequence[Endpoint]) -> None:
        current = self._current
        self._current = {each.id: current.get(each.id, 0) + each.weight for each in candidates}
        self._current[endpoint.id] -= sum(each.weight for each in candidates)


class LeastConnections:
    """Fewest calls in flight; of equals the one least recently selected."""

    def choose(
        self, candidates: Sequence[Endpoint], *, now: float, key: bytes
    ) -> tuple[Endpoint, float | None]:
        best = min(candidates, key=lambda endpoint: (endpoint.in_flight, endpoint.last_selected))
        return best, float(best.in_flight)

    def picked(self, endpoint: Endpoint, candidates: Sequence[Endpoint]) -> None:
        """The endpoints count for themselves."""


class Random:
    """By chance in proportion to the weights."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        # Drawn ahead, so that a look does not change what comes next.
        self._next = random.random()

    def choose(
        self, candidates: Sequence[Endpoint], *, now: float, key: bytes
    ) -> tuple[Endpoint, float | None]:
        rest = self._next * sum(endpoint.weight for endpoint in candidates)
        for endpoint in candidates:
            rest -= endpoint.weight
            if rest < 0:
                return endpoint, None
        return candidates[-1], None

    def picked(self, endpoint: Endpoint, candidates: Sequence[Endpoint]) -> None:
        self._next = self._random.random()


class Priority:
    """The lowest number; equals share by round robin."""

    def __init__(self) -> None:
        self._equals = RoundRobin()

    def choose(
        self, candidates: Sequence[Endpoint], *, now: float, key: bytes
    ) -> tuple[Endpoint, float | None]:
        lowest = min(endpoint.priority for endpoint in candidates)
        equals = [endpoint for endpoint in candidates if endpoint.priority == lowest]
        return self._equals.choose(equals, now=now, key=key)[0], float(lowest)

    def picked(self, endpoint: Endpoint, candidates: Sequence[Endpoint]) -> None:
        self._equals.picked(endpoint, candidates)


class LeastLatency:
    """Calls in flight + 0.5 times the 95th percentile of recent answers in seconds.

    A member without recent answers scores the median of the others, so that it is neither flooded
    nor forgotten.
    """

    def choose(
        self, candidates: Sequence[Endpoint], *, now: float, key: bytes
    ) -> tuple[Endpoint, float | None]:
        measured = [endpoint.latencies.p95(now) for endpoint in candidates]
        known = [seconds for seconds in measured if seconds is not None]
        unknown = median(known) if known else 0.0
        scores = [
            endpoint.in_flight + _CALLS_A_SECOND * (unknown if seconds is None else seconds)
            for endpoint, seconds in zip(candidates, measured, strict=True)
        ]
        score = min(scores)
        return candidates[scores.index(score)], score

    def picked(self, endpoint: Endpoint, candidates: Sequence[Endpoint]) -> None:
        """The endpoints measure themselves."""


class ConsistentHash:
    """Rendezvous hashing: the endpoint whose hash with the key is the highest.

    When an endpoint goes, only its own keys move. Callers without a key share by round robin;
    hashing nothing would send them all to one endpoint.
    """

    def __init__(self) -> None:
        self._without_key = RoundRobin()

    def choose(
        self, candidates: Sequence[Endpoint], *, now: float, key: bytes
    ) -> tuple[Endpoint, float | None]:
        if not key:
            return self._without_key.choose(candidates, now=now, key=key)
        state = hashlib.blake2b(b"%d:%b" % (len(key), key), digest_size=8)

        def height(endpoint: Endpoint) -> bytes:
            own = state.copy()
            own.update(endpoint.id.encode())
            return own.digest()

        return max(candidates, key=height), None

    def picked(self, endpoint: Endpoint, candidates: Sequence[Endpoint]) -> None:
        self._without_key.picked(endpoint, candidates)


def strategy_named(name: str, random: random.Random) -> Strategy:
    """A fresh strategy by its name in the manifest. Raises `KeyError` for another name."""
    makers: dict[str, Callable[[], Strategy]] = {
        "RoundRobin": RoundRobin,
        "WeightedRoundRobin": WeightedRoundRobin,
        "LeastConnections": LeastConnections,
        "Random": lambda: Random(random),
        "Priority": Priority,
        "LeastLatency": LeastLatency,
        "ConsistentHash": ConsistentHash,
    }
    return makers[name]()
