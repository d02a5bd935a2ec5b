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
from mcpgroup_gateway.wire.protocol import SUBSCRIPTION_KEY
from mcpgroup_gateway.wire.refusals import GatewayError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcpgroup_gateway.serving.interface import Caller
    from mcpgroup_gateway.serving.service import GroupService
    from mcpgroup_gateway.wire.envelope import Message

#: Listens open at once on one replica, and URIs that one of them may name.
MAX_LISTENING: Final = 10_000
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
        self._cancelled = False
        self._ending = False

    @property
    def caller(self) -> Caller:
        return self._caller

    @property
    def waiting(self) -> int:
        """Messages that the client has not taken."""
        return len(self._waiting)

    async def run(self) -> bytes | None:
        loop = asyncio.get_running_loop()
        began, outcome = loop.time(), "ok"
        try:
            return await self._run()
        except MalformedMessage as fault:
            outcome = "invalid"
            return encode_error(self._raw_id, error_object(fault.code, fault.text))
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self._service.context.records.answered_here(
                "subscriptions/listen", outcome, loop.time() - began
            )

    def cancel(self, reason: str | None) -> None:
        self._cancelled = True
        self._interruption.cancel(reason or "cancelled by the client")
        self._changed.set()

    def end(self) -> None:
        """End gracefully: the replica goes."""
        self._ending = True
        self._interruption.drain()
        self._changed.set()

    def notify_list_changed(self, capability: str) -> None:
        if capability in self._capabilities:
            self._put(capability, f"notifications/{capability}/list_changed", {})

    def notify_updated(self, uri: str, params: Mapping[str, Raw]) -> None:
        self._put(f"uri:{uri}", "notifications/resources/updated", params)

    async def _run(self) -> bytes | None:
        sink, service = self._caller.sink, self._service
        if sink is None:
            raise MalformedMessage(INVALID_REQUEST, "listening needs Accept: text/event-stream")
        if len(service.listening) >= MAX_LISTENING:
            raise MalformedMessage(INVALID_REQUEST, "too many clients are listening; try again")
        wanted = parse_object(parse_object(self._message.params).get("notifications", Raw(b"")))
        uris = _uris(wanted)
        try:
            await self._interruption.during(service.first_catalogues())
        except CallCancelled:
            return None
        except GatewayError:
            pass  # the replica goes: what is known is acknowledged, and that is the end
        view = service.context.view(self._caller)
        honoured: dict[str, Raw] = {}
        listed = set()
        for name, capability in _LISTS.items():
            if bytes(wanted.get(name, b"")) == b"true" and view.declares(capability):
                honoured[name] = Raw(b"true")
                listed.add(capability)
        self._capabilities = frozenset(listed)
        service.listening.add(self)
        try:
            if uris:
                honoured["resourceSubscriptions"] = Raw(encode_json(await self._follow(uris)))
            acknowledged = b'{"notifications":%b,%b}' % (encode_object(honoured), self._tag)
            await sink.send(
                encode_notification("notifications/subscriptions/acknowledged", acknowledged)
            )
            while not self._cancelled:
                waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
                for message in waiting.values():
                    await sink.send(message)
                if self._ending:
                    return encode_result(self._raw_id, b'{"resultType":"complete",%b}' % self._tag)
                await self._changed.wait()
                self._changed.clear()
            return None
        finally:
            service.listening.discard(self)
            service.context.subscriptions.leave(self)

    async def _follow(self, uris: list[str]) -> list[str]:
        """Those of the URIs that are followed from now on."""
        following = self._service.context.subscriptions.follow(self, uris)
        try:
            return await self._interruption.during(following)
        except (CallCancelled, GatewayError):
            return []  # it ends

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
