"""The words that labels of metrics may take (DESIGN section 10).

Members and tools come from configuration and catalogue instead.
"""

from __future__ import annotations

from typing import Final

OUTCOMES: Final = (
    "ok",
    "tool_error",
    "rpc_error",
    "member_failed",
    "timeout",
    "no_member",
    "overloaded",
    "denied",
    "internal",
    "invalid",
    "cancelled",
)
#: What a try on one member can come to; `overloaded` is a member that said it is busy.
ATTEMPT_OUTCOMES: Final = (
    "ok",
    "tool_error",
    "rpc_error",
    "member_failed",
    "timeout",
    "overloaded",
    "cancelled",
)
SELECTION_REASONS: Final = (
    "strategy",
    "canary",
    "pinned",
    "canary_fallback",
    "failover",
    "prefix",
    "affinity",
)
REFUSAL_REASONS: Final = ("no_member", "overloaded", "draining", "denied", "poison")
FAILOVER_REASONS: Final = ("connect", "lost", "busy", "evicted")
EVICTION_REASONS: Final = ("hard", "soft")
PROBE_RESULTS: Final = ("ok", "failed", "timeout", "ignored")
START_RESULTS: Final = ("ok", "failed")
#: `completed` status 0, `error` another status, `signal`, `stopped` and `idle` by ourselves.
EXIT_REASONS: Final = ("completed", "error", "signal", "stopped", "idle")
#: Why a client session ended other than by DELETE.
SESSION_LOSSES: Final = ("idle", "capacity", "member", "shutdown")
#: `failed`: a valid change none of whose new members became ready, so that the old set serves on.
RELOAD_RESULTS: Final = ("applied", "rejected", "failed")
