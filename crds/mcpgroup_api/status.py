"""The status of a group: written by the operator alone, here for the schema of the CRD.

Source of the fields of `Condition` and of their bounds: Kubernetes' `metav1.Condition`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from mcpgroup_api.fields import Model
from mcpgroup_api.patterns import CONDITION_REASON, CONDITION_TYPE, CONFIG_HASH, SHARE

MAX_GATEWAYS = 128
MAX_CONDITIONS = 16

_Count = Annotated[int, Field(ge=0, le=1000000)]
# API servers keep bounds as floats: the largest whole number that is one exactly.
_Generation = Annotated[int, Field(ge=0, le=2**53)]
_Time = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
_Hash = Annotated[str, Field(pattern=CONFIG_HASH, max_length=80)]


class GroupState(StrEnum):
    """The worst state among the replicas counted; Unknown while none of them tells."""

    INACTIVE = "Inactive"
    DEGRADED = "Degraded"
    PARTIAL = "Partial"
    HEALTHY = "Healthy"
    UNKNOWN = "Unknown"


class ConditionStatus(StrEnum):
    """Kubernetes' own words."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Model):
    """One aspect of the group."""

    type: Annotated[str, Field(pattern=CONDITION_TYPE, max_length=316)]
    """Name of the condition, as in `Ready`."""
    status: ConditionStatus
    """True, False or Unknown."""
    observed_generation: _Generation | None = None
    """The `metadata.generation` that this was found at."""
    last_transition_time: _Time
    """When `status` last changed."""
    reason: Annotated[str, Field(pattern=CONDITION_REASON, min_length=1, max_length=1024)]
    """Why, in one word for programs."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, for people."""


class GatewayRow(Model):
    """What one gateway pod said when it was last asked. Absent: it said nothing yet."""

    pod: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the pod."""
    ready: bool | None = None
    """The pod is Ready."""
    config_hash: _Hash | None = None
    """Hash of the configuration that it runs."""
    state: GroupState | None = None
    """State of the group as this replica sees it."""
    circuit_open: bool | None = None
    """The circuit of the group is open on this replica."""
    in_rotation: _Count | None = None
    """Members in rotation on this replica."""
    healthy: _Count | None = None
    """Members in rotation that are ready, too."""
    selectable: _Count | None = None
    """Members that a call can be sent to right now."""
    since: _Time | None = None
    """When anything in this row last changed."""


class McpServerGroupStatus(Model):
    """What the operator found."""

    observed_generation: _Generation | None = None
    """The `metadata.generation` that this status tells of."""
    replicas: _Count | None = None
    """Gateway pods."""
    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Selects the gateway pods; read by autoscalers."""
    endpoint: Annotated[str, Field(max_length=2048)] | None = None
    """Where clients reach the group inside of the cluster."""
    config_hash: _Hash | None = None
    """Hash of the configuration that every gateway should run."""
    state: GroupState | None = None
    """The worst state among the replicas counted: Inactive, Degraded, Partial or Healthy."""
    members: Annotated[str, Field(pattern=SHARE, max_length=16)] | None = None
    """The lowest share of members in rotation among the replicas counted, as in `2/3`."""
    gateways: Annotated[
        tuple[GatewayRow, ...],
        Field(
            strict=False,
            max_length=MAX_GATEWAYS,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["pod"],
            },
        ),
    ] = ()
    """One row for each gateway pod."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            strict=False,
            max_length=MAX_CONDITIONS,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        ),
    ] = ()
    """Accepted, ConfigApplied, Available, ReplicasAgree, MembersConsistent, Progressing, Healthy
    and Ready."""
