"""How an attempt, a probe or a start can fail, and what each failure proves.

The table is DESIGN section 5: hard evidence counts for rotation, breaker and circuit; soft evidence
takes a member out for new calls only; the rest proves nothing about the member.
"""

from __future__ import annotations

from enum import StrEnum


class Failure(StrEnum):
    """Why something failed, as seen by the member layer."""

    REFUSED = "refused"  # connection refused, name not resolved, no route
    CONNECT_TIMEOUT = "connect_timeout"
    TLS = "tls"
    RESET = "reset"  # the connection or its stream ended before the answer
    EXIT = "exit"  # the process ended
    HTTP_ERROR = "http_error"  # a bare HTTP status without a JSON-RPC answer
    MALFORMED = "malformed"  # an answer that is not MCP
    TOO_LARGE = "too_large"  # over limits.responseBytes, or a line over 16 MiB
    START_FAILED = "start_failed"  # no process, no `initialize` answer in time, refused version
    COMMAND_NOT_FOUND = "command_not_found"
    PROBE_TIMEOUT = "probe_timeout"
    DEADLINE = "deadline"  # a call passed the member's deadline
    BUSY = "busy"  # 429, or 503 with Retry-After: not run
    NOT_RUN = "not_run"  # 401, 403, 404, 405 without a JSON-RPC answer: not run
    SESSION_LOST = "session_lost"  # the member no longer knows our session: not run
    EVICTED = "evicted"  # we moved the call away because its member left rotation
    CANCELLED = "cancelled"  # by the caller
    STALLED = "stalled"  # our own loop was late; proves nothing


class Evidence(StrEnum):
    HARD = "hard"
    SOFT = "soft"
    NONE = "none"


#: Failures that end a member's process or connection after the call was handed over: the kind that
#: a poisoned call leaves behind (DESIGN section 5, quarantine).
LOSSES = frozenset({Failure.EXIT, Failure.RESET})

#: Failures that prove that the call was not run, whatever was written to the socket.
PROVEN_NOT_RUN = frozenset({Failure.BUSY, Failure.NOT_RUN, Failure.SESSION_LOST})

_HARD = frozenset(
    {
        Failure.REFUSED,
        Failure.CONNECT_TIMEOUT,
        Failure.TLS,
        Failure.RESET,
        Failure.EXIT,
        Failure.HTTP_ERROR,
        Failure.MALFORMED,
        Failure.START_FAILED,
        Failure.COMMAND_NOT_FOUND,
    }
)

#: 401, 403 and 405 are missing here: a member that answers so to a probe or start is of no use.
_NO_EVIDENCE = frozenset(
    {
        Failure.BUSY,
        Failure.SESSION_LOST,
        Failure.EVICTED,
        Failure.CANCELLED,
        Failure.STALLED,
    }
)


def evidence_of_call(failure: Failure) -> Evidence:
    """What a failed call proves for rotation, breaker and circuit.

    `DEADLINE` is `NONE` here: it counts for the member breaker only (`Group.attempt_failed`).
    """
    return Evidence.HARD if failure in _HARD else Evidence.NONE


def evidence_of_probe(failure: Failure, calls_in_flight: int) -> Evidence:
    """What a failed probe proves: many servers answer nothing while a tool runs."""
    if failure in _NO_EVIDENCE:
        return Evidence.NONE
    if failure is Failure.PROBE_TIMEOUT and calls_in_flight > 0:
        return Evidence.SOFT
    return Evidence.HARD
