"""Which member a tenant is sent to before any strategy is asked.

A pinned tenant goes to its member. Of the others a fixed share goes to the canary, always the same
tenants: the bucket of a tenant is a hash of the group's name and the tenant, so that two groups
try their canaries on different people.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpgroup_gateway.core.policy import CanaryPolicy

BUCKETS = 100


def bucket(group: str, tenant: str) -> int:
    """The tenant's bucket in the group, 0 to 99: SHA-256 of both names modulo 100.

    A NUL divides the names: neither can contain one, so that no two pairs read the same.
    """
    digest = hashlib.sha256(f"{group}\0{tenant}".encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest) % BUCKETS


@dataclass(frozen=True, slots=True)
class Target:
    """`member` is where the tenant should go, `reason` is `pinned` or `canary`."""

    member: str
    reason: str


def target_of(policy: CanaryPolicy | None, group: str, tenant: str | None) -> Target | None:
    """Where the tenant is to go; None leaves it to the strategy over the stable pool."""
    if policy is None or tenant is None:
        return None
    pinned = policy.pinned_tenants.get(tenant)
    if pinned is not None:
        return Target(pinned, "pinned")
    if policy.split_percent > 0 and bucket(group, tenant) < policy.split_percent:
        return Target(policy.member, "canary")
    return None


def sees_canary(policy: CanaryPolicy | None, group: str, tenant: str | None) -> bool:
    """Whether the tenant's lists and names are those of the canary."""
    target = target_of(policy, group, tenant)
    return policy is not None and target is not None and target.member == policy.member
