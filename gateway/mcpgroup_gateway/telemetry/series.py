"""Counters and histograms whose set of series is fixed by vocabularies, never by their callers.

The values are plain numbers in one dict a family, keyed by label values: an increment is one
look-up and one addition (about 0.2 µs; `labels().inc()` of prometheus_client costs six times that).
That needs no lock, because a replica counts and is scraped on one event loop.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import product
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.core import Metric

OTHER: Final = "_other"
#: Longer values are counted under `_other`; MCP recommends at most 128 characters for tool names.
MAX_LABEL_CHARACTERS: Final = 128


class Vocabulary:
    """The values that one label may take.

    `other` stands for every value that is not a word: a name, or None when such counts are dropped
    (those of a member that was removed a moment ago).
    """

    __slots__ = ("other", "words")

    def __init__(self, words: Iterable[str] = (), *, other: str | None = OTHER) -> None:
        self.other = other
        self.words: dict[str, None] = dict.fromkeys(words)

    def replace(self, words: Iterable[str]) -> None:
        """Take new words; the families that use them must `synchronize` afterwards."""
        self.words = dict.fromkeys(words)

    def may_be(self, word: str) -> bool:
        return word in self.words or word == self.other

    def resolve(self, word: str) -> str | None:
        return word if word in self.words else self.other


class _Family:
    __slots__ = ("_domain", "_group", "_labels", "_name", "_text")

    def __init__(
        self, group: str, name: str, text: str, domain: Mapping[str, Vocabulary] | None = None
    ) -> None:
        self._group = group
        self._name = name
        self._text = text
        self._labels = tuple(domain or ())
        self._domain = tuple((domain or {}).values())

    def _keys(self) -> Iterable[tuple[str, ...]]:
        return product(*(vocabulary.words for vocabulary in self._domain))

    def _is_allowed(self, key: tuple[str, ...]) -> bool:
        return all(v.may_be(word) for v, word in zip(self._domain, key, strict=True))

    def _resolve(self, key: tuple[str, ...]) -> tuple[str, ...] | None:
        resolved = []
        for vocabulary, word in zip(self._domain, key, strict=True):
            allowed = vocabulary.resolve(word)
            if allowed is None:
                return None
            resolved.append(allowed)
        return tuple(resolved)


class Counts(_Family):
    """A counter family. Every combination of its words exists at 0 from the start."""

    __slots__ = ("_values",)

    def __init__(
        self, group: str, name: str, text: str, domain: Mapping[str, Vocabulary] | None = None
    ) -> None:
        super().__init__(group, name, text, domain)
        self._values: dict[tuple[str, ...], float] = {}
        self.synchronize()

    def add(self, *key: str) -> None:
        """Count one event; `key` is the label values in the order of the domain."""
        values = self._values
        if key in values:
            values[key] += 1.0
        elif (known := self._resolve(key)) is not None:
            values[known] = values.get(known, 0.0) + 1.0

    def synchronize(self) -> None:
        """Follow the vocabularies: new series at 0, series of words that are gone vanish."""
        old = self._values
        self._values = dict.fromkeys(self._keys(), 0.0)
        self._values.update((key, value) for key, value in old.items() if self._is_allowed(key))

    def collect(self) -> Metric:
        family = CounterMetricFamily(self._name, self._text, labels=("group", *self._labels))
        for key, value in self._values.items():
            family.add_metric((self._group, *key), value)
        return family


class Durations(_Family):
    """A histogram family of seconds with fixed upper bounds."""

    __slots__ = ("_bounds", "_names", "_values")

    def __init__(
        self,
        group: str,
        name: str,
        text: str,
        bounds: tuple[float, ...],
        domain: Mapping[str, Vocabulary] | None = None,
    ) -> None:
        super().__init__(group, name, text, domain)
        self._bounds = bounds
        self._names = (*(str(bound) for bound in bounds), "+Inf")
        #: Per series the observations in each bucket (not cumulative), then their sum.
        self._values: dict[tuple[str, ...], list[float]] = {}
        self.synchronize()

    def observe(self, seconds: float, *key: str) -> None:
        row = self._values.get(key)
        if row is None:
            known = self._resolve(key)
            if known is None:
                return
            row = self._values.setdefault(known, self._empty())
        row[bisect_left(self._bounds, seconds)] += 1.0
        row[-1] += seconds

    def _empty(self) -> list[float]:
        return [0.0] * (len(self._bounds) + 2)

    def synchronize(self) -> None:
        old = self._values
        self._values = {key: self._empty() for key in self._keys()}
        self._values.update((key, row) for key, row in old.items() if self._is_allowed(key))

    def collect(self) -> Metric:
        family = HistogramMetricFamily(self._name, self._text, labels=("group", *self._labels))
        for key, row in self._values.items():
            buckets = []
            seen = 0.0
            for name, count in zip(self._names, row, strict=False):
                seen += count
                buckets.append((name, seen))
            family.add_metric((self._group, *key), buckets, row[-1])
        return family


def is_fit_for_a_label(value: str) -> bool:
    """False for names that would break an exposition or a time series database.

    A name from a member's catalogue may hold lone surrogates, which UTF-8 cannot carry.
    """
    if not value or len(value) > MAX_LABEL_CHARACTERS:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
