"""One numbered event stream of a client session, and the connection that carries it.

A stream outlives its connection: the client comes back for it with the last id that it saw. What
waits for the connection is bounded: a message for no call is refused, the sender of a call waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from mcpgroup_gateway.serving.replay import EventLog
from mcpgroup_gateway.wire.sse import encode_priming

if TYPE_CHECKING:
    from mcpgroup_gateway.serving.replay import Keeper

#: What may wait in one stream for a client that reads slowly.
STREAM_MESSAGES: Final = 256
STREAM_BYTES: Final = 1 << 20
#: Above so many waiting bytes those who send for a call wait.
_FULL_BYTES: Final = 1 << 16
#: How long a client is asked to wait before it comes back for a stream (milliseconds).
RETRY_MILLISECONDS: Final = 1000

#: How `wire.envelope` begins requests and responses: notifications have no id.
_HAS_ID: Final = b'{"jsonrpc":"2.0","id":'


def is_essential(message: bytes) -> bool:
    """True for a request or a response, which a client cannot do without."""
    return message.startswith(_HAS_ID)


class Reader(Protocol):
    """A connection that carries a stream."""

    def cut(self) -> None:
        """Another connection has taken the stream over: end this one. Never blocks."""
        ...


class EventId(NamedTuple):
    """``<stream>-<n>``: the name of a stream begins with g (GET) or p (POST)."""

    stream: str
    number: int

    @property
    def is_of_post(self) -> bool:
        return self.stream.startswith("p")

    @classmethod
    def parse(cls, text: str) -> EventId | None:
        """None for what we never sent."""
        stream, _, number = text.strip().rpartition("-")
        kind, digits = stream[:1], stream[1:]
        if kind not in ("g", "p") or not (_is_number(digits) and _is_number(number)):
            return None
        return cls(stream, int(number))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


class EventStream(EventLog):
    """`name` is that of an `EventId`. At most one `Reader` is attached at a time.

    Of a GET stream `ended` says that it was closed, of a POST stream that its answer was given.
    """

    __slots__ = ("_queue", "_queued", "_reader", "_room", "_start", "_waiter")

    def __init__(self, name: str, replay: Keeper | None = None) -> None:
        super().__init__(name, replay)
        self._reader: Reader | None = None
        self._start = 0
        self._queue: list[bytes] = []
        self._queued = 0
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Event | None = None

    @property
    def is_of_get(self) -> bool:
        return self.name.startswith("g")

    @property
    def reader(self) -> Reader | None:
        return self._reader

    @property
    def lags(self) -> bool:
        """Something waits for the connection."""
        return bool(self._queue)

    def attach(self, reader: Reader, after: int = 0) -> None:
        """Let `reader` carry the stream behind the event `after`; another one is cut."""
        old, self._reader = self._reader, reader
        self._start = after
        self._queue = self.after(after)
        self._queued = sum(map(len, self._queue))
        self._wake()
        if old is not None:
            old.cut()

    def detach(self, reader: Reader) -> None:
        """`reader` is gone; nobody waits for it any longer."""
        if self._reader is reader:
            self._reader = None
            self._queue = []
            self._made_room()
            self._wake()

    def priming(self) -> bytes:
        """The event that tells a client where it stands before there is a message."""
        return encode_priming(self.event_id(self._start), RETRY_MILLISECONDS)

    def push(self, message: bytes) -> bool:
        """Send one message; False when the stream has no connection, has ended or lags."""
        if self.ended or self._reader is None:
            return False
        if self._queue and (
            len(self._queue) >= STREAM_MESSAGES or self._queued + len(message) > STREAM_BYTES
        ):
            return False
        self.put(message)
        return True

    def put(self, message: bytes) -> None:
        """Send one message whatever waits already; `room` is how a sender keeps within bounds."""
        if self.ended:
            return
        data = self.append(message, kept=is_essential(message))
        if self._reader is not None:
            self._queue.append(data)
            self._queued += len(data)
            self._wake()

    async def room(self) -> None:
        """Wait while much is queued for a connection that is there."""
        while self._queued > _FULL_BYTES and self._reader is not None:
            if self._room is None:
                self._room = asyncio.Event()
            await self._room.wait()

    def take(self) -> list[bytes]:
        """The events that wait, now."""
        events, self._queue = self._queue, []
        self._made_room()
        return events

    async def next(self, reader: Reader) -> list[bytes] | None:
        """The events that wait, at least one; None once there is nothing more for `reader`."""
        while self._reader is reader:
            if self._queue:
                return self.take()
            if self.ended:
                return None
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            try:
                await waiter
            finally:
                if self._waiter is waiter:
                    self._waiter = None
        return None

    def end(self, message: bytes | None = None) -> None:
        """Nothing follows `message`, the last one if there is any. Again changes nothing."""
        if message is not None:
            self.put(message)
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _made_room(self) -> None:
        self._queued = 0
        room, self._room = self._room, None
        if room is not None:
            room.set()
