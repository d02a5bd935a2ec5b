"""Calls that seem to kill whoever runs them.

Two losses by the same tool and arguments within a minute keep that pair from every member for a
minute, so that one poisoned call cannot take down a whole group by being moved or repeated.

The arguments are compared as the bytes that were received. A loop that repeats a call spells it the
same each time; a canonical form would cost a parse of every call for nothing.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field

WINDOW_SECONDS = 60.0
QUARANTINE_SECONDS = 60.0
#: The loss with which a quarantine begins.
FATAL_LOSS = 2
_KEPT_LOSSES = 16


@dataclass(slots=True)
class _Record:
    #: When a loss on an endpoint was counted, by endpoint id.
    losses: list[tuple[str, float]] = field(default_factory=list)
    until: float = 0.0


class Quarantine:
    """Times are seconds of one monotonic clock. The table forgets the pair lost longest ago."""

    def __init__(self, max_pairs: int = 1024) -> None:
        self._max_pairs = max_pairs
        self._records: OrderedDict[bytes, _Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def record_loss(
        self, tool: str, arguments: bytes, *, endpoint: str, began_at: float, now: float
    ) -> bool:
        """Count an attempt that ended in exit or reset; True when the pair is in quarantine now.

        A loss whose attempt began before the last one counted on the same endpoint belongs to the
        same incident: fifty equal calls that die with one process are one loss, and no sign that
        the call killed it.
        """
        key = _digest(tool, arguments)
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = _Record()
            if len(self._records) > self._max_pairs:
                self._records.popitem(last=False)
        else:
            self._records.move_to_end(key)
        if any(name == endpoint and began_at <= at for name, at in record.losses):
            return now < record.until
        record.losses = [(name, at) for name, at in record.losses if now - at < WINDOW_SECONDS]
        record.losses.append((endpoint, now))
        if len(record.losses) >= FATAL_LOSS:
            record.until = now + QUARANTINE_SECONDS
            del record.losses[:-_KEPT_LOSSES]
        return now < record.until

    def remaining(self, tool: str, arguments: bytes, *, now: float) -> float:
        """Seconds for which no attempt of this call may be sent; 0 when it may."""
        if not self._records:
            return 0.0
        key = _digest(tool, arguments)
        record = self._records.get(key)
        if record is None:
            return 0.0
        if now < record.until:
            return record.until - now
        if all(now - at >= WINDOW_SECONDS for _, at in record.losses):
            del self._records[key]
        return 0.0


def _digest(tool: str, arguments: bytes) -> bytes:
    name = tool.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(b"%d:%b%b" % (len(name), name, arguments), digest_size=16).digest()
