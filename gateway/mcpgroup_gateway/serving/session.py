"""One session of a client: its calls in flight, its streams, what waits for it.

A stream that has lost its connection is remembered: the stream of a POST as long as its call runs
and, with an answer that could not be written, until that was fetched or the bounds of
`serving.replay` force it out; any other one for a minute. A client that comes back with an id of a
forgotten POST stream is refused (400): its answer cannot come any more, and the SDKs take a few
refusals for the end of that request. One with an id of a forgotten GET stream gets a new stream:
the SDKs would give up listening for good.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from mcpgroup_gateway.serving.event_stream import EventId, EventStream
from mcpgroup_gateway.serving.replay import Replay
from mcpgroup_gateway.wire.envelope import encode_notification
from mcpgroup_gateway.wire.protocol import CAPABILITY_OF, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.members.upstream import ClientIdentity
    from mcpgroup_gateway.serving.event_stream import Reader
    from mcpgroup_gateway.serving.interface import Call
    from mcpgroup_gateway.serving.replay import ReplayBudget

logger = logging.getLogger(__name__)

#: So many URIs whose updates found no stream are kept for the next one.
PENDING_UPDATES: Final = 100
#: From this revision on a stream begins with an event without data that gives its id.
_PRIMING_VERSION: Final = "2025-11-25"

_LIST_CHANGED: Final = {
    capability: encode_notification(f"notifications/{capability}/list_changed")
    for capability in set(CAPABILITY_OF.values())
}


class ForgottenStream(Exception):
    """A client asks for events of a POST stream that are not remembered."""


class Post(Protocol):
    """A POST whose call is in flight."""

    @property
    def is_gone(self) -> bool:
        """True once the client has disconnected."""
        ...

    @property
    def gone_at(self) -> float:
        """The clock's time of the disconnect; meaningless before."""
        ...

    def push(self, message: bytes) -> bool:
        """Send a message on its stream, which begins with it if need be. Never waits.

        False when the client takes no events, has gone or lags.
        """
        ...


class Session:
    """One client session.

    `client` is what its `initialize` said of it; times are those of the table's monotonic clock.
    `calls` holds the calls in flight by raw id: real clients use an id twice at once, therefore
    lists. `posts` holds the POST of each call in flight. `streams` are those that a GET carries
    now, oldest first: GET streams, and POST streams whose client came back for them.
    """

    __slots__ = (
        "_budget",
        "_next_stream",
        "_on_close",
        "_pending",
        "_replay",
        "_seen",
        "_updated",
        "calls",
        "client",
        "closed",
        "id",
        "last_used",
        "log_level",
        "posts",
        "protocol_version",
        "streams",
    )

    def __init__(
        self,
        session_id: str,
        protocol_version: str,
        client: ClientIdentity,
        now: float,
        budget: ReplayBudget,
    ) -> None:
        self.id = session_id
        self.protocol_version = protocol_version
        self.client = client
        self.log_level: str | None = None
        self.calls: dict[bytes, list[Call]] = {}
        self.posts: list[Post] = []
        self.streams: list[EventStream] = []
        self.last_used = now
        self.closed = False
        self._seen = now  # when the client was last known to be connected
        self._budget = budget
        self._replay: Replay[EventStream] | None = None
        self._next_stream = 1
        self._pending: dict[str, bytes] | None = None  # list_changed by capability
        self._updated: dict[str, bytes] | None = None  # updated by URI
        self._on_close: list[Callable[[], None]] | None = None

    @property
    def in_flight(self) -> int:
        return len(self.posts)

    @property
    def is_idle(self) -> bool:
        return not self.posts and not self.streams

    @property
    def is_primed(self) -> bool:
        """Whether the client understands events without data at the beginning of a stream."""
        return self.protocol_version >= _PRIMING_VERSION

    # -- calls and whether their client is there -------------------------------------------

    def used(self, now: float) -> None:
        """A request of the client has come."""
        self.last_used = self._seen = now

    def call_began(self, raw_id: bytes, call: Call, post: Post) -> None:
        self.posts.append(post)
        same = self.calls.get(raw_id)
        if same is None:
            self.calls[raw_id] = [call]
        else:
            same.append(call)

    def call_ended(self, raw_id: bytes, call: Call, post: Post, now: float) -> None:
        self.posts.remove(post)
        self.last_used = now
        self._seen = max(self._seen, post.gone_at) if post.is_gone else now
        same = self.calls[raw_id]
        if len(same) == 1:
            del self.calls[raw_id]
        else:
            same.remove(call)

    @property
    def attached(self) -> bool:
        """A connection of the client is open: a POST in flight, or a GET."""
        return bool(self.streams) or not all(post.is_gone for post in self.posts)

    @property
    def detached_since(self) -> float | None:
        """The clock's time when the last connection was lost or served; None while `attached`."""
        if self.attached:
            return None
        return max([self._seen, *(post.gone_at for post in self.posts)])

    # -- streams ---------------------------------------------------------------------------

    def open_stream(self, reader: Reader) -> EventStream:
        """A new GET stream for `reader`; what found none open waits in it already."""
        stream = self._new_stream("g")
        self._attach(stream, reader, 0)
        return stream

    def open_post_stream(self, reader: Reader) -> EventStream:
        """The stream of a POST begins, carried by the POST itself."""
        stream = self._new_stream("p")
        stream.attach(reader)
        return stream

    def resume_stream(self, last_event_id: str, reader: Reader) -> EventStream | None:
        """The stream of which a client saw an event last; `reader` gets what followed.

        The connection that carried it before is cut. None when the client has seen all of it, a
        new GET stream for what was never an id of ours. Raises `ForgottenStream`.
        """
        wanted = EventId.parse(last_event_id)
        if wanted is None:
            return self.open_stream(reader)
        stream = None if self._replay is None else self._replay.logs.get(wanted.stream)
        if stream is None or wanted.number > stream.last or (stream.ended and stream.is_of_get):
            if wanted.is_of_post:
                raise ForgottenStream
            return self.open_stream(reader)
        if stream.ended and not stream.after(wanted.number):
            if wanted.number == stream.last:
                return None
            raise ForgottenStream
        self._attach(stream, reader, wanted.number)
        return stream

    def leave_stream(
        self, stream: EventStream, reader: Reader, now: float, *, delivered: bool = False
    ) -> None:
        """`reader` carries the stream no longer; `delivered` when it was sent to its end.

        Changes nothing after another connection took the stream over.
        """
        if stream.reader is not reader:
            return
        stream.detach(reader)
        if stream in self.streams:
            self.streams.remove(stream)
            self.last_used = self._seen = now
        if self._replay is None or not stream.remembered:
            return
        if stream.is_of_get and (stream.ended or not len(stream)):
            stream.forget()
        elif delivered or stream.is_of_get:
            self._replay.retire(stream, now)

    def end_stream(self, stream: EventStream, message: bytes | None, now: float) -> None:
        """The call of a POST stream is over; `message` is what the client gets last, if anything.

        What nobody carries waits for the client, unless there is nothing to wait for.
        """
        stream.end(message)
        if stream.reader is None and not len(stream) and self._replay is not None:
            self._replay.retire(stream, now)

    def end_streams(self) -> None:
        """End the GET streams; POST streams go on until their answers."""
        for stream in self.streams:
            if stream.is_of_get:
                stream.end()

    def _new_stream(self, kind: str) -> EventStream:
        name = f"{kind}{self._next_stream}"
        self._next_stream += 1
        if self.closed:
            stream = EventStream(name)
            stream.end()
            return stream
        if self._replay is None:
            self._replay = Replay(self._budget)
        stream = self._replay.logs[name] = EventStream(name, self._replay)
        return stream

    def _attach(self, stream: EventStream, reader: Reader, after: int) -> None:
        if self._replay is not None:
            self._replay.keep(stream)
        stream.attach(reader, after)
        if stream in self.streams:
            self.streams.remove(stream)
        self.streams.append(stream)
        if stream.is_of_get:
            waiting = (*(self._pending or {}).values(), *(self._updated or {}).values())
            self._pending = self._updated = None
            for message in waiting:
                stream.push(message)

    # -- messages that belong to no call ---------------------------------------------------

    def push(self, message: bytes) -> bool:
        """Give a message that belongs to no call to the newest live GET stream.

        False when no stream takes it; then it is dropped.
        """
        return any(stream.push(message) for stream in reversed(self.streams) if stream.is_of_get)

    def push_request(self, message: bytes) -> bool:
        """Give a request of a member that belongs to no call to the client.

        It goes to the newest live GET stream, else to the newest POST that takes events; False
        when there is none.
        """
        return self.push(message) or any(post.push(message) for post in reversed(self.posts))

    def notify_list_changed(self, kind: Kind) -> None:
        """Tell the client that a list changed, at the latest when it opens a GET stream."""
        capability = CAPABILITY_OF[kind]
        message = _LIST_CHANGED[capability]
        if not self.push(message) and not self.closed:
            if self._pending is None:
                self._pending = {}
            self._pending[capability] = message

    def notify_updated(self, uri: str, message: bytes) -> None:
        """Tell the client that a resource changed, at the latest when it opens a GET stream.

        One message for a URI is kept until then; of too many URIs the oldest goes.
        """
        if self.push(message) or self.closed:
            return
        if self._updated is None:
            self._updated = {}
        self._updated.pop(uri, None)
        self._updated[uri] = message
        if len(self._updated) > PENDING_UPDATES:
            del self._updated[next(iter(self._updated))]

    # -- the end ---------------------------------------------------------------------------

    def on_close(self, callback: Callable[[], None]) -> None:
        """Run `callback` once when the session ends; at once when it has ended."""
        if self.closed:
            callback()
        elif self._on_close is None:
            self._on_close = [callback]
        else:
            self._on_close.append(callback)

    def close(self, reason: str) -> None:
        """Cancel its calls, end its streams, run the callbacks. Once only."""
        if self.closed:
            return
        self.closed = True
        for calls in list(self.calls.values()):
            for call in list(calls):
                call.cancel(reason)
        for stream in self.streams:
            stream.end()
        if self._replay is not None:
            self._replay.clear()
            self._replay = None
        self._pending = self._updated = None
        callbacks, self._on_close = self._on_close, None
        for callback in callbacks or ():
            try:
                callback()
            except Exception:  # the others must run as well
                logger.exception("a session's close callback failed")
