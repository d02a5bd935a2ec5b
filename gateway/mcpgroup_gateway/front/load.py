"""The calls that a front runs at a time, of both eras together, and what is refused beyond them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mcpgroup_gateway.front import replies

if TYPE_CHECKING:
    from mcpgroup_gateway.front.replies import Reply
    from mcpgroup_gateway.front.settings import FrontSettings, Observer
    from mcpgroup_gateway.serving.interface import Call, Service

logger = logging.getLogger(__name__)


class Load:
    """`running` counts calls and `listening` the subscriptions of modern clients, which are none;
    each may be `settings.requests_in_flight`."""

    def __init__(self, service: Service, settings: FrontSettings, observer: Observer) -> None:
        self.settings = settings
        self.running = 0
        self.listening = 0
        self._service = service
        self._observer = observer

    @property
    def is_full(self) -> bool:
        return self.running >= self.settings.requests_in_flight

    @property
    def may_listen(self) -> bool:
        return self.listening < self.settings.requests_in_flight

    def refuse(self, method: str, raw_id: bytes) -> Reply:
        """The answer to a request beyond the limit."""
        self._observer.request_refused("overloaded")
        self._observer.request_answered(method, "overloaded", 0.0)
        return replies.overloaded(self._service.name, raw_id)

    async def run(self, call: Call, raw_id: bytes, *, listens: bool = False) -> bytes | None:
        """The response of a call, which counts as long as it runs."""
        if listens:
            self.listening += 1
        else:
            self.running += 1
        try:
            return await call.run()
        except Exception:  # a fault of ours must not become an HTTP 500
            logger.exception("a call failed inside the gateway")
            return replies.internal_error(raw_id)
        finally:
            if listens:
                self.listening -= 1
            else:
                self.running -= 1
