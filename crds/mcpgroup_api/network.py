"""Who may reach the pods of a group: `spec.networkPolicy`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from mcpgroup_api import pod_rules
from mcpgroup_api.fields import Cidr, LabelKey, LabelValue, Model
from mcpgroup_api.rules import check


class LabelOperator(StrEnum):
    """How labels are compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class LabelRequirement(Model):
    """A condition on one label."""

    key: LabelKey
    """Key of the label."""
    operator: Annotated[LabelOperator, Field(strict=False)]
    """In and NotIn compare `values`; Exists and DoesNotExist take none."""
    values: Annotated[tuple[LabelValue, ...], Field(strict=False, max_length=8)] = ()
    """Values that the label may or may not have."""

    @model_validator(mode="after")
    def _values_as_the_operator_wants(self) -> Self:
        return check(self, pod_rules.label_requirement)


class LabelSelector(Model):
    """Selects by labels; all conditions must hold, without any it selects everything."""

    match_labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=8)] = {}  # noqa: RUF012
    """Labels and the values that they must have."""
    match_expressions: Annotated[
        tuple[LabelRequirement, ...], Field(strict=False, max_length=8)
    ] = ()
    """Further conditions."""


class IpBlock(Model):
    """A range of addresses."""

    cidr: Cidr
    """The range, as in `10.0.0.0/8`."""
    except_: Annotated[tuple[Cidr, ...], Field(strict=False, max_length=16, alias="except")] = ()
    """Ranges inside of `cidr` that are left out."""


class NetworkPeer(Model):
    """Kubernetes' NetworkPolicyPeer: pods, namespaces, both together, or a range of addresses."""

    pod_selector: LabelSelector | None = None
    """Pods: of the selected namespaces, else of the group's own."""
    namespace_selector: LabelSelector | None = None
    """Namespaces: all their pods, unless `podSelector` says which."""
    ip_block: IpBlock | None = None
    """Addresses, most often outside of the cluster."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        return check(self, pod_rules.network_peer)


NetworkPeers = Annotated[tuple[NetworkPeer, ...], Field(strict=False, max_length=16)]


class NetworkPolicy(Model):
    """Whether a NetworkPolicy guards the gateway pods, and whom it lets through."""

    enabled: bool = False
    """Make a NetworkPolicy for incoming traffic."""
    egress: bool = False
    """Let the pods reach nothing but DNS, each other and what their members need."""
    from_: Annotated[NetworkPeers, Field(alias="from")] = ()
    """Who may call the MCP port; empty: everyone."""
    metrics_from: NetworkPeers = ()
    """Who may read metrics at the admin port, besides the operator."""
