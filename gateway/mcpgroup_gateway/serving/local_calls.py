"""Requests that are answered here: lists, levels, subscriptions, `ping`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.serving.interruption import CallCancelled, Interruption
from mcpgroup_gateway.wire.envelope import (
    METHOD_NOT_FOUND,
    MalformedMessage,
    encode_error,
    encode_result,
    error_object,
)
from mcpgroup_gateway.wire.protocol import LIST_METHODS
from mcpgroup_gateway.wire.refusals import GatewayError

if TYPE_CHECKING:
    from mcpgroup_gateway.serving.interface import Caller
    from mcpgroup_gateway.serving.service import GroupService
    from mcpgroup_gateway.wire.envelope import Message

_WITHOUT_RESULT: Final = frozenset({"ping", "resources/subscribe", "resources/unsubscribe"})


class LocalCall:
    """A request that no member is asked for, or none in the way of a call."""

    __slots__ = ("_caller", "_interruption", "_message", "_service")

    def __init__(self, service: GroupService, message: Message, caller: Caller) -> None:
        self._service = service
        self._message = message
        self._caller = caller
        self._interruption = Interruption()

    async def run(self) -> bytes | None:
        method = self._message.method or ""
        raw_id, context = self._message.raw_id, self._service.context
        loop = asyncio.get_running_loop()
        began, outcome = loop.time(), "internal"
        context.calls.add(self)
        try:
            error = None
            if method in ("resources/subscribe", "resources/unsubscribe"):
                subscribing = self._service.subscribe(self._message, self._caller)
                error = await self._interruption.during(subscribing)
            if error is not None:
                outcome = "rpc_error"
                return encode_error(raw_id, error)
            result = await self._result(method)
            outcome = "ok"
            return encode_result(raw_id, result)
        except CallCancelled:
            outcome = "cancelled"
            return None
        except MalformedMessage as fault:
            outcome = "invalid"
            return encode_error(raw_id, error_object(fault.code, fault.text))
        except GatewayError as fault:
            outcome = fault.outcome
            return encode_error(raw_id, fault.error_object(self._service.name))
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            context.calls.discard(self)
            context.records.answered_here(method, outcome, loop.time() - began)

    def cancel(self, reason: str | None) -> None:
        self._interruption.cancel(reason or "cancelled by the client")

    def drain(self) -> None:
        """The replica ends now: lists are answered from what is known."""
        self._interruption.drain()

    async def _result(self, method: str) -> bytes:
        if method == "logging/setLevel":
            return self._service.set_level(self._message, self._caller)
        kind = LIST_METHODS.get(method)
        if kind is not None:
            with contextlib.suppress(GatewayError):  # the replica ends
                await self._interruption.during(self._service.lists_of(self._caller))
            return self._service.listed(kind, self._message, self._caller)
        if method in _WITHOUT_RESULT:
            return b"{}"
        raise MalformedMessage(METHOD_NOT_FOUND, f"Method not found: {method[:200]}")
