"""Requests that no member is asked for: lists, levels, subscriptions, `ping`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

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

_EMPTY_RESULT: Final = b"{}"


class LocalCall:
    """A request that no member is asked for."""

    __slots__ = ("_caller", "_message", "_service")

    def __init__(self, service: GroupService, message: Message, caller: Caller) -> None:
        self._service = service
        self._message = message
        self._caller = caller

    async def run(self) -> bytes | None:
        method = self._message.method or ""
        raw_id = self._message.raw_id
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcome = "ok"
        try:
            if method == "ping":
                return encode_result(raw_id, _EMPTY_RESULT)
            if method == "logging/setLevel":
                return encode_result(raw_id, self._service.set_level(self._message, self._caller))
            if method in ("resources/subscribe", "resources/unsubscribe"):
                error = await self._service.subscribe(self._message, self._caller)
                if error is None:
                    return encode_result(raw_id, _EMPTY_RESULT)
                outcome = "rpc_error"
                return encode_error(raw_id, error)
            kind = LIST_METHODS.get(method)
            if kind is None:
                raise MalformedMessage(METHOD_NOT_FOUND, f"Method not found: {method[:200]}")
            return encode_result(
                raw_id, await self._service.list(kind, self._message, self._caller)
            )
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
            self._service.context.records.answered_here(method, outcome, loop.time() - began)

    def cancel(self, reason: str | None) -> None:
        """Answered at once or within the wait for catalogues; there is nothing to cancel."""
