"""How a group decides: health, breakers, recovery, failover, routes, canary, limits."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from mcpgroup_api import rules
from mcpgroup_api.fields import (
    FewNames,
    HeaderName,
    Label,
    Labels,
    MemberName,
    MemberNames,
    Model,
    Name,
    Tenant,
)
from mcpgroup_api.patterns import SEPARATOR


class Strategy(StrEnum):
    """How one of several members is chosen for a call."""

    ROUND_ROBIN = "RoundRobin"
    WEIGHTED_ROUND_ROBIN = "WeightedRoundRobin"
    LEAST_CONNECTIONS = "LeastConnections"
    RANDOM = "Random"
    PRIORITY = "Priority"
    LEAST_LATENCY = "LeastLatency"
    CONSISTENT_HASH = "ConsistentHash"


class HashKey(StrEnum):
    """What a caller is recognised by under the strategy ConsistentHash."""

    SESSION = "Session"
    TENANT = "Tenant"
    HEADER = "Header"
    REMOTE_ADDRESS = "RemoteAddress"


class ConsistentHash(Model):
    """What stays on one member under the strategy ConsistentHash."""

    key: Annotated[HashKey, Field(strict=False)] = HashKey.SESSION
    """Calls with the same key go to the same member as long as it can be selected."""
    header: HeaderName | None = None
    """The header to hash, with `key: Header`."""

    @model_validator(mode="after")
    def _header_with_its_key(self) -> Self:
        return rules.check(self, rules.consistent_hash)


class Health(Model):
    """Probes, and when a member leaves rotation and comes back."""

    interval_seconds: Annotated[int, Field(ge=1, le=3600)] = 10
    """Time between two probes of a member in rotation."""
    timeout_seconds: Annotated[int, Field(ge=1, le=300)] = 5
    """A probe without an answer for so long has failed."""
    unhealthy_threshold: Annotated[int, Field(ge=1, le=100)] = 2
    """Failures in a row that take a member out of rotation."""
    healthy_threshold: Annotated[int, Field(ge=1, le=100)] = 1
    """Successes in a row that bring a member back."""
    startup_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """How long a start may take, from the process or connection to the first handshake."""


class CircuitBreaker(Model):
    """The group's circuit: a reported state, it never refuses a call."""

    failure_threshold: Annotated[int, Field(ge=1, le=1000)] = 10
    """Failures in a row, over all members, that open it."""


class MemberBreaker(Model):
    """Takes a member that answers probes and fails calls out for calls."""

    failure_threshold: Annotated[int, Field(ge=0, le=1000)] = 5
    """Failed calls in a row that open the breaker; 0: never."""
    cooldown_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """How long it stays open before one call may try."""


class Recovery(Model):
    """How members that are out are tried again: after a third of the outage so far."""

    initial_backoff_seconds: Annotated[int, Field(ge=1, le=3600)] = 1
    """The shortest wait between two tries."""
    max_backoff_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """The longest wait between two tries."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        return rules.check(self, rules.recovery)


class Retry(Model):
    """Calls that may run twice move to another member when theirs fails."""

    attempts: Annotated[int, Field(ge=0, le=10)] = 1
    """Further attempts of a safe call; 0: none. An attempt of which nothing was sent is free."""
    backoff_milliseconds: Annotated[int, Field(ge=0, le=60000)] = 50
    """Wait before a further attempt, with jitter."""
    budget_percent: Annotated[int, Field(ge=0, le=100)] = 20
    """Further attempts over 10 s, as a share of first attempts, with 10 more allowed."""
    trust_annotations: bool = True
    """Take a tool's `readOnlyHint` and `idempotentHint` as a promise that it may run twice."""


class PrefixMode(StrEnum):
    """When a member's name stands before its tools and prompts."""

    NEVER = "Never"
    ON_CONFLICT = "OnConflict"
    ALWAYS = "Always"


class Naming(Model):
    """How tools and prompts of several members are named for clients."""

    prefix: Annotated[PrefixMode, Field(strict=False)] = PrefixMode.NEVER
    """Never, OnConflict (one name, two definitions) or Always."""
    separator: Annotated[str, Field(pattern=SEPARATOR, min_length=1, max_length=4)] = "__"
    """Stands between the member's name and the bare name."""


class RouteMatch(Model):
    """Which requests a route takes: those that any of the lists names."""

    tools: FewNames = ()
    """Patterns (fnmatch) of tools."""
    resources: FewNames = ()
    """Patterns (fnmatch) of resource URIs."""
    prompts: FewNames = ()
    """Patterns (fnmatch) of prompts."""
    methods: Annotated[tuple[Name, ...], Field(strict=False, max_length=32)] = ()
    """Methods of the protocol, as in `completion/complete`."""

    @model_validator(mode="after")
    def _matches_something(self) -> Self:
        return rules.check(self, rules.route_match)


class Route(Model):
    """Sends matching requests to some members in order. The first match wins."""

    match: RouteMatch
    """Which requests this route takes."""
    members: MemberNames = ()
    """Fallback chain: the first that can be selected takes the request. Empty: all members."""
    requires: Labels = ()
    """Only members with all these resource tags."""
    retries: Annotated[int, Field(ge=0, le=10)] | None = None
    """Replaces `retry.attempts` for these requests."""
    backoff_milliseconds: Annotated[int, Field(ge=0, le=60000)] | None = None
    """Replaces `retry.backoffMilliseconds` for these requests."""


class LocalityMode(StrEnum):
    """Whether regions are looked at."""

    PREFER = "Prefer"
    IGNORE = "Ignore"


class Locality(Model):
    """Prefers members of the gateway's own region; the others serve when there are none."""

    region: Label
    """The region that this gateway is in."""
    mode: Annotated[LocalityMode, Field(strict=False)] = LocalityMode.PREFER
    """Prefer members of the region, or ignore regions."""


class Canary(Model):
    """A share of the tenants uses another member than the rest. Needs `tenant`."""

    member: MemberName
    """The member under trial. It serves nobody else while a stable member is left."""
    split_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Share of the tenants, chosen by a hash of group and tenant."""
    pinned_tenants: Annotated[dict[Tenant, MemberName], Field(max_length=256)] = {}  # noqa: RUF012
    """Tenants that always go to the named member, whatever the split."""


class TenantSource(Model):
    """How a request's tenant is known."""

    header: HeaderName
    """The request header that names the tenant, as in `X-Tenant-ID`."""


class Sessions(Model):
    """Client sessions of one replica."""

    idle_seconds: Annotated[int, Field(ge=1, le=604800)] = 1800
    """A session without a request for so long ends."""
    max: Annotated[int, Field(ge=1, le=1000000)] = 10000
    """Sessions that may be open at once."""


class Limits(Model):
    """What one replica takes at most."""

    request_bytes: Annotated[int, Field(ge=1024, le=268435456)] = 4194304
    """Size of one message of a client."""
    response_bytes: Annotated[int, Field(ge=1024, le=268435456)] = 8388608
    """Size of one message of a member."""
    requests_in_flight: Annotated[int, Field(ge=1, le=100000)] = 1024
    """Requests served at once."""
    queue_milliseconds: Annotated[int, Field(ge=0, le=600000)] = 1000
    """How long a call waits when every member has reached its `maxConcurrentRequests`."""
    input_seconds: Annotated[int, Field(ge=1, le=86400)] = 900
    """How long a client may take to answer what a member asks of it (elicitation, sampling,
    roots). The deadlines of the call stand still meanwhile."""


class Drain(Model):
    """How a replica ends."""

    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """Calls in flight may take so long after SIGTERM."""
