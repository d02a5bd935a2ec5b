"""What the admin port may ask of the replica; the replica implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mcpgroup_gateway.wire.protocol import Kind


class MemberNotFound(LookupError):
    """No member of the configuration that serves has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no member is named {name!r}")


class ActionRefused(Exception):
    """The action makes no sense now; the text says why, for people."""


class TokenSource(Protocol):
    """What actions must present; asked at each of them, because keys rotate."""

    def __call__(self) -> str:
        """Never empty. Raises `KeyUnusable` while there is none: then actions are refused."""
        ...


class ReplicaView(Protocol):
    """One replica as its operators see it. All methods are called on the replica's event loop."""

    def status(self) -> dict[str, object]:
        """The `GatewayStatus` of DESIGN section 9; times in RFC 3339, without secrets."""
        ...

    def explain(self, kind: Kind, name: str, tenant: str | None) -> dict[str, object]:
        """The selection funnel for a call of `name`, as if it came now; changes nothing.

        {"kind": "tools", "name": "read", "tenant": null,
         "steps": [{"step": "rotation", "left": ["a", "c"], "dropped": {"b": "evicted: …"}}, …],
         "choice": {"member": "a", "reason": "strategy"} or null,
         "refusal": {"reason": "no_member", "retryAfterSeconds": 1.5} or null}
        """
        ...

    def is_started(self) -> bool:
        """The configuration was loaded and the listener is up."""
        ...

    def is_ready(self) -> bool:
        """Traffic may come: started, first readiness was reached, and not draining.

        Never depends on members afterwards, so that dead members do not also take the Service away
        from callers who deserve an answer.
        """
        ...

    def rebalance(self) -> None:
        """Probe evicted members now, close the group circuit, forget the strategy's history."""
        ...

    async def drain(self, member: str) -> None:
        """Finish the member's calls, send it no new ones. Raises MemberNotFound, ActionRefused."""
        ...

    async def resume(self, member: str) -> None:
        """End a drain. Raises MemberNotFound, ActionRefused."""
        ...

    async def start(self, member: str) -> None:
        """Start a member that is cold, failed or stopped. Raises MemberNotFound, ActionRefused."""
        ...

    async def stop(self, member: str) -> None:
        """Stop a member until somebody starts it. Raises MemberNotFound, ActionRefused."""
        ...
