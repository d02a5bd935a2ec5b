"""What a group was told to do: plain numbers and names out of the manifest.

The core knows nothing of pydantic or YAML. `mcpgroup_gateway.manifest` turns a valid
`McpServerGroup` into one `GroupPolicy` and one `EndpointPolicy` an endpoint; a reload makes new
ones and hands them to `Group.reconfigure`. Strings that stand for an enum are spelled as in the
manifest (`"RoundRobin"`, `"Prefer"`). Defaults are those of DESIGN section 4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """`spec.health`. Thresholds are failures or successes in a row."""

    interval_seconds: float = 10
    timeout_seconds: float = 5
    unhealthy_threshold: int = 2
    healthy_threshold: int = 1
    startup_timeout_seconds: float = 60


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """`spec.memberBreaker`. A `failure_threshold` of 0 switches the breaker off."""

    failure_threshold: int = 5
    cooldown_seconds: float = 30


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """`spec.recovery`: the shortest and the longest wait before the next probe or start."""

    initial_backoff_seconds: float = 1
    max_backoff_seconds: float = 60


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`spec.retry`: attempts after the first one, and what they may cost."""

    attempts: int = 1
    backoff_milliseconds: float = 50
    budget_percent: float = 20
    trust_annotations: bool = True


@dataclass(frozen=True, slots=True)
class LocalityPolicy:
    """`spec.locality`. `mode` is `Prefer` or `Ignore`."""

    region: str | None = None
    mode: str = "Prefer"


@dataclass(frozen=True, slots=True)
class CanaryPolicy:
    """`spec.canary`. `pinned_tenants` maps a tenant to the name of its member."""

    member: str
    split_percent: float = 0
    pinned_tenants: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoutePolicy:
    """One of `spec.routes`: fnmatch patterns of its `match`, then what applies to what matched.

    `members` is the ordered fallback chain (empty: any member). `retries` and
    `backoff_milliseconds` replace the group's when not None.
    """

    tools: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    requires: frozenset[str] = frozenset()
    retries: int | None = None
    backoff_milliseconds: float | None = None


@dataclass(frozen=True, slots=True)
class FilterPolicy:
    """fnmatch patterns; an empty `allow` allows everything, `deny` wins."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FiltersPolicy:
    """The three filters of one level: the group's, or those of one member."""

    tools: FilterPolicy = FilterPolicy()
    resources: FilterPolicy = FilterPolicy()
    prompts: FilterPolicy = FilterPolicy()


@dataclass(frozen=True, slots=True)
class NamesPolicy:
    """`spec.names`. `prefix` is `Never`, `OnConflict` or `Always`."""

    prefix: str = "Never"
    separator: str = "__"


@dataclass(frozen=True, slots=True)
class HashPolicy:
    """`spec.consistentHash`. `key` is `Session`, `Tenant`, `Header` or `RemoteAddress`."""

    key: str = "Session"
    header: str | None = None


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How long a call may wait for a free slot (`limits.queueMilliseconds`)."""

    queue_milliseconds: float = 1000


@dataclass(frozen=True, slots=True)
class EndpointPolicy:
    """One endpoint as configured: what it inherits from its member.

    `source` is the key under which the manifest describes it (`http`, `stdio`);
    `max_concurrent` 0 means no limit.
    """

    member: str
    source: str = "stdio"
    weight: int = 1
    priority: int = 1
    region: str | None = None
    resource_tags: frozenset[str] = frozenset()
    max_concurrent: int = 0


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """One group as configured. `members` are the names in manifest order, which breaks ties."""

    name: str
    members: tuple[str, ...] = ()
    strategy: str = "RoundRobin"
    hashing: HashPolicy = HashPolicy()
    min_healthy: int = 1
    health: HealthPolicy = HealthPolicy()
    circuit_failure_threshold: int = 10
    breaker: BreakerPolicy = BreakerPolicy()
    recovery: RecoveryPolicy = RecoveryPolicy()
    retry: RetryPolicy = RetryPolicy()
    filters: FiltersPolicy = FiltersPolicy()
    member_filters: Mapping[str, FiltersPolicy] = field(default_factory=dict)
    names: NamesPolicy = NamesPolicy()
    routes: tuple[RoutePolicy, ...] = ()
    locality: LocalityPolicy = LocalityPolicy()
    canary: CanaryPolicy | None = None
    queue: QueuePolicy = QueuePolicy()
    input_seconds: float = 900
