"""Pieces of pods that a group passes on as Kubernetes has them, as far as they are allowed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from mcpgroup_api import pod_rules
from mcpgroup_api.fields import (
    EnvValue,
    LabelKey,
    LabelValue,
    Model,
    SecretName,
    VariableName,
)
from mcpgroup_api.patterns import QUANTITY
from mcpgroup_api.rules import check


def _whole_number_as_text(value: Any) -> Any:
    """`cpu: 2` is written without quotes as often as with them."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return str(value)
    return value


Quantity = Annotated[
    str,
    Field(
        pattern=QUANTITY,
        min_length=1,
        max_length=32,
        json_schema_extra={"x-kubernetes-int-or-string": True},
    ),
    BeforeValidator(_whole_number_as_text),
]
ResourceName = Literal["cpu", "memory", "ephemeral-storage"]
ResourceList = Annotated[dict[ResourceName, Quantity], Field(max_length=3)]
Fragment = Annotated[dict[str, Any], Field(max_length=16)]


class Resources(Model):
    """CPU, memory and disk of a container."""

    requests: ResourceList = {}  # noqa: RUF012
    """What is set aside for it, as in `{cpu: 250m, memory: 256Mi}`."""
    limits: ResourceList = {}  # noqa: RUF012
    """What it may take at most, no less than what it requests."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        return check(self, pod_rules.resources)


class TolerationOperator(StrEnum):
    """How a toleration is compared with a taint."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(Model):
    """A taint of nodes that the pods accept."""

    key: LabelKey | None = None
    """Key of the taint; absent, with `operator: Exists`: any."""
    operator: Annotated[TolerationOperator, Field(strict=False)] = TolerationOperator.EQUAL
    """Equal compares `value`; Exists takes any value."""
    value: LabelValue | None = None
    """Value of the taint."""
    effect: Annotated[TaintEffect | None, Field(strict=False)] = None
    """Effect of the taint; absent: any."""
    toleration_seconds: Annotated[int, Field(ge=0, le=31536000)] | None = None
    """How long pods stay on a node that got a NoExecute taint; absent: for good."""

    @model_validator(mode="after")
    def _as_kubernetes_wants_it(self) -> Self:
        return check(self, pod_rules.toleration)


class Affinity(Model):
    """Which nodes and which pods the pods are drawn to, word for word as in a pod. The API
    server looks into it when the Deployment is written."""

    node_affinity: Fragment | None = None
    """Nodes, by their labels."""
    pod_affinity: Fragment | None = None
    """Pods to be near to."""
    pod_anti_affinity: Fragment | None = None
    """Pods to be away from."""


class PullSecret(Model):
    """A Secret with the credentials of a registry."""

    name: SecretName
    """Name of the Secret, in the namespace of the group."""


class PodVariable(Model):
    """A variable in the environment of the gateway."""

    name: VariableName
    """Name of the variable, unique in the list."""
    value: EnvValue = ""
    """Its value; visible to everyone who may read the group. Kubernetes expands `$(NAME)`."""

    @model_validator(mode="after")
    def _not_ours(self) -> Self:
        return check(self, pod_rules.pod_variable)
