"""One JSON line a client request, sampled and redacted.

    {"time": "…Z", "kind": "request", "group": "search", "instance": "…", "method": "tools/call",
     "name": "get_time", "outcome": "ok", "seconds": 0.0042, "attempts": 1, "member": "a",
     "session": "5f0c…", "tenant": "acme"}

`session` is a hash of the session id, which is a credential. Arguments are written only on demand.
"""

from __future__ import annotations

import random
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from mcpgroup_gateway.telemetry.lines import line_of, rfc3339
from mcpgroup_gateway.wire.protocol import KNOWN_METHODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.telemetry.lines import LineWriter
    from mcpgroup_gateway.telemetry.redaction import Redactor

#: Characters of each text in a line; a client chooses them.
MAX_TEXT: Final = 256
#: Arguments with more bytes are left out.
MAX_ARGUMENT_BYTES: Final = 64 * 1024


class RequestLog:
    """Writes a share of the requests: `sample_ratio` 0..1, each chosen at random."""

    def __init__(
        self,
        group: str,
        instance: str,
        writer: LineWriter,
        redactor: Redactor,
        *,
        sample_ratio: float = 1.0,
        arguments: bool = False,
        draw: Callable[[], float] = random.random,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._group = group
        self._instance = instance
        self._writer = writer
        self._redactor = redactor
        self._ratio = sample_ratio
        self._arguments = arguments
        self._draw = draw
        self._now = now

    def record(
        self,
        *,
        method: str,
        outcome: str,
        seconds: float,
        name: str = "",
        attempts: int = 0,
        member: str | None = None,
        tenant: str | None = None,
        session_id: str | None = None,
        error: str | None = None,
        arguments: bytes | None = None,
    ) -> None:
        """Log a finished request, if it is in the sample. Never blocks, never raises.

        `name` is the tool, prompt or URI; `arguments` the client's JSON.
        """
        if self._ratio < 1.0 and self._draw() >= self._ratio:
            return
        hide = self._redactor.text
        line: dict[str, object] = {
            "time": rfc3339(self._now()),
            "kind": "request",
            "group": self._group,
            "instance": self._instance,
            "method": method if method in KNOWN_METHODS else hide(method)[:MAX_TEXT],
            "outcome": outcome,
            "seconds": round(seconds, 6),
            "attempts": attempts,
        }
        if name:
            line["name"] = hide(name)[:MAX_TEXT]
        if member is not None:
            line["member"] = member
        if tenant is not None:
            line["tenant"] = hide(tenant)[:MAX_TEXT]
        if session_id is not None:
            line["session"] = session_hash(session_id)
        if error is not None:
            line["error"] = hide(error)[:MAX_TEXT]
        if self._arguments and arguments is not None:
            line["arguments"] = self._readable(arguments)
        self._writer.write(line_of(line))

    def _readable(self, arguments: bytes) -> object:
        if len(arguments) > MAX_ARGUMENT_BYTES:
            return f"{len(arguments)} bytes"
        try:
            return self._redactor.value(msgspec.json.decode(arguments))
        except (msgspec.DecodeError, RecursionError):
            return f"{len(arguments)} bytes that are not JSON"


def session_hash(session_id: str) -> str:
    """Tells sessions apart in logs without giving one away: 12 hexadecimal digits."""
    return sha256(session_id.encode("utf-8", "replace")).hexdigest()[:12]
