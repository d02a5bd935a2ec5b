"""`subscriptions/listen` of modern clients: a stream of changes that lives as long as its request.

The acknowledgement comes first and names what is honoured. What waits for a slow client is one
message a kind or URI, however often it changed. Source: MCP 2026-07-28, subscriptions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.serving.interruption import CallCancelled, Interruption
from mcpgroup_gateway.wire.envelope import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    MalformedMessage,
    Raw,
    encode_error,
    encode_json,
    encode_notification,
    encode_object,
    encode_result,
    error_object,
    parse_list,
    parse_object,
    parse_string,
)
from mcpgroup_gateway.wire.protocol import LISTEN, SUBSCRIPTION_KEY
from mcpgroup_gateway.wire.refusals import GatewayError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcpgroup_gateway.serving.interface import Caller, Sink
    from mcpgroup_gateway.serving.service import GroupService
    from mcpgroup_gateway.wire.envelope import Message

#: URIs that one listen may name.
_MAX_URIS: Final = 1_000
#: What waits for a client that does not read: members may name any number of parts of a resource.
_MAX_WAITING: Final = 1_100
_MAX_WAITING_BYTES: Final = 256 * 1024
#: Filter of a listen request, the capability whose lists it is about.
_LISTS: Final = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}


class ListenCall:
    """One client's listen request; a subscriber of `Subscriptions`."""

    def __init__(self, service: GroupService, message: Message, caller: Caller) -> None:
        self._service = service
        self._raw_id = message.raw_id
        self._message = message
        self._caller = caller
        self._tag = b'"_meta":{"%b":%b}' % (SUBSCRIPTION_KEY, self._raw_id)
        self._capabilities: frozenset[str] = frozenset()
        self._waiting: dict[str, bytes] = {}
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._interruption = Interruption()
        self._acknowledged = False

    @property
    def caller(self) -> Caller:
        return self._caller

    @property
    def waiting(self) -> int:
        """Messages that the client has not taken."""
        return len(self._waiting)

    async def run(self) -> bytes | None:
        began, outcome = asyncio.get_running_loop().time(), "internal"
        try:
            answer = await self._run()
            outcome = "cancelled" if answer is None else "ok"
            return answer
        except MalformedMessage as fault:
            outcome = "invalid"
            return encode_error(self._raw_id, error_object(fault.code, fault.text))
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            seconds = asyncio.get_running_loop().time() - began
            self._service.context.records.answered_here(LISTEN, outcome, seconds)

    def cancel(self, reason: str | None) -> None:
        self._interruption.cancel(reason or "cancelled by the client")

    def end(self) -> None:
        """End gracefully: the replica goes."""
        self._interruption.drain()

    def notify_list_changed(self, capability: str) -> None:
        if capability in self._capabilities:
            self._put(capability, f"notifications/{capability}/list_changed", {})

    def notify_updated(self, uri: str, params: Mapping[str, Raw]) -> None:
        self._put(f"uri:{uri}", "notifications/resources/updated", params)

    async def _run(self) -> bytes | None:
        """The result with which it ends; None when the client has gone."""
        sink, service = self._caller.sink, self._service
        if sink is None:
            raise MalformedMessage(INVALID_REQUEST, "listening needs Accept: text/event-stream")
        wanted = parse_object(parse_object(self._message.params).get("notifications", Raw(b"")))
        uris = _uris(wanted)
        service.listening.add(self)
        try:
            honoured: dict[str, Raw] = {}
            try:
                await self._interruption.during(service.first_catalogues())
                honoured = self._lists(wanted)
                if uris:
                    following = service.context.subscriptions.follow(self, uris)
                    followed = await self._interruption.during(following)
                    honoured["resourceSubscriptions"] = Raw(encode_json(followed))
                await self._acknowledge(sink, honoured)
                while True:
                    await self._tell(sink)
                    self._interruption.check()
                    await self._interruption.during(self._changed.wait())
                    self._changed.clear()
            except CallCancelled:
                return None
            except GatewayError:  # the replica goes
                if not self._acknowledged:
                    await self._acknowledge(sink, honoured)
                await self._tell(sink)
                return encode_result(self._raw_id, b'{"resultType":"complete",%b}' % self._tag)
        finally:
            service.listening.discard(self)
            service.context.subscriptions.leave(self)

    def _lists(self, wanted: Mapping[str, Raw]) -> dict[str, Raw]:
        """What of the filter is honoured, URIs apart; from now on it is told of."""
        view = self._service.context.view(self._caller)
        honoured = {
            name: capability
            for name, capability in _LISTS.items()
            if bytes(wanted.get(name, b"")) == b"true" and view.declares(capability)
        }
        self._capabilities = frozenset(honoured.values())
        return dict.fromkeys(honoured, Raw(b"true"))

    async def _acknowledge(self, sink: Sink, honoured: dict[str, Raw]) -> None:
        self._acknowledged = True
        params = b'{"notifications":%b,%b}' % (encode_object(honoured), self._tag)
        await sink.send(encode_notification("notifications/subscriptions/acknowledged", params))

    async def _tell(self, sink: Sink) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        for message in waiting.values():
            await sink.send(message)

    def _put(self, key: str, method: str, params: Mapping[str, Raw]) -> None:
        meta = parse_object(params.get("_meta", Raw(b"")))
        meta[SUBSCRIPTION_KEY.decode()] = Raw(self._raw_id)
        tagged = {**params, "_meta": Raw(encode_object(meta))}
        message = encode_notification(method, encode_object(tagged))
        self._waiting_bytes += len(message) - len(self._waiting.pop(key, b""))
        self._waiting[key] = message
        while len(self._waiting) > _MAX_WAITING or (
            self._waiting_bytes > _MAX_WAITING_BYTES and len(self._waiting) > 1
        ):
            self._waiting_bytes -= len(self._waiting.pop(next(iter(self._waiting))))
        self._changed.set()


def _uris(wanted: Mapping[str, Raw]) -> list[str]:
    raw = wanted.get("resourceSubscriptions")
    if raw is None or bytes(raw) == b"null":
        return []
    uris = [parse_string(item) for item in parse_list(raw)]
    if len(uris) > _MAX_URIS or not all(uris):
        text = f'"resourceSubscriptions" must be a list of at most {_MAX_URIS} URIs'
        raise MalformedMessage(INVALID_PARAMS, text)
    return list(dict.fromkeys(uri for uri in uris if uri))
