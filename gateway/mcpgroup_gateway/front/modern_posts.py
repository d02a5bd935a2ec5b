"""A POST of the modern era: one self-contained request in, an answer or a stream out.

There is no session: the connection is the call, and its end is the call's end.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mcpgroup_gateway.front import replies
from mcpgroup_gateway.front.modern import (
    Refused,
    check_method,
    check_version,
    read_request,
    status_of,
)
from mcpgroup_gateway.serving.interface import Caller
from mcpgroup_gateway.wire.envelope import (
    INVALID_REQUEST,
    MalformedMessage,
    Raw,
    encode_error,
    encode_result,
    error_object,
    parse_message,
    parse_object,
)
from mcpgroup_gateway.wire.param_headers import check_param_headers
from mcpgroup_gateway.wire.protocol import DISCOVER, HEADER_MISMATCH, LISTEN, VERSION_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.front.load import Load
    from mcpgroup_gateway.front.modern import ModernRequest
    from mcpgroup_gateway.front.posts import Channel, Head
    from mcpgroup_gateway.front.replies import Reply
    from mcpgroup_gateway.front.settings import Observer
    from mcpgroup_gateway.serving.interface import Service
    from mcpgroup_gateway.wire.envelope import Message

logger = logging.getLogger(__name__)


class ModernPostHandler:
    """Answers POSTs whose header asks for the modern era."""

    def __init__(
        self, service: Service, load: Load, observer: Observer, clock: Callable[[], float]
    ) -> None:
        self._service = service
        self._load = load
        self._observer = observer
        self._clock = clock

    async def handle(self, head: Head, body: bytes, channel: Channel) -> Reply | None:
        """The answer to a POST; None when it went through the channel."""
        try:
            message = parse_message(body)
        except MalformedMessage as fault:
            return replies.refusal(400, fault.text, code=fault.code, raw_id=fault.request_id)
        raw_id = message.raw_id
        try:
            return await self._dispatch(message, head, channel)
        except Refused as fault:
            if message.is_request:
                self._observer.request_answered(message.method or "", "invalid", 0.0)
            error = error_object(fault.code, fault.text, fault.data)
            return replies.Reply(status_of(fault.code), encode_error(raw_id, error))
        except Exception:  # a fault of ours must not become an HTTP 500
            logger.exception("a message failed inside the gateway")
            return replies.answer(replies.internal_error(raw_id))

    async def _dispatch(self, message: Message, head: Head, channel: Channel) -> Reply | None:
        method = message.method
        raw_id = message.raw_id
        if method is None:
            raise Refused(INVALID_REQUEST, "a client has nothing to respond to in this era")
        if not raw_id:
            # Nothing that a client could notify of means anything here: it cancels by leaving.
            check_version(head.headers.get(VERSION_HEADER, ""))
            return replies.ACCEPTED
        asked = read_request(message, head.headers.items())
        # Plain JSON-RPC clients send `*/*` and understand no events: who wants them names them.
        streams = head.accepts.names_events or (method == LISTEN and head.accepts.events)
        caller = Caller(
            None,
            head.tenant,
            head.remote,
            head.headers,
            channel.sink if streams else None,
            asked.client,
            asked.protocol_version,
            asked.log_level,
        )
        self._check_param_headers(asked, caller)
        check_method(method)
        message.params = Raw(asked.params)
        if method == DISCOVER:
            return await self._discover(raw_id, caller)
        if method == LISTEN:
            if not streams:
                text = "Accept must allow text/event-stream for what is listened to"
                return replies.refusal(406, text, raw_id=raw_id)
            if not self._load.may_listen:
                return self._load.refuse(method, raw_id)
        elif self._load.is_full:
            return self._load.refuse(method, raw_id)
        return await self._serve(message, caller, head, channel)

    def _check_param_headers(self, asked: ModernRequest, caller: Caller) -> None:
        if asked.name is None:
            return
        declared = self._service.param_headers(asked.name, caller)
        fault = check_param_headers(declared, asked.arguments, caller.headers.items())
        if fault is not None:
            raise Refused(HEADER_MISMATCH, fault)

    async def _discover(self, raw_id: bytes, caller: Caller) -> Reply:
        began = self._clock()
        result = await self._service.discover(caller)
        self._observer.request_answered(DISCOVER, "ok", self._clock() - began)
        return replies.answer(encode_result(raw_id, result))

    async def _serve(
        self, message: Message, caller: Caller, head: Head, channel: Channel
    ) -> Reply | None:
        raw_id = message.raw_id
        call = self._service.begin(message, caller)
        channel.begin(stream=caller.sink is not None)
        channel.on_gone(lambda: call.cancel("the client disconnected"))
        try:
            listens = message.method == LISTEN
            response = await self._load.run(call, raw_id, listens=listens)
        finally:
            channel.end()
        if channel.is_open:
            await channel.finish(response)
            return None
        if response is None:
            return replies.CANCELLED_STREAM if caller.sink is not None else replies.ACCEPTED
        status = _status(response, raw_id)
        if status == 200 and not head.accepts.json:
            await channel.finish(response)
            return None
        return replies.Reply(status, response)


def _status(response: bytes, raw_id: bytes) -> int:
    """The status follows the code of an error; results, which may be large, are not parsed."""
    if response.startswith(encode_result(raw_id, b"")[:-1]):
        return 200
    try:
        code = bytes(parse_object(parse_message(response).error).get("code", b"0"))
        return status_of(int(code))
    except ValueError:
        return 200
