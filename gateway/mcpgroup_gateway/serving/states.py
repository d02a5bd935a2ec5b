"""`requestState` of this replica: what it is bound to, and for how long."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from mcpgroup_gateway.core.request_state import (
    InvalidState,
    RequestState,
    StateSealer,
    digest_of,
)
from mcpgroup_gateway.wire.envelope import INVALID_PARAMS, MalformedMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.serving.interface import Caller
    from mcpgroup_gateway.serving.targets import Target

_KEY_BYTES = 32


class RequestStates:
    """`seconds` gives `limits.inputSeconds`, how long a client may take to come back."""

    def __init__(
        self,
        group: str,
        seconds: Callable[[], float],
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._sealer = StateSealer(group, [secrets.token_bytes(_KEY_BYTES)])
        self._seconds = seconds
        self._wall_clock = wall_clock

    def seal(self, state: RequestState, target: Target, caller: Caller) -> str:
        return self._sealer.seal(
            state,
            caller=_name_of(caller),
            request=_digest(target),
            expires=self._wall_clock() + self._seconds(),
        )

    def open(self, target: Target, caller: Caller) -> RequestState:
        """What the client's token says. Raises `MalformedMessage` (-32602)."""
        assert target.inputs is not None  # noqa: S101 - only then is there a token
        try:
            return self._sealer.open(
                target.inputs.state,
                caller=_name_of(caller),
                request=_digest(target),
                now=self._wall_clock(),
            )
        except InvalidState as fault:
            raise MalformedMessage(INVALID_PARAMS, str(fault)) from fault


def _name_of(caller: Caller) -> str:
    """All anonymous callers of a tenant are one principal (DESIGN-MCP section 3)."""
    return caller.tenant or ""


def _digest(target: Target) -> str:
    return digest_of(target.method, target.facts.name, target.arguments)
