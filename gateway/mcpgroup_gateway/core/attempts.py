"""What is under way with an endpoint: a call's attempt, or a probe."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpgroup_gateway.core.endpoint import Endpoint


class Attempt:
    """One try of one call on one endpoint, from `Group.attempt_started` to its one end.

    `waited` is how many seconds of it the client was waited for, which are not the member's.
    """

    __slots__ = ("began_at", "ended", "endpoint", "order", "safe", "waited")

    def __init__(self, endpoint: Endpoint, began_at: float, order: int, safe: bool) -> None:
        self.endpoint = endpoint
        self.began_at = began_at
        self.order = order
        self.safe = safe
        self.ended = False
        self.waited = 0.0


class Probe:
    """One ping. `calls` is how many calls were in flight at its begin."""

    __slots__ = ("began_at", "calls", "endpoint", "order")

    def __init__(self, endpoint: Endpoint, began_at: float, order: int) -> None:
        self.endpoint = endpoint
        self.began_at = began_at
        self.order = order
        self.calls = endpoint.in_flight
