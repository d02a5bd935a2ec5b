"""What happened to the group: one JSON line an event, and the last 100 for `/status`.

    {"time": "2026-11-30T12:00:00.123Z", "kind": "rotation", "group": "search", "instance": "…",
     "member": "b", "to": "out", "reason": "connection refused"}

Every line has the first four keys; absent facts are left out. Routing events come once a call, so
they are written at log level Debug only and never shown in `/status`.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.telemetry.lines import line_of, rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_gateway.telemetry.lines import LineWriter
    from mcpgroup_gateway.telemetry.redaction import Redactor

RECENT_EVENTS: Final = 100
#: Characters of a text in an event.
MAX_TEXT: Final = 500

Field = str | int | float | bool | None


class EventLog:
    """Records events. Never raises, never blocks.

    With `console` a line is for people: `12:00:00 rotation b out: connection refused`.
    """

    def __init__(
        self,
        group: str,
        instance: str,
        writer: LineWriter,
        redactor: Redactor,
        *,
        console: bool = False,
        routing: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._group = group
        self._instance = instance
        self._writer = writer
        self._redactor = redactor
        self._console = console
        self._now = now
        self._recent: deque[dict[str, Field]] = deque(maxlen=RECENT_EVENTS)
        #: False: `routing` does nothing; ask before gathering its facts.
        self.wants_routing = routing

    def recent(self) -> list[dict[str, Field]]:
        """The last 100 events other than routing, oldest first, without group and instance."""
        return list(self._recent)

    def routing(
        self, *, tool: str, member: str, candidates: int, score: float | None, attempt: int
    ) -> None:
        """A member was selected for a call; `attempt` counts from 1."""
        if self.wants_routing:
            self._write(
                "routing",
                tool=tool,
                member=member,
                candidates=candidates,
                score=score,
                attempt=attempt,
            )

    def failover(self, *, tool: str, member: str, error: str, candidates: int) -> None:
        """A call moves away from `member`; `candidates` are left to try."""
        self._record("failover", tool=tool, member=member, reason=error, candidates=candidates)

    def circuit(
        self,
        *,
        old: str,
        new: str,
        consecutive_failures: int,
        member: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        """The group's circuit changed, or (with `member`) a member's breaker."""
        self._record(
            "circuit",
            member=member,
            endpoint=endpoint,
            **{"from": old},
            to=new,
            consecutiveFailures=consecutive_failures,
        )

    def rotation(
        self, *, member: str, to: str, reason: str, evidence: str = "", endpoint: str | None = None
    ) -> None:
        """A member came into (`in`) or left (`out`) rotation."""
        self._record(
            "rotation",
            member=member,
            endpoint=endpoint,
            to=to,
            reason=reason,
            evidence=evidence or None,
        )

    def recovery(
        self, *, member: str, old: str, new: str, reason: str = "", endpoint: str | None = None
    ) -> None:
        """A member's state changed: it ended, is being started, is ready again."""
        self._record(
            "recovery",
            member=member,
            endpoint=endpoint,
            **{"from": old},
            to=new,
            reason=reason or None,
        )

    def session(self, *, to: str, reason: str = "", member: str | None = None) -> None:
        """A client session ended other than by its client, or lost its member's session."""
        self._record("session", to=to, reason=reason or None, member=member)

    def config(self, *, to: str, reason: str = "", hash: str | None = None) -> None:  # noqa: A002
        """A configuration was `applied`, `rejected`, `failed` or partly `ignored`; `draining`."""
        self._record("config", to=to, reason=reason or None, hash=hash)

    def _record(self, kind: str, **fields: Field) -> None:
        event = self._write(kind, **fields)
        self._recent.append(
            {key: value for key, value in event.items() if key not in ("group", "instance")}
        )

    def _write(self, kind: str, **fields: Field) -> dict[str, Field]:
        event: dict[str, Field] = {
            "time": rfc3339(self._now()),
            "kind": kind,
            "group": self._group,
            "instance": self._instance,
        }
        for key, value in fields.items():
            if key == "endpoint" and value == fields.get("member"):
                continue  # a member's only endpoint has its name
            if isinstance(value, str):
                event[key] = self._redactor.text(value)[:MAX_TEXT]
            elif value is not None:
                event[key] = value
        self._writer.write(_for_people(event) if self._console else line_of(event))
        return event


def _for_people(event: dict[str, Field]) -> bytes:
    facts = dict(event)
    clock = str(facts.pop("time"))[11:19]
    kind = facts.pop("kind")
    for hidden in ("group", "instance"):
        facts.pop(hidden)
    words = [clock, str(kind), str(facts.pop("member", "group"))]
    old = facts.pop("from", None)
    new = facts.pop("to", None)
    if new is not None:
        words.append(f"{old} → {new}" if old is not None else str(new))
    reason = facts.pop("reason", None)
    words += [f"{key}={value}" for key, value in facts.items()]
    line = " ".join(words) + (f": {reason}" if reason else "")
    return (printable(line) + "\n").encode("utf-8", "replace")


def printable(text: str) -> str:
    """Without control characters: a member's error text must not steer a terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
