"""Whether every watch still hears something.

Everything that passes between kopf and the API server is told here (`traffic`): what is asked, what
fails, each piece of a stream. Written by the loop that kopf runs in and read by ours; every value
is replaced as a whole.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from mcpgroup_operator.kinds import GROUP, WATCHED, Kind
from mcpgroup_operator.names import GROUP_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

UNANSWERED_SECONDS: Final = 15.0
"""kopf asks again at once, whatever happens: a watch that nobody has asked for during so long has
no task any more."""


class Watch(NamedTuple):
    """One kind in one namespace, or everywhere (None)."""

    kind: Kind
    namespace: str | None

    def __str__(self) -> str:
        return f"watch of {self.kind.resource} in {self.namespace or 'all namespaces'}"


@dataclass(frozen=True, slots=True)
class Scope:
    """`namespaces` empty: everywhere. `group_selector` limits which groups are served."""

    namespaces: tuple[str, ...]
    group_selector: str

    def watches(self) -> list[Watch]:
        """Everything that is listed and watched."""
        return [Watch(kind, place) for kind in WATCHED for place in self.namespaces or (None,)]

    def label_selector(self, kind: Kind) -> str:
        """What of a kind is ours to see."""
        return self.group_selector if kind is GROUP else GROUP_LABEL


class WatchListener(Protocol):
    """Told, in kopf's loop, what happens to watches."""

    def listed(self, watch: Watch) -> None:
        """kopf takes note of everything from now on: what was before is to be listed."""

    def failed(self, watch: Watch) -> None:
        """A list or a watch was refused or not answered."""

    def restarted(self, watch: Watch) -> None:
        """A stream broke off, or was given up because it was silent."""


@dataclass(slots=True)
class WatchState:
    """Times are of a monotonic clock."""

    heard: float
    """When something came last: the head of a list or stream, an event, a bookmark."""
    asked: float
    """When a request was last sent, or ended, well or not."""
    refused: float
    """When the API server last said no: that is no silence."""
    requests: int = 0
    """How many are under way, waiting for their time included, and how many streams are open."""


class WatchMonitor:
    """Ages of watches, and which of them nobody asks for any more."""

    def __init__(
        self, watches: Iterable[Watch], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._states = {watch: WatchState(clock(), clock(), clock()) for watch in watches}

    def __contains__(self, watch: object) -> bool:
        return watch in self._states

    def started(self) -> None:
        """kopf starts (anew): everything is given time again."""
        now = self._clock()
        for watch in self._states:
            before = self._states[watch]
            self._states[watch] = WatchState(before.heard, now, before.refused)

    def age(self, watch: Watch) -> float:
        """Seconds since something was heard on this watch."""
        return self._clock() - self._states[watch].heard

    def ages(self) -> dict[Watch, float]:
        """`age` of all."""
        return {watch: self.age(watch) for watch in self._states}

    def deaf(self, seconds: float) -> list[Watch]:
        """Watches to which nobody has said anything for so long, not even no."""
        now = self._clock()
        return [
            watch
            for watch, state in self._states.items()
            if now - max(state.heard, state.refused) > seconds
        ]

    def lost(self, silence_seconds: float) -> dict[Watch, str]:
        """Watches that will not come back by themselves, and why."""
        now = self._clock()
        found = {}
        for watch, state in self._states.items():
            if not state.requests and now - state.asked > UNANSWERED_SECONDS:
                found[watch] = "its task ended"
            elif now - max(state.heard, state.asked) > silence_seconds:
                found[watch] = f"silent for {now - state.heard:.0f} s"
        return found

    # --- told by the traffic

    def begin(self, watch: Watch) -> WatchState:
        """A request begins; what it returns is for `end`, once."""
        state = self._states[watch]
        state.requests += 1
        state.asked = self._clock()
        return state

    def sent(self, watch: Watch) -> None:
        """It is sent now, perhaps after a pause."""
        self._states[watch].asked = self._clock()

    def hear(self, watch: Watch) -> None:
        """Something came."""
        self._states[watch].heard = self._clock()

    def refuse(self, watch: Watch) -> None:
        """The API server answered, and the answer was no."""
        self._states[watch].refused = self._clock()

    def end(self, begun: WatchState) -> None:
        """A request, and the stream that it opened, ended. One of an earlier kopf does not
        matter."""
        begun.requests -= 1
        begun.asked = self._clock()
