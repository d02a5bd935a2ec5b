"""What was sent to a client in events and may have to be sent again.

    EventLog       one stream: numbers its events and keeps the last ones
    Replay         the logs of one session, within the bound of a session
    ReplayBudget   all sessions of the replica, within one bound; forgets what was kept long enough

Over a bound the oldest notification goes first, the oldest answer or request of a member last: a
client can do without a notification. The newest event always stays.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from mcpgroup_gateway.wire.sse import encode_event

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What one session may keep.
SESSION_EVENTS: Final = 256
SESSION_BYTES: Final = 1 << 20
#: What all sessions of a replica may keep.
BUDGET_EVENTS: Final = 65_536
BUDGET_BYTES: Final = 64 << 20
#: How long a stream is remembered that ended or was left after all of it had been written. The last
#: bytes may be lost with a connection nevertheless; a client is back within a few seconds.
REMEMBERED_SECONDS: Final = 60.0
#: What an event costs besides its bytes, roughly.
_OVERHEAD: Final = 400


class Event:
    """One event as it was sent. `kept` marks what goes last."""

    __slots__ = ("data", "kept", "log", "number")

    def __init__(self, log: EventLog, number: int, data: bytes, *, kept: bool) -> None:
        self.log = log
        self.number = number
        self.data = data
        self.kept = kept

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return len(self.data) + _OVERHEAD


class Shelf:
    """Events by age, within a number and a size in bytes of memory."""

    __slots__ = ("_kept", "_loose", "max_bytes", "max_events", "size")

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self.max_events = max_events
        self.max_bytes = max_bytes
        self.size = 0
        self._loose: OrderedDict[Event, None] = OrderedDict()
        self._kept: OrderedDict[Event, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._loose) + len(self._kept)

    def add(self, event: Event) -> None:
        (self._kept if event.kept else self._loose)[event] = None
        self.size += event.size

    def remove(self, event: Event) -> None:
        del (self._kept if event.kept else self._loose)[event]
        self.size -= event.size

    def surplus(self) -> Iterator[Event]:
        """What has to go; each must be removed before the next is asked for."""
        while len(self) > 1 and (len(self) > self.max_events or self.size > self.max_bytes):
            yield next(iter(self._loose or self._kept))


class Keeper(Protocol):
    """Keeps the events of a log; see `Replay`."""

    def add(self, event: Event) -> None: ...

    def remove(self, event: Event) -> None: ...

    def forgotten(self, log: EventLog) -> None: ...


class EventLog:
    """The events of one stream; `name` tells it from the other streams of its session.

    Events are numbered from 1, the id of the n-th is ``<name>-<n>``. `ended` says that none follow.
    """

    __slots__ = ("_events", "_replay", "ended", "last", "name")

    def __init__(self, name: str, replay: Keeper | None) -> None:
        self.name = name
        self.last = 0
        self.ended = False
        self._replay = replay
        self._events: dict[int, Event] = {}

    def __len__(self) -> int:
        return len(self._events)

    @property
    def remembered(self) -> bool:
        """False once nothing of it can be sent again."""
        return self._replay is not None

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return sum(event.size for event in self._events.values())

    def event_id(self, number: int) -> bytes:
        return b"%b-%d" % (self.name.encode(), number)

    def append(self, message: bytes, *, kept: bool) -> bytes:
        """The next event, around one JSON-RPC message, as the bytes to send."""
        self.last += 1
        data = encode_event(message, self.event_id(self.last))
        if self._replay is not None:
            event = self._events[self.last] = Event(self, self.last, data, kept=kept)
            self._replay.add(event)
        return data

    def after(self, number: int) -> list[bytes]:
        """The events behind `number` that are still there, oldest first."""
        return [event.data for event in self._events.values() if event.number > number]

    def drop(self, event: Event) -> None:
        """Forget one event, and with the last one a stream that has ended."""
        del self._events[event.number]
        if self._replay is not None:
            self._replay.remove(event)
            if self.ended and not self._events:
                self.forget()

    def trim(self, max_bytes: int) -> None:
        """Forget the oldest events until no more than `max_bytes` are left."""
        left = self.size
        for event in list(self._events.values()):
            if left <= max_bytes:
                return
            left -= event.size
            self.drop(event)

    def forget(self) -> None:
        """Nothing of the stream can be sent again from now on."""
        replay, self._replay = self._replay, None
        if replay is None:
            return
        for event in self._events.values():
            replay.remove(event)
        self._events.clear()
        replay.forgotten(self)


L = TypeVar("L", bound=EventLog)


class Replay(Generic[L]):
    """The logs of one session by name."""

    __slots__ = ("_budget", "_shelf", "logs")

    def __init__(
        self,
        budget: ReplayBudget,
        max_events: int = SESSION_EVENTS,
        max_bytes: int = SESSION_BYTES,
    ) -> None:
        self.logs: dict[str, L] = {}
        self._budget = budget
        self._shelf = Shelf(max_events, max_bytes)

    def __len__(self) -> int:
        return len(self._shelf)

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self._shelf.size

    def add(self, event: Event) -> None:
        self._shelf.add(event)
        self._budget.add(event)
        for old in self._shelf.surplus():
            old.log.drop(old)
        for old in self._budget.surplus():
            old.log.drop(old)

    def remove(self, event: Event) -> None:
        self._shelf.remove(event)
        self._budget.remove(event)

    def forgotten(self, log: EventLog) -> None:
        self.logs.pop(log.name, None)
        self._budget.keep(log)

    def retire(self, log: L, now: float) -> None:
        """Forget `log` after a while: all of it was written."""
        log.trim(SESSION_BYTES)
        if log.remembered:
            self._budget.retire(log, now)

    def keep(self, log: L) -> None:
        """Take `retire` back."""
        self._budget.keep(log)

    def clear(self) -> None:
        for log in list(self.logs.values()):
            log.forget()


class ReplayBudget(Shelf):
    """What all sessions keep; `len` and `size` (bytes of memory) are the totals."""

    __slots__ = ("_retired",)

    def __init__(self, max_events: int = BUDGET_EVENTS, max_bytes: int = BUDGET_BYTES) -> None:
        super().__init__(max_events, max_bytes)
        self._retired: OrderedDict[EventLog, float] = OrderedDict()  # until when, in that order

    def retire(self, log: EventLog, now: float) -> None:
        self._retired.pop(log, None)
        self._retired[log] = now + REMEMBERED_SECONDS

    def keep(self, log: EventLog) -> None:
        self._retired.pop(log, None)

    def expire(self, now: float) -> None:
        """Forget the logs whose time is over; `now` is the clock of `retire`."""
        while self._retired:
            log = next(iter(self._retired))
            if self._retired[log] > now:
                return
            log.forget()
