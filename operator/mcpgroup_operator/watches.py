"""Whether every watch still hears something.

kopf reconnects a watch that is silent, but it loses one for good when the server puts an error
into the stream or refuses a kind for longer than its retries last, and it tells nobody. What
passes through its HTTP session tells: each list, each watch, each piece of its stream.

Written by the loop that kopf runs in and read by ours; every value is replaced as a whole.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from mcpgroup_operator.kinds import GROUP, WATCHED, Kind
from mcpgroup_operator.names import GROUP_LABEL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from aiohttp import ClientRequest, ClientResponse

_PATH: Final = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)$"
)
_KINDS: Final = {(kind.group, kind.plural): kind for kind in WATCHED}
_ERROR: Final = b'"type":"ERROR"'
_EXPIRED: Final = b'"code":410'

UNANSWERED_SECONDS: Final = 15.0
"""kopf asks again within seconds, whatever happens: a watch that nobody has asked for during so
long has no task any more."""


class Watch(NamedTuple):
    """One kind in one namespace, or everywhere (None)."""

    kind: Kind
    namespace: str | None


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


@dataclass(slots=True)
class _State:
    heard: float
    """When something came last: a list, the head of a stream, an event, a bookmark."""
    open_streams: int = 0
    asked: float = 0.0
    """When kopf asked last, or its last stream ended."""
    fault: str = ""


class WatchMonitor:
    """`listed` is called, in kopf's loop, each time kopf has listed a kind anew."""

    def __init__(
        self,
        watches: Iterable[Watch],
        listed: Callable[[Watch], None],
        failed: Callable[[Watch], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._listed = listed
        self._failed = failed
        self._states = {watch: _State(clock(), asked=clock()) for watch in watches}

    def started(self) -> None:
        """kopf starts (anew): everything is given time again."""
        now = self._clock()
        for watch in self._states:
            self._states[watch] = _State(self._states[watch].heard, asked=now)

    def age(self, watch: Watch) -> float:
        """Seconds since something was heard on this watch."""
        return self._clock() - self._states[watch].heard

    def ages(self) -> dict[Watch, float]:
        """`age` of all."""
        return {watch: self.age(watch) for watch in self._states}

    def broken(self, silence_seconds: float) -> dict[Watch, str]:
        """Watches that will not come back by themselves, and why."""
        now = self._clock()
        found = {}
        for watch, state in self._states.items():
            if state.fault:
                found[watch] = state.fault
            elif not state.open_streams and now - state.asked > UNANSWERED_SECONDS:
                found[watch] = "its task ended"
            elif now - max(state.heard, state.asked) > silence_seconds:
                found[watch] = f"silent for {now - state.heard:.0f} s"
        return found

    def observed(self, request: ClientRequest, response: ClientResponse) -> None:
        """An answer to a request of kopf's has begun."""
        watch = self._watch(request.url.raw_path)
        if watch is None:
            return
        state = self._states[watch]
        state.asked = self._clock()
        if response.status >= 400:
            self._failed(watch)
            return
        state.heard = self._clock()
        if request.url.query.get("watch") == "true":
            # aiohttp has no hook for the pieces of a stream; kopf reads by `iter_chunked` alone.
            response.content = _Heard(response.content, self, state)  # type: ignore[assignment]
        elif "continue" not in request.url.query:
            self._listed(watch)

    def piece(self, state: Any, piece: bytes) -> None:
        """A part of a stream. An error in it ends the watch for good, but that its version is
        too old, after which kopf lists again."""
        state.heard = self._clock()
        if _ERROR in piece and _EXPIRED not in piece:
            state.fault = "the API server put an error into the stream"

    def stream_ended(self, state: Any) -> None:
        """Whatever the reason."""
        state.open_streams -= 1
        state.asked = self._clock()

    def _watch(self, path: str) -> Watch | None:
        matched = _PATH.match(path)
        if matched is None:
            return None
        kind = _KINDS.get((matched["group"] or "", matched["plural"]))
        namespace = unquote(matched["namespace"]) if matched["namespace"] else None
        watch = Watch(kind, namespace) if kind is not None else None
        return watch if watch in self._states else None


class _Heard:
    """The content of a watch, listened to on its way to kopf."""

    def __init__(self, content: Any, monitor: WatchMonitor, state: _State) -> None:
        self._content = content
        self._monitor = monitor
        self._state = state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        self._state.open_streams += 1
        try:
            async for piece in self._content.iter_chunked(size):
                self._monitor.piece(self._state, piece)
                yield piece
        finally:
            self._monitor.stream_ended(self._state)
