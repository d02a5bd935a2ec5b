"""Streamable HTTP for the faulty server, on the standard library's threaded HTTP server."""

from __future__ import annotations

import contextlib
import sys
import threading
import uuid
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING

from tests.servers.faulty_json import dump, members, splice
from tests.servers.faulty_server import VERSIONS, CallFailed
from tests.servers.faulty_tools import Session

if TYPE_CHECKING:
    from tests.servers.faulty_server import Server

_COMMENT_SECONDS = 1.0


class HttpSession(Session):
    """A session with the messages that wait for its GET stream."""

    def __init__(self) -> None:
        super().__init__(self.push)
        self.waiting: deque[str] = deque(maxlen=100)
        self.changed = threading.Condition()
        self.closed = False
        self.streams: dict[str, Collected] = {}

    def push(self, text: str) -> None:
        with self.changed:
            self.waiting.append(text)
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()


class Collected:
    """Keeps the messages of one request."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers
        self.messages: list[str] = []
        self.finished = threading.Event()

    def send(self, text: str) -> None:
        self.messages.append(text)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65536
    server: FaultyHttpServer

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.mcp.knobs.keep_alive_seconds or None)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
        pass

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        mcp = self.server.mcp
        mcp.knobs.refresh()
        try:
            message = members(text)
        except ValueError:
            self._error(400, -32700, "Parse error")
            return
        method = message.get("method", "null")
        session = self._session(opening=method == '"initialize"')
        if session is None:
            return
        version = self.headers.get("MCP-Protocol-Version")
        if version is not None and version not in VERSIONS:
            self._error(400, -32000, f"Bad Request: Unsupported protocol version: {version}")
            return
        with mcp.turn if mcp.knobs.single_threaded else contextlib.nullcontext():
            if "id" not in message or "method" not in message:
                mcp.handle(text, session, Collected({}))
                self._reply(202, b"")
            else:
                self._request(text, session)

    def _request(self, text: str, session: HttpSession) -> None:
        mcp = self.server.mcp
        mcp.announce(text, session)
        with mcp.turn:
            pass  # `busy` lets nothing begin
        try:
            if mcp.knobs.resume:
                self._broken_stream(text, session)
            elif mcp.knobs.sse:
                self._stream(text, session)
            else:
                collected = Collected(dict(self.headers.items()))
                mcp.handle(text, session, collected)
                self._answer(text, collected)
        except CallFailed:
            self._reply(mcp.knobs.call_status or 500, b"no", "text/plain")

    def _answer(self, text: str, collected: Collected) -> None:
        """JSON holds the answer only: what came before it has nowhere to go."""
        mark = splice(jsonrpc='"2.0"', id=members(text)["id"])[:-1] + ","
        answers = [found for found in collected.messages if found.startswith(mark)]
        if answers:
            self._reply(200, answers[-1].encode())
        else:  # cancelled or silent: there will be no answer
            self.close_connection = True

    def _stream(self, text: str, session: HttpSession) -> None:
        stream = Events(self)
        try:
            self.server.mcp.handle(text, session, stream)
        except CallFailed:
            if stream.open:  # too late for a status
                self.close_connection = True
                return
            raise
        if stream.open:
            stream.end()
        else:
            self.close_connection = True

    def _broken_stream(self, text: str, session: HttpSession) -> None:
        """Send one event id, break off, and keep the messages for `Last-Event-ID`."""
        name = uuid.uuid4().hex
        collected = session.streams[name] = Collected(dict(self.headers.items()))

        def work() -> None:
            with contextlib.suppress(CallFailed):
                self.server.mcp.handle(text, session, collected)
            collected.finished.set()

        threading.Thread(target=work, daemon=True).start()
        stream = Events(self)
        stream.write(f"id: {name}-0\nretry: 100\ndata: \n\n")
        self.close_connection = True

    def do_GET(self) -> None:
        if self.server.mcp.knobs.no_get:
            self._error(405, -32000, "Method not allowed")
            return
        session = self._session(opening=False)
        if session is None:
            return
        stream = Events(self)
        name, _, seen = self.headers.get("Last-Event-ID", "").rpartition("-")
        collected = session.streams.get(name)
        if collected is not None:
            collected.finished.wait()
            for number, message in enumerate(collected.messages, 1):
                if number > int(seen):
                    stream.write(f"id: {name}-{number}\ndata: {message}\n\n")
            stream.end()
            return
        stream.write(": open\n\n")
        while True:
            with session.changed:
                session.changed.wait_for(
                    lambda: session.waiting or session.closed, _COMMENT_SECONDS
                )
                messages = list(session.waiting)
                session.waiting.clear()
                if session.closed:
                    break
            for message in messages:
                stream.send(message)
            if not messages:
                stream.write(": still here\n\n")  # notices that the client has gone
        stream.end()

    def do_DELETE(self) -> None:
        session = self._session(opening=False)
        if session is not None:
            self.server.sessions.pop(self.headers.get("Mcp-Session-Id", ""), None)
            session.close()
            self._reply(200, b"")

    def _session(self, *, opening: bool) -> HttpSession | None:
        """The session that the request names; answers the request when it has none."""
        knobs = self.server.mcp.knobs
        if knobs.stateless:
            return self.server.everyone
        if opening:
            self.opened = uuid.uuid4().hex
            session = self.server.sessions[self.opened] = HttpSession()
            return session
        self.opened = ""
        name = self.headers.get("Mcp-Session-Id")
        if name is None:
            self._error(400, -32000, "Bad Request: No session id")
            return None
        found = self.server.sessions.get(name)
        if found is not None:
            found.requests += 1
            if not knobs.lose_session_after or found.requests <= knobs.lose_session_after:
                return found
            self.server.sessions.pop(name, None)
            found.close()
        if knobs.unknown_session == 404:
            self._error(404, -32600, "Session not found")
        else:
            self._error(400, -32000, "Bad Request: No valid session ID provided")
        return None

    def _error(self, status: int, code: int, text: str) -> None:
        error = splice(code=str(code), message=dump(text))
        body = splice(jsonrpc='"2.0"', id="null", error=error)
        if self.command == "POST" or status != 405:
            self._reply(status, body.encode())
        else:
            self._reply(status, b"", "text/plain")

    def _reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        if body:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        retry_after = self.server.mcp.knobs.retry_after
        if retry_after is not None and status in (429, 503):
            self.send_header("Retry-After", retry_after)
        self._name_session()
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _name_session(self) -> None:
        if getattr(self, "opened", ""):
            self.send_header("Mcp-Session-Id", self.opened)

    def begin_events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self._name_session()
        self.end_headers()


class Events:
    """A chunked event stream as the answer to the handler's request; begins with its first byte."""

    def __init__(self, handler: Handler) -> None:
        self.headers = dict(handler.headers.items())
        self.open = False
        self._handler = handler
        self._writing = threading.Lock()

    def send(self, text: str) -> None:
        self.write(f"event: message\ndata: {text}\n\n")

    def write(self, block: str) -> None:
        with self._writing:
            if not self.open:
                self.open = True
                self._handler.begin_events()
            data = block.encode()
            self._handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self._handler.wfile.flush()

    def end(self) -> None:
        self._handler.wfile.write(b"0\r\n\r\n")
        self._handler.wfile.flush()


class FaultyHttpServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, mcp: Server) -> None:
        self.mcp = mcp
        self.sessions: dict[str, HttpSession] = {}
        self.everyone = HttpSession()
        super().__init__(("127.0.0.1", mcp.knobs.port), Handler)

    def server_bind(self) -> None:
        """Without the look-up of the host's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        fault = sys.exception()
        if not isinstance(fault, (ConnectionError, TimeoutError, BrokenPipeError)):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def serve(server: Server) -> None:
    """Serve until the process is ended. Says where on stderr."""
    with FaultyHttpServer(server) as http:
        print(f"listening on http://127.0.0.1:{http.server_port}/mcp", file=sys.stderr, flush=True)
        http.serve_forever()
