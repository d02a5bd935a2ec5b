"""A scripted member that speaks the old HTTP+SSE transport, for `tests.servers.raw_http`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tests.servers.raw_http import Handler, Peer, Request, chunk, event, response, result
from tests.servers.raw_http import stream_head as head

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Script = Callable[[Request, "OldStream"], Awaitable[None]]

ACCEPTED = response(b"Accepted", status=202, content_type="text/plain")


class OldStream:
    """The stream of one session."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def write(self, data: bytes) -> None:
        """Bytes, as a chunk; of no data it is the last one."""
        await self.peer.send(chunk(data))

    async def cut(self) -> None:
        """End the connection, and wait until the client has noticed."""
        if not self.peer.gone.is_set():
            self.peer.writer.write_eof()
            await self.peer.gone.wait()

    async def say(self, message: bytes) -> None:
        await self.write(event(message))


class OldMember:
    """A handler for `RawServer`. GET opens a stream, POST is accepted and answered there.

    `{number}` in the endpoint counts the streams; what is posted there is answered on that stream.
    A test scripts what is said for a JSON-RPC method with `on`, and what a POST of the method or a
    GET is answered with `post` and `get`. A method without a script has the empty result. POST to
    `/sse` is refused, as servers do.
    """

    def __init__(
        self, endpoint: str = "/messages?id={number}", *, version: str = "2024-11-05"
    ) -> None:
        self.endpoint = endpoint
        self.version = version
        self.streams: list[OldStream] = []
        self._scripts: dict[str, Script] = {}
        self._posts: dict[str, Handler] = {}
        self._get: Handler | None = None

    def on(self, method: str, script: Script) -> Self:
        self._scripts[method] = script
        return self

    def post(self, method: str, handler: Handler) -> Self:
        self._posts[method] = handler
        return self

    def get(self, handler: Handler) -> Self:
        self._get = handler
        return self

    async def open_stream(self, peer: Peer) -> None:
        stream = OldStream(peer)
        self.streams.append(stream)
        endpoint = self.endpoint.replace("{number}", str(len(self.streams) - 1))
        await peer.send(head())
        await stream.write(b"event: endpoint\ndata: " + endpoint.encode() + b"\n\n")

    async def __call__(self, request: Request, peer: Peer) -> None:
        if request.method == "GET":
            await (self._get(request, peer) if self._get else self.open_stream(peer))
            return
        if request.target == "/sse":
            await peer.send(response(status=405))
            return
        handler = self._posts.get(request.rpc_method)
        if handler is not None:
            await handler(request, peer)
            return
        await peer.send(ACCEPTED)
        stream = self.stream_of(request)
        script = self._scripts.get(request.rpc_method)
        if script is not None:
            await script(request, stream)
        elif request.rpc_method == "initialize":
            await stream.say(result(request, self.greeting))
        elif request.id is not None and request.rpc_method:
            await stream.say(result(request, {}))

    def stream_of(self, request: Request) -> OldStream:
        number = request.target.rpartition("?id=")[2]
        return self.streams[int(number) if number.isdigit() else -1]

    @property
    def greeting(self) -> dict[str, Any]:
        return {
            "protocolVersion": self.version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        }
