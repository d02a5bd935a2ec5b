"""The kind `McpServerGroup`: the object of Kubernetes and the file of `mcpgroup run` alike."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from mcpgroup_api import rules
from mcpgroup_api.deployment import Gateway, Monitoring, Service
from mcpgroup_api.fields import BY_NAME, GroupName, Host, Model, Namespace, Origin
from mcpgroup_api.members import Member, NameFilter
from mcpgroup_api.network import NetworkPolicy
from mcpgroup_api.patterns import LINES
from mcpgroup_api.policies import (
    Canary,
    CircuitBreaker,
    ConsistentHash,
    Drain,
    Health,
    Limits,
    Locality,
    MemberBreaker,
    Naming,
    Recovery,
    Retry,
    Route,
    Sessions,
    Strategy,
    TenantSource,
)

API_VERSION: Final = "mcpgroup.dev/v1alpha1"
KIND: Final = "McpServerGroup"

_Text = Annotated[str, Field(max_length=4096)]
_Map = Annotated[dict[_Text, Annotated[str, Field(max_length=262144)]], Field(max_length=1000)]
_Opaque = Annotated[tuple[Any, ...], Field(strict=False, max_length=1000)]


class Metadata(Model):
    """Kubernetes' ObjectMeta. What the API server writes is taken and left alone, so that the
    output of `kubectl get -o yaml` is a manifest too."""

    name: GroupName
    """Name of the group: at most 40 characters."""
    generate_name: _Text | None = None
    """What the API server made the name from."""
    namespace: Namespace | None = None
    """Namespace of the group."""
    generation: Annotated[int, Field(ge=0)] | None = None
    """Counts changes of the spec; written by the API server."""
    labels: _Map | None = None
    """Labels of the object."""
    annotations: _Map | None = None
    """Annotations of the object."""
    uid: _Text | None = None
    """Written by the API server."""
    resource_version: _Text | None = None
    """Written by the API server."""
    creation_timestamp: _Text | None = None
    """Written by the API server."""
    deletion_timestamp: _Text | None = None
    """Written by the API server."""
    deletion_grace_period_seconds: int | None = None
    """Written by the API server."""
    finalizers: _Opaque | None = None
    """Written by controllers."""
    owner_references: _Opaque | None = None
    """Written by controllers."""
    managed_fields: _Opaque | None = None
    """Written by the API server."""


class McpServerGroupSpec(Model):
    """What the group is made of and how it decides."""

    description: Annotated[str, Field(pattern=LINES, max_length=4096)] = ""
    """Told to clients as the description of the server."""
    replicas: Annotated[int, Field(ge=0, le=100)] = 2
    """Gateway pods, not members. `kubectl scale` and autoscalers write it."""
    strategy: Annotated[Strategy, Field(strict=False)] = Strategy.ROUND_ROBIN
    """How one of several members is chosen for a call."""
    consistent_hash: ConsistentHash = ConsistentHash()
    """What stays on one member under the strategy ConsistentHash."""
    min_healthy: Annotated[int, Field(ge=1, le=64)] = 1
    """With fewer members in rotation the group is Partial. At most the number of members other
    than the canary."""
    start_members: bool = True
    """Start members with the gateway; false: on their first use."""
    members: Annotated[
        tuple[Member, ...],
        Field(strict=False, min_length=1, max_length=64, json_schema_extra=BY_NAME),
    ]
    """The MCP servers of the group."""
    health: Health = Health()
    """Probes, and when a member leaves rotation and comes back."""
    circuit_breaker: CircuitBreaker = CircuitBreaker()
    """The group's circuit: a reported state, it never refuses a call."""
    member_breaker: MemberBreaker = MemberBreaker()
    """Takes a member that answers probes and fails calls out for calls."""
    recovery: Recovery = Recovery()
    """How members that are out are tried again."""
    retry: Retry = Retry()
    """When and how often a call moves to another member."""
    tools: NameFilter = NameFilter()
    """Tools that may be seen and called."""
    resources: NameFilter = NameFilter()
    """Resources, by URI, that may be seen and read."""
    prompts: NameFilter = NameFilter()
    """Prompts that may be seen and got."""
    names: Naming = Naming()
    """How tools and prompts of several members are named for clients."""
    routes: Annotated[tuple[Route, ...], Field(strict=False, max_length=32)] = ()
    """Which members serve which requests; the first match wins."""
    locality: Locality | None = None
    """Prefers members of the gateway's own region."""
    canary: Canary | None = None
    """A share of the tenants uses another member than the rest."""
    tenant: TenantSource | None = None
    """How a request's tenant is known."""
    sessions: Sessions = Sessions()
    """Client sessions of one replica."""
    limits: Limits = Limits()
    """What one replica takes at most."""
    allowed_hosts: Annotated[tuple[Host, ...], Field(strict=False, max_length=64)] = ()
    """Values of `Host` that are served; empty: any (bound to loopback: loopback names only)."""
    allowed_origins: Annotated[tuple[Origin, ...], Field(strict=False, max_length=64)] = ()
    """Values of `Origin` that are served besides requests without one."""
    drain: Drain = Drain()
    """How a replica ends."""
    service: Service = Service()
    """The Service in front of the gateway pods."""
    gateway: Gateway = Gateway()
    """The gateway pods."""
    network_policy: NetworkPolicy = NetworkPolicy()
    """Whether a NetworkPolicy guards the gateway pods, and whom it lets through."""
    monitoring: Monitoring = Monitoring()
    """What is made for the Prometheus operator."""

    @model_validator(mode="after")
    def _group_rules(self) -> Self:
        return rules.check(self, rules.spec)


class McpServerGroup(Model):
    """One highly available MCP endpoint in front of many MCP servers."""

    api_version: Literal["mcpgroup.dev/v1alpha1"]
    """`mcpgroup.dev/v1alpha1`"""
    kind: Literal["McpServerGroup"]
    """`McpServerGroup`"""
    metadata: Metadata
    """Name and more of the object."""
    spec: McpServerGroupSpec
    """What the group is made of and how it decides."""
    status: Annotated[dict[str, Any], Field(max_length=64)] | None = None
    """What the operator found: taken and left alone, as in the output of `kubectl get -o yaml`."""
