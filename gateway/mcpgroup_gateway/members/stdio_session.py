"""One running process and the MCP session with it.

Source: MCP 2025-11-25, transports (stdio), lifecycle (shutdown), cancellation.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.outcomes import Failure
from mcpgroup_gateway.members.lines import LineLog, encode_line
from mcpgroup_gateway.members.modern_requests import ModernRequests
from mcpgroup_gateway.members.only_call import CallsInFlight
from mcpgroup_gateway.members.process import ChildProcess
from mcpgroup_gateway.members.stdio_exchange import StdioExchange
from mcpgroup_gateway.members.stdio_output import StdioOutput
from mcpgroup_gateway.members.upstream import (
    NOTHING_FORWARDED,
    Forwarded,
    Handshake,
    MemberFailure,
)
from mcpgroup_gateway.wire.envelope import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    MalformedMessage,
    Message,
    encode_error,
    encode_json,
    encode_notification,
    encode_result,
    error_object,
    parse_object,
)
from mcpgroup_gateway.wire.protocol import CALL_METHODS, DISCOVER, LISTEN, SUBSCRIPTION_KEY

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from mcpgroup_gateway.members.upstream import ClientIdentity

#: Responses of clients that may wait for a process that does not read.
_RESPONSE_BYTES: Final = 32 * 1024 * 1024
_NEVER_CANCELLED: Final = frozenset({"initialize", DISCOVER})


class StdioUpstream:
    """One process and the session with it. See `Upstream`."""

    def __init__(
        self,
        name: str,
        popen: subprocess.Popen[bytes],
        on_notification: Callable[[Message], None],
        on_lost: Callable[[MemberFailure], None],
        on_request: Callable[[Message], None] | None = None,
        *,
        max_line_bytes: int,
        eof_seconds: float,
        term_seconds: float,
    ) -> None:
        log = logging.getLogger(f"mcpgroup.member.{name}")
        self.handshake = Handshake("", b"", b"", None)
        self.pid: int | None = popen.pid
        self.in_flight = 0
        self._log = log
        self._name = name
        self._on_notification = on_notification
        self._on_lost = on_lost
        self._on_request = on_request
        self._eof_seconds = eof_seconds
        self._term_seconds = term_seconds
        self._loss: MemberFailure | None = None
        self._closing = False
        self._last_id = 0
        self._exchanges: dict[bytes, StdioExchange] = {}
        self._by_token: dict[bytes, StdioExchange] = {}
        self._calls: CallsInFlight[StdioExchange] = CallsInFlight(time.monotonic)
        self._listens: dict[bytes, StdioExchange] = {}
        self._modern: ModernRequests | None = None
        clock = asyncio.get_running_loop().time
        unread = "standard input is not read"
        self._unread = LineLog(log, logging.WARNING, unread, clock, per_second=1)
        self._output = StdioOutput(log, max_line_bytes, self._message, self._spoiled)
        self._process = ChildProcess(
            popen,
            on_output=self._output.output,
            on_errors=self._output.errors,
            on_end=self._ended,
        )

    @property
    def lost(self) -> bool:
        return self._loss is not None

    @property
    def loss(self) -> MemberFailure | None:
        """Why the session ended, None while it has not."""
        return self._loss

    def request(
        self,
        method: str,
        params: bytes,
        *,
        progress_token: int | None = None,
        safe: bool = False,
        forwarded: Forwarded = NOTHING_FORWARDED,
    ) -> StdioExchange:
        """Begin an exchange. `safe` and headers make no difference: there is one pipe."""
        if self._modern is not None:
            params, _ = self._modern.complete(method, params, forwarded)
        self._last_id += 1
        exchange = StdioExchange(self, self._last_id, method, params, progress_token)
        if self._loss is not None:
            exchange.fail(self._failure(self._loss, sent=False))
            return exchange
        self._exchanges[b"%d" % exchange.id] = exchange
        if method == LISTEN:
            self._listens[b"%d" % exchange.id] = exchange
        self.in_flight += 1
        if progress_token is not None:
            self._by_token[b"%d" % progress_token] = exchange
        if method in CALL_METHODS:
            self._calls.begin(exchange)
        self._process.write(exchange)
        return exchange

    def adopt(self, handshake: Handshake, client: ClientIdentity) -> None:
        """Go on with what was agreed: a modern member hears of the client in every request."""
        self.handshake = handshake
        if handshake.modern:
            self._modern = ModernRequests(handshake.protocol_version, client)

    async def notify(self, method: str, params: bytes) -> None:
        if self._loss is not None:
            raise self._failure(self._loss, sent=False)
        if not self._process.write_control(encode_line(encode_notification(method, params))):
            raise MemberFailure(
                Failure.BUSY, f"{self._name} does not read its standard input", sent=False
            )

    def respond(self, body: bytes) -> None:
        if self._loss is not None:
            return
        if not self._process.write_control(encode_line(body), _RESPONSE_BYTES):
            self._unread.write(b"a response was dropped")

    def hold_stream(self) -> None:
        """All that the process writes is heard."""

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
        if exchange.sent:
            self._calls.give_up(exchange)
        if not self._drop(exchange):
            return False
        if not exchange.sent:
            self._process.withdraw(exchange)
        elif exchange.method not in _NEVER_CANCELLED:
            params = encode_json({"requestId": exchange.id, "reason": reason})
            # Refused when the process reads nothing: then it would not learn of it anyway.
            self._process.write_control(
                encode_line(encode_notification("notifications/cancelled", params))
            )
        return True

    def _drop(self, exchange: StdioExchange) -> bool:
        if self._exchanges.pop(b"%d" % exchange.id, None) is None:
            return False
        self._listens.pop(b"%d" % exchange.id, None)
        self.in_flight -= 1
        if exchange.token is not None:
            self._by_token.pop(b"%d" % exchange.token, None)
        self._calls.end(exchange)
        return True

    # -- what the process writes

    def _message(self, message: Message, size: int) -> None:
        if message.is_response:
            self._response(message, size)
        elif message.is_request:
            self._request(message, size)
        else:
            self._notification(message, size)

    def _response(self, message: Message, size: int) -> None:
        exchange = self._exchanges.get(message.raw_id)
        if exchange is not None:
            self._drop(exchange)
            exchange.deliver(message, size)
        else:
            self._log.debug("answer to no request in flight: id %s", message.raw_id[:64])

    def _request(self, message: Message, size: int) -> None:
        if message.method == "ping":
            self.respond(encode_result(message.raw_id, b"{}"))
        elif self._on_request is None or self._modern is not None:
            fault = error_object(METHOD_NOT_FOUND, "this client has no such capability")
            self.respond(encode_error(message.raw_id, fault))
        elif (call := self._calls.only) is None:
            self._on_request(message)
        elif not call.deliver(message, size):  # it can only be about this call
            fault = error_object(INTERNAL_ERROR, "too many requests wait for the client")
            self.respond(encode_error(message.raw_id, fault))

    def _notification(self, message: Message, size: int) -> None:
        if message.method == "notifications/progress":
            token = parse_object(message.params).get("progressToken")
            exchange = self._by_token.get(bytes(token)) if token is not None else None
            if exchange is not None:
                exchange.deliver(message, size)
        elif message.method == "notifications/message" and (call := self._calls.speaking):
            call.deliver(message, size)
        elif message.method == "notifications/cancelled":
            self._cancelled(message)
        elif self._modern is not None and (tag := _subscription(message)):
            listen = self._listens.get(tag)
            if listen is not None:
                listen.deliver(message, size)
        else:
            self._on_notification(message)

    def _cancelled(self, message: Message) -> None:
        """The member gives up a request of its own, or (modern) a listen of ours."""
        if self._modern is None:
            if self._on_request is not None:  # else our answers are immediate
                self._on_notification(message)
            return
        raw_id = parse_object(message.params).get("requestId", b"")
        listen = self._listens.get(bytes(raw_id))
        if listen is not None:
            self._spoil(listen, Failure.RESET, "ended the subscription")

    def _spoiled(self, raw_id: bytes | None, failure: Failure, what: str) -> None:
        exchange = None
        if raw_id is not None:
            exchange = self._exchanges.get(raw_id)
        elif len(self._exchanges) == 1:
            exchange = next(iter(self._exchanges.values()))
        if exchange is not None:
            self._spoil(exchange, failure, what)

    def _spoil(self, exchange: StdioExchange, failure: Failure, what: str) -> None:
        self._drop(exchange)
        exchange.fail(MemberFailure(failure, f"{self._name} {what}", sent=exchange.sent))

    # -- how it ends

    def _ended(self, what: str) -> None:
        self._output.end()
        self._unread.flush()
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


def _subscription(message: Message) -> bytes:
    """The raw id of the listen that a notification belongs to, b"" without one."""
    try:
        meta = parse_object(parse_object(message.params).get("_meta", b""))
    except MalformedMessage:
        return b""
    return bytes(meta.get(SUBSCRIPTION_KEY.decode(), b""))
