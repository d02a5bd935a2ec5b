"""JSON-RPC batches: several messages in one POST, the answers to the requests among them in one.

Only the revision 2025-03-26 has them, and a session tells the revision. Answers come as one JSON
array or, once the stream of the POST has begun, as an event each.

Sources: JSON-RPC 2.0, section 6; MCP 2025-03-26, transports, "sending messages to the server".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.front import replies
from mcpgroup_gateway.wire.envelope import (
    INVALID_REQUEST,
    PARSE_ERROR,
    MalformedMessage,
    encode_error,
    error_object,
    parse_list,
    parse_message,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from mcpgroup_gateway.front.checks import Accepts
    from mcpgroup_gateway.front.posts import Channel
    from mcpgroup_gateway.front.replies import Reply
    from mcpgroup_gateway.serving.session import Session
    from mcpgroup_gateway.wire.envelope import Message

#: The revision that has batches.
BATCH_VERSION: Final = "2025-03-26"
#: So many messages may be in one batch, and so many of its requests run at a time.
BATCH_MESSAGES: Final = 100
BATCH_CALLS: Final = 8
#: Above so many bytes of answers the rest is sent as events, where the client takes events.
_ARRAY_BYTES: Final = 4 << 20


def is_array(body: bytes) -> bool:
    return body.lstrip()[:1] == b"["


def read_batch(body: bytes) -> list[Message | bytes]:
    """The messages of a batch, in place of what is none the error response that it gets.

    Raises `MalformedMessage` when there is nothing that could be answered one by one.
    """
    try:
        items = parse_list(body)
    except MalformedMessage as fault:
        raise MalformedMessage(PARSE_ERROR, "the batch is not valid JSON") from fault
    if not items:
        raise MalformedMessage(INVALID_REQUEST, "a batch must not be empty")
    if len(items) > BATCH_MESSAGES:
        text = f"a batch may have {BATCH_MESSAGES} messages at most"
        raise MalformedMessage(INVALID_REQUEST, text)
    return [_read(bytes(item)) for item in items]


def _read(item: bytes) -> Message | bytes:
    try:
        message = parse_message(item)
    except MalformedMessage as fault:
        return encode_error(fault.request_id, error_object(fault.code, fault.text))
    if message.method == "initialize" and message.is_request:
        text = "initialize must be sent alone"
        return encode_error(message.raw_id, error_object(INVALID_REQUEST, text))
    return message


class Batch:
    """Answers the messages of one POST; use `run` once.

    `take` is given what needs no answer; `answer` a request, and returns the response, or None for
    one that was cancelled.
    """

    def __init__(
        self,
        messages: list[Message | bytes],
        accepts: Accepts,
        channel: Channel,
        take: Callable[[Message], None],
        answer: Callable[[Message], Awaitable[bytes | None]],
    ) -> None:
        self._messages = messages
        self._accepts = accepts
        self._channel = channel
        self._take = take
        self._answer = answer
        self._answers: list[bytes] = []
        self._size = 0

    async def run(self, session: Session) -> Reply | None:
        """The reply; None when it went through the channel."""
        requests: list[Message] = []
        for message in self._messages:
            # What a client responds or cancels may be what its requests wait for.
            if isinstance(message, bytes):
                self._answers.append(message)
            elif message.is_request:
                requests.append(message)
            else:
                self._take(message)
        if not requests and not self._answers:
            return replies.ACCEPTED
        channel = self._channel
        channel.begin(stream=self._accepts.events, session=session)
        try:
            left = iter(requests)
            async with asyncio.TaskGroup() as group:
                for _ in range(min(BATCH_CALLS, len(requests))):
                    group.create_task(self._work(left), name="batch")
            if channel.is_open or not self._accepts.json:
                for answer in self._answers:
                    await channel.sink.send(answer)
        finally:
            channel.end()
        if channel.is_open or not self._accepts.json:
            await channel.finish(None)
            return None
        if not self._answers:  # all of them were cancelled
            return replies.CANCELLED_STREAM if self._accepts.events else replies.ACCEPTED
        return replies.answer(b"[%b]" % b",".join(self._answers))

    async def _work(self, left: Iterator[Message]) -> None:
        for message in left:
            answer = await self._answer(message)
            if answer is None:
                continue
            full = self._accepts.events and self._size + len(answer) > _ARRAY_BYTES
            if full or self._channel.is_open:
                await self._channel.sink.send(answer)
            else:
                self._answers.append(answer)
                self._size += len(answer)
