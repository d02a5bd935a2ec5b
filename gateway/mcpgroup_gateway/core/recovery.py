"""When to probe or start a member next. Pure arithmetic; all times in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpgroup_gateway.core.policy import RecoveryPolicy


def wait(
    outage_seconds: float,
    policy: RecoveryPolicy,
    *,
    http_probe: bool,
    interval_seconds: float,
    jitter: float,
) -> float:
    """How long to wait before the next probe or start of a member that is out.

    A third of the outage so far, so that the lag stays in proportion to what was lost anyway;
    `http_probe` caps it at the probe interval, since a probe costs next to nothing there. `jitter`
    is a random number in 0..1 and takes off up to 20 %, so that replicas do not march in step.
    """
    seconds = max(outage_seconds / 3, policy.initial_backoff_seconds)
    seconds = min(seconds, policy.max_backoff_seconds)
    if http_probe:
        seconds = min(seconds, interval_seconds)
    return seconds * (1 - 0.2 * jitter)


def regular(interval_seconds: float, *, jitter: float) -> float:
    """From the begin of one probe of a healthy member to the next: less 2 to 10 %, by jitter.

    The 2 % pay for timers and messages that take time: a member that hangs leaves rotation within
    interval times threshold plus timeout, not a little after.
    """
    return interval_seconds * (0.98 - 0.08 * jitter)
