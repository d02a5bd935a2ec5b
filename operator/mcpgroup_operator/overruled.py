"""What an apply does not bring because something changes it on its way into the API server.

A mutating webhook rounds requests of CPU up, for example, or has images come from a mirror. The
same manifest would end in the same object again: a write at each reconcile, for ever. So what was
left of a manifest after it was applied is not missed any more, until the manifest is another one,
something else is missing, or so much time has passed that the webhook may have gone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mcpgroup_operator.conditions import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcpgroup_operator.children import Desired
    from mcpgroup_operator.store import Key

_LOG: Final = logging.getLogger(__name__)

TRY_AGAIN_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class _Left:
    desired_hash: str
    paths: frozenset[str]
    until: float


class Overruled:
    """Of all groups; `clock` is monotonic. Holds only what was left of something."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left: dict[Key, dict[tuple[str, str], _Left]] = {}

    def note(self, key: Key, desired: Desired, left: Sequence[str]) -> None:
        """`desired` was applied; `left` are the paths that the answer lacks of it (`lacks`)."""
        place = (desired.kind.name, desired.name)
        of_group = self._left.setdefault(key, {})
        before = of_group.pop(place, None)
        if left:
            until = self._clock() + TRY_AGAIN_SECONDS
            of_group[place] = now = _Left(desired.hash, frozenset(left), until)
            if before is None or before.paths != now.paths:
                text = "%s/%s: something else decides of %s %s: %s"
                _LOG.warning(text, *key, *place, listed(left))
        if not of_group:
            del self._left[key]

    def explains(self, key: Key, desired: Desired, missing: Sequence[str]) -> bool:
        """Whether another apply would not bring any of `missing`."""
        left = self._left.get(key, {}).get((desired.kind.name, desired.name))
        return (
            left is not None
            and left.desired_hash == desired.hash
            and left.paths.issuperset(missing)
            and self._clock() < left.until
        )

    def forget(self, key: Key) -> None:
        """The group is gone."""
        self._left.pop(key, None)
