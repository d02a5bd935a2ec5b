"""Members that are processes of the gateway: MCP over stdin and stdout, one JSON message a line.

    StdioConnector   starts the process and shakes hands; one instance a member
    StdioUpstream    one running process and its session
    StdioExchange    one request in flight

A line that is no message (banner, blank line, invalid UTF-8) is logged and skipped. A line over
`max_line_bytes` is discarded to its end; the request it answers fails with `TOO_LARGE`. Its id is
read where servers write it, at the beginning or at the end of the line; when it is at neither, the
line is put down to the only request in flight, and with several of them they go on to their
deadlines.

Source: MCP 2025-11-25, transports (stdio), lifecycle (shutdown), cancellation.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from typing import TYPE_CHECKING, Final

import mcpgroup_gateway
from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.lines import Allowance, LineLog, LineSplitter, LongLine
from mcpgroup_gateway.members.process import (
    ChildProcess,
    OutgoingLine,
    member_environment,
    spawn,
)
from mcpgroup_gateway.members.upstream import Handshake, MemberFailure
from mcpgroup_gateway.wire.envelope import (
    METHOD_NOT_FOUND,
    MalformedMessage,
    Message,
    encode_error,
    encode_json,
    encode_notification,
    encode_request,
    encode_result,
    error_object,
    parse_message,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.protocol import CALL_METHODS, LATEST_VERSION, MEMBER_VERSIONS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
#: Notifications that wait in one exchange for its reader; then the oldest are dropped.
_BUFFERED_MESSAGES: Final = 256
_BUFFERED_BYTES: Final = 4 * 1024 * 1024
#: Output of no use (stderr, lines that are no messages) beyond which a stream is read more slowly.
_USELESS_BYTES_PER_SECOND: Final = 1024 * 1024
_LOGGED_LINE_BYTES: Final = 2048
_ID_AT_HEAD: Final = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d+)\s*,')
_ID_AT_TAIL: Final = re.compile(rb',\s*"id"\s*:\s*(\d+)\s*\}\s*\Z')


class StdioExchange(OutgoingLine):
    """One request to a process. See `Exchange`."""

    __slots__ = (
        "_buffer",
        "_buffered",
        "_failure",
        "_upstream",
        "_waiter",
        "id",
        "method",
        "token",
    )

    def __init__(
        self,
        upstream: StdioUpstream,
        request_id: int,
        method: str,
        params: bytes,
        token: int | None,
    ) -> None:
        super().__init__(encode_request(request_id, method, params) + b"\n")
        self.id = request_id
        self.method = method
        self.token = token
        self._upstream = upstream
        self._buffer: deque[tuple[Message, int]] = deque()
        self._buffered = 0
        self._waiter: asyncio.Future[None] | None = None
        self._failure: MemberFailure | None = None

    async def next(self) -> Message:
        while not self._buffer:
            if self._failure is not None:
                raise self._failure
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message, size = self._buffer.popleft()
        self._buffered -= size
        return message

    def abort(self, failure: MemberFailure) -> None:
        if self._upstream.forget(self, failure.reason):
            self.fail(failure)

    def close(self) -> None:
        self._upstream.forget(self, "the request was abandoned")
        self._buffer.clear()

    def deliver(self, message: Message, size: int) -> None:
        """Queue a message of this exchange. The response comes last and is never dropped."""
        self._buffer.append((message, size))
        self._buffered += size
        while len(self._buffer) > 1 and (
            len(self._buffer) > _BUFFERED_MESSAGES or self._buffered > _BUFFERED_BYTES
        ):
            self._buffered -= self._buffer.popleft()[1]
        self._wake()

    def fail(self, failure: MemberFailure) -> None:
        """End without a response; what was not read yet is dropped."""
        self._failure = failure
        self._buffer.clear()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class StdioUpstream:
    """One process and the session with it. See `Upstream`."""

    def __init__(
        self,
        name: str,
        popen: subprocess.Popen[bytes],
        on_notification: Callable[[Message], None],
        on_lost: Callable[[MemberFailure], None],
        *,
        max_line_bytes: int,
        eof_seconds: float,
        term_seconds: float,
    ) -> None:
        loop = asyncio.get_running_loop()
        log = logging.getLogger(f"mcpgroup.member.{name}")
        self.handshake = Handshake("", b"", b"", None)
        self.pid: int | None = popen.pid
        self.in_flight = 0
        self._log = log
        self._name = name
        self._on_notification = on_notification
        self._on_lost = on_lost
        self._eof_seconds = eof_seconds
        self._term_seconds = term_seconds
        self._loss: MemberFailure | None = None
        self._closing = False
        self._last_id = 0
        self._exchanges: dict[bytes, StdioExchange] = {}
        self._by_token: dict[bytes, StdioExchange] = {}
        self._calls: set[StdioExchange] = set()
        self._lines = LineSplitter(max_line_bytes)
        self._noise = LineLog(log, logging.WARNING, "not a message", loop.time, per_second=10)
        self._stderr = LineSplitter(_LOGGED_LINE_BYTES, head_bytes=_LOGGED_LINE_BYTES)
        self._stderr_log = LineLog(log, logging.INFO, "stderr", loop.time)
        self._noise_allowance = Allowance(_USELESS_BYTES_PER_SECOND, loop.time)
        self._stderr_allowance = Allowance(_USELESS_BYTES_PER_SECOND, loop.time)
        self._process = ChildProcess(
            popen, on_output=self._output, on_errors=self._errors, on_end=self._ended
        )

    @property
    def lost(self) -> bool:
        return self._loss is not None

    @property
    def loss(self) -> MemberFailure | None:
        """Why the session ended, None while it has not."""
        return self._loss

    def request(
        self, method: str, params: bytes, *, progress_token: int | None = None, safe: bool = False
    ) -> StdioExchange:
        """Begin an exchange. `safe` makes no difference: there is one pipe."""
        self._last_id += 1
        exchange = StdioExchange(self, self._last_id, method, params, progress_token)
        if self._loss is not None:
            exchange.fail(self._failure(self._loss, sent=False))
            return exchange
        self._exchanges[b"%d" % exchange.id] = exchange
        self.in_flight += 1
        if progress_token is not None:
            self._by_token[b"%d" % progress_token] = exchange
        if method in CALL_METHODS:
            self._calls.add(exchange)
        self._process.write(exchange)
        return exchange

    async def notify(self, method: str, params: bytes) -> None:
        if self._loss is not None:
            raise self._failure(self._loss, sent=False)
        if not self._process.write_control(encode_notification(method, params) + b"\n"):
            raise MemberFailure(
                Failure.BUSY, f"{self._name} does not read its standard input", sent=False
            )

    def when_reaped(self, callback: Callable[[], None]) -> None:
        """Call back once when the process is gone."""
        self._process.when_reaped(callback)

    def kill(self, failure: MemberFailure) -> None:
        """End the process at once, and what is in flight with `failure`."""
        self._closing = True
        self._lose(failure)
        self._process.kill()

    async def close(self) -> None:
        """EOF, SIGTERM after `eof_seconds`, SIGKILL after `term_seconds`. Returns once the process
        was reaped. It goes on by itself when the caller is cancelled."""
        self._closing = True
        # Nobody is to blame for a stop on purpose, so that it counts as evidence of nothing.
        self._lose(MemberFailure(Failure.EVICTED, f"{self._name} was stopped", sent=False))
        self._process.shutdown(self._eof_seconds, self._term_seconds)
        if not await self._process.wait(self._eof_seconds + self._term_seconds):
            self._log.error("process %d does not end although it was killed", self._process.pid)

    def forget(self, exchange: StdioExchange, reason: str) -> bool:
        """Take an unanswered exchange out of the tables and tell the process when it knows of it.

        False when it was answered, failed or forgotten before.
        """
        if not self._drop(exchange):
            return False
        if not exchange.sent:
            self._process.withdraw(exchange)
        elif exchange.method != "initialize":  # which must not be cancelled
            params = encode_json({"requestId": exchange.id, "reason": reason})
            # Refused when the process reads nothing: then it would not learn of it anyway.
            self._process.write_control(
                encode_notification("notifications/cancelled", params) + b"\n"
            )
        return True

    def _drop(self, exchange: StdioExchange) -> bool:
        if self._exchanges.pop(b"%d" % exchange.id, None) is None:
            return False
        self.in_flight -= 1
        if exchange.token is not None:
            self._by_token.pop(b"%d" % exchange.token, None)
        self._calls.discard(exchange)
        return True

    # -- what the process writes

    def _output(self, data: bytes) -> bool:
        slow = False
        for line in self._lines.feed(data):
            if isinstance(line, LongLine):
                self._long_line(line)
            elif not self._line(line):
                slow = self._noise_allowance.spend(len(line) + 1)
        if self._lines.is_discarding:
            slow = self._noise_allowance.spend(len(data))
        return slow

    def _errors(self, data: bytes) -> bool:
        for line in self._stderr.feed(data):
            if isinstance(line, bytes):
                self._stderr_log.write(line)
            elif not line.ended:
                self._stderr_log.write(line.head + b" [cut]")
        return self._stderr_allowance.spend(len(data))

    def _line(self, line: bytes) -> bool:
        """Handle one line; false when it was no message."""
        try:
            message = parse_message(line)
        except MalformedMessage as fault:
            if line.strip():
                self._noise.write(line)
            exchange = self._exchanges.get(fault.request_id or b"")
            if exchange is not None and "method" not in parse_object(line):
                self._spoil(exchange, Failure.MALFORMED, f"answered badly: {fault.text}")
            return False
        if message.is_response:
            self._response(message, len(line))
        elif message.is_request:
            self._request(message)
        else:
            self._notification(message, len(line))
        return True

    def _response(self, message: Message, size: int) -> None:
        exchange = self._exchanges.get(message.raw_id)
        if exchange is not None:
            self._drop(exchange)
            exchange.deliver(message, size)
        else:
            self._log.debug("answer to no request in flight: id %s", message.raw_id[:64])

    def _request(self, message: Message) -> None:
        if message.method == "ping":
            answer = encode_result(message.raw_id, b"{}")
        else:
            fault = error_object(METHOD_NOT_FOUND, "this client has no such capability")
            answer = encode_error(message.raw_id, fault)
        if not self._process.write_control(answer + b"\n"):
            self._log.debug("no answer to %s: standard input is not read", message.method)

    def _notification(self, message: Message, size: int) -> None:
        if message.method == "notifications/progress":
            token = parse_object(message.params).get("progressToken")
            exchange = self._by_token.get(bytes(token)) if token is not None else None
            if exchange is not None:
                exchange.deliver(message, size)
            return
        if message.method == "notifications/message" and len(self._calls) == 1:
            next(iter(self._calls)).deliver(message, size)
            return
        if message.method != "notifications/cancelled":  # our answers are immediate
            self._on_notification(message)

    def _long_line(self, line: LongLine) -> None:
        if not line.ended:
            self._noise.write(b"[discarded, too long] " + line.head)
            match = _ID_AT_HEAD.match(line.head)
            exchange = self._exchanges.get(match[1]) if match is not None else None
            if match is None and len(self._exchanges) == 1:
                exchange = next(iter(self._exchanges.values()))
        else:
            match = _ID_AT_TAIL.search(line.tail)
            exchange = self._exchanges.get(match[1]) if match is not None else None
        if exchange is not None:
            self._spoil(exchange, Failure.TOO_LARGE, "answered with a line that is too long")

    def _spoil(self, exchange: StdioExchange, failure: Failure, what: str) -> None:
        self._drop(exchange)
        exchange.fail(MemberFailure(failure, f"{self._name} {what}", sent=exchange.sent))

    # -- how it ends

    def _ended(self, what: str) -> None:
        for line in self._lines.end():
            if isinstance(line, bytes):
                self._line(line)
        for line in self._stderr.end():
            if isinstance(line, bytes):
                self._stderr_log.write(line)
        self._noise.flush()
        self._stderr_log.flush()
        self._log.info("process %d %s", self._process.pid, what)
        self._lose(MemberFailure(Failure.EXIT, f"{self._name} {what}", sent=False))

    def _lose(self, loss: MemberFailure) -> None:
        if self._loss is not None:
            return
        self._loss = loss
        if not self._closing:
            self._on_lost(loss)
        for exchange in list(self._exchanges.values()):
            self._drop(exchange)
            exchange.fail(self._failure(loss, sent=exchange.sent))

    def _failure(self, loss: MemberFailure, *, sent: bool) -> MemberFailure:
        return MemberFailure(loss.failure, loss.reason, sent=sent)


class StdioConnector:
    """Starts a member's process. See `Connector`.

    `env` is what the manifest declares, secrets resolved; the process gets that and the safe-list.
    `memory_limit_mib` is the private memory of each of its processes, 0 for no limit. `eof_seconds`
    and `term_seconds` are the patience of `StdioUpstream.close`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        working_dir: str | None = None,
        memory_limit_mib: int = 0,
        max_line_bytes: int = MAX_LINE_BYTES,
        eof_seconds: float = 2.0,
        term_seconds: float = 2.0,
    ) -> None:
        self._name = name
        self._command = list(command)
        self._env = dict(env or {})
        self._working_dir = working_dir
        self._memory_limit_mib = memory_limit_mib
        self._max_line_bytes = max_line_bytes
        self._eof_seconds = eof_seconds
        self._term_seconds = term_seconds
        self._open: set[StdioUpstream] = set()

    async def open(
        self,
        *,
        on_notification: Callable[[Message], None],
        on_lost: Callable[[MemberFailure], None],
        control: bool,
        deadline: float,
    ) -> StdioUpstream:
        """Start the process and shake hands; every session is a process of its own.

        `control` makes no difference: stdout carries everything.
        """
        loop = asyncio.get_running_loop()
        due = loop.time() + deadline
        environment = member_environment(self._env)
        popen = spawn(self._command, environment, self._working_dir, self._memory_limit_mib)
        started = False

        def lost(failure: MemberFailure) -> None:
            if started:
                on_lost(failure)

        upstream = StdioUpstream(
            self._name,
            popen,
            on_notification,
            lost,
            max_line_bytes=self._max_line_bytes,
            eof_seconds=self._eof_seconds,
            term_seconds=self._term_seconds,
        )
        self._open.add(upstream)
        upstream.when_reaped(lambda: self._open.discard(upstream))
        try:
            async with asyncio.timeout_at(due):
                upstream.handshake = await self._shake_hands(upstream)
            if upstream.loss is not None:
                raise upstream.loss
            started = True
        except TimeoutError as fault:
            reason = f"{self._name} did not answer initialize within {deadline:g} s"
            late = loop.time() - due > 1.0
            raise MemberFailure(Failure.START_FAILED, reason, sent=False, late=late) from fault
        except MemberFailure as fault:
            if fault.failure is Failure.START_FAILED:
                raise
            reason = f"{fault.reason} before it was ready"
            raise MemberFailure(Failure.START_FAILED, reason, sent=False) from fault
        finally:
            if not started:
                upstream.kill(MemberFailure(Failure.START_FAILED, "not started", sent=False))
                await upstream.close()
        return upstream

    async def close(self) -> None:
        """End the processes that are still open."""
        await asyncio.gather(*(upstream.close() for upstream in self._open))

    async def _shake_hands(self, upstream: StdioUpstream) -> Handshake:
        client_info = {"name": "mcpgroup", "version": mcpgroup_gateway.__version__}
        offer = {
            "protocolVersion": LATEST_VERSION,
            "capabilities": {},
            "clientInfo": client_info,
        }
        exchange = upstream.request("initialize", encode_json(offer))
        try:
            answer = await exchange.next()
        finally:
            exchange.close()
        handshake = read_handshake(self._name, answer)
        await upstream.notify("notifications/initialized", b"")
        return handshake


def read_handshake(name: str, answer: Message) -> Handshake:
    """What the answer to `initialize` says. Raises `MemberFailure` when we cannot go on with it."""
    if answer.is_error:
        code = bytes(parse_object(answer.error).get("code", b"")).decode()
        raise MemberFailure(Failure.START_FAILED, f"{name} refused initialize ({code})", sent=False)
    try:
        result = parse_object(answer.result)
    except MalformedMessage as fault:
        reason = f"{name} answered initialize with something that is not an object"
        raise MemberFailure(Failure.START_FAILED, reason, sent=False) from fault
    version = parse_string(result.get("protocolVersion"))
    if version not in MEMBER_VERSIONS:
        reason = f"{name} speaks MCP {version}, which is not supported"
        raise MemberFailure(Failure.START_FAILED, reason, sent=False)
    return Handshake(
        version,
        bytes(result.get("capabilities", b"")),
        bytes(result.get("serverInfo", b"")),
        parse_string(result.get("instructions")),
    )
