"""The series of groups: a dozen for each, so that with a thousand groups they are nearly all.

They are kept as the few numbers they are and written as text directly: by way of the library's
objects a scrape would hold up the loop, and the renewal of the lease with it, for half a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mcpgroup_operator.store import Key

_GAUGES: Final = (
    ("desired_replicas", "Gateway pods asked for."),
    ("ready_replicas", "Gateway pods that are ready."),
    ("config_generation", "Generation that stands in the configuration file."),
)
_CONDITION: Final = ("condition", "1: the condition is True, 0: False, -1: Unknown.")
_VALUES: Final = {"True": 1, "False": 0}


class _Series(NamedTuple):
    gauges: tuple[int | None, ...]
    """In the order of `_GAUGES`; None: not known."""
    conditions: tuple[tuple[str, int], ...]


class GroupMetrics:
    """What the statuses of groups say. Names and conditions need no escaping: they are names of
    Kubernetes objects, and words of ours."""

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix}group_"
        self._groups: dict[Key, _Series] = {}

    def set(
        self,
        key: Key,
        *,
        desired: int,
        ready: int,
        generation: int | None,
        conditions: Mapping[str, str],
    ) -> None:
        """Conditions have "True", "False" or "Unknown"."""
        said = tuple((name, _VALUES.get(status, -1)) for name, status in conditions.items())
        self._groups[key] = _Series((desired, ready, generation), said)

    def forget(self, key: Key) -> None:
        """The group is gone, and its series with it."""
        self._groups.pop(key, None)

    def exposition(self) -> str:
        """In the text format of Prometheus; all series of a name stand together."""
        return "".join(self._lines())

    def _lines(self) -> Iterator[str]:
        groups = [
            (f'group_namespace="{key.namespace}",group="{key.name}"', series)
            for key, series in self._groups.items()
        ]
        for index, (gauge, text) in enumerate(_GAUGES):
            name = self._prefix + gauge
            yield _head(name, text)
            for labels, series in groups:
                value = series.gauges[index]
                if value is not None:
                    yield f"{name}{{{labels}}} {value}\n"
        name = self._prefix + _CONDITION[0]
        yield _head(name, _CONDITION[1])
        for labels, series in groups:
            for condition, value in series.conditions:
                yield f'{name}{{{labels},condition="{condition}"}} {value}\n'


def _head(name: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} gauge\n"
