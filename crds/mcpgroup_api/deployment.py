"""How a group runs on Kubernetes: the operator acts on these, a gateway never sees them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from mcpgroup_api import pod_rules
from mcpgroup_api.fields import (
    BY_NAME,
    AnnotationValue,
    Image,
    LabelKey,
    LabelValue,
    LogFile,
    Model,
    SecretName,
)
from mcpgroup_api.podspec import (
    Affinity,
    PodVariable,
    PullSecret,
    Resources,
    Toleration,
)
from mcpgroup_api.rules import check

LabelMap = Annotated[dict[LabelKey, LabelValue], Field(max_length=16)]
AnnotationMap = Annotated[dict[LabelKey, AnnotationValue], Field(max_length=16)]


class ServiceType(StrEnum):
    """From where the group's Service can be reached."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class SessionAffinity(StrEnum):
    """Whether the Service keeps the connections of one address on one replica."""

    NONE = "None"
    CLIENT_IP = "ClientIP"


class Service(Model):
    """The Service in front of the gateway pods."""

    type: Annotated[ServiceType, Field(strict=False)] = ServiceType.CLUSTER_IP
    """Type of the Service."""
    port: Annotated[int, Field(ge=1, le=65535)] = 80
    """Port of the Service, as in `http://<group>.<namespace>.svc:<port>/mcp`."""
    annotations: AnnotationMap = {}  # noqa: RUF012
    """Annotations of the Service, for example for a load balancer."""
    session_affinity: Annotated[SessionAffinity, Field(strict=False)] = SessionAffinity.NONE
    """ClientIP keeps the connections of one address on one replica."""

    @model_validator(mode="after")
    def _keys_are_free(self) -> Self:
        return check(self, pod_rules.service)


class LogLevel(StrEnum):
    """From which level on the gateway logs."""

    DEBUG = "Debug"
    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"


class RequestLog(Model):
    """One JSON line for each request, secrets redacted."""

    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the requests that is logged."""
    file: LogFile = "-"
    """`-` is standard error; a file is one in `/tmp`, the only folder that can be written."""
    max_megabytes: Annotated[int, Field(ge=1, le=1024)] = 100
    """Size in MiB at which the file is rotated; three old ones stay."""


class Gateway(Model):
    """The gateway pods. A change rolls them out anew."""

    image: Image | None = None
    """Image of the gateway; the operator's default when absent."""
    resources: Resources = Resources()
    """CPU, memory and disk of the gateway's container, its stdio members included."""
    node_selector: LabelMap = {}  # noqa: RUF012
    """Labels that a node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(strict=False, max_length=16)] = ()
    """Taints that the pods accept."""
    affinity: Affinity | None = None
    """Nodes and pods that the pods are drawn to, in place of nothing but an even spread."""
    pod_annotations: AnnotationMap = {}  # noqa: RUF012
    """Annotations of the pods. Keys of `mcpgroup.dev/` and `app.kubernetes.io/` are taken."""
    pod_labels: LabelMap = {}  # noqa: RUF012
    """Labels of the pods. Keys of `mcpgroup.dev/` and `app.kubernetes.io/` are taken."""
    service_account_name: SecretName | None = None
    """A ServiceAccount that is there already; one is made for the group when absent."""
    image_pull_secrets: Annotated[
        tuple[PullSecret, ...], Field(strict=False, max_length=16, json_schema_extra=BY_NAME)
    ] = ()
    """Secrets with the credentials of registries."""
    env: Annotated[
        tuple[PodVariable, ...], Field(strict=False, max_length=64, json_schema_extra=BY_NAME)
    ] = ()
    """Variables of the gateway's container, for example for a proxy."""
    log_level: Annotated[LogLevel, Field(strict=False)] = LogLevel.INFO
    """From which level on the gateway logs."""
    request_log: RequestLog | None = None
    """Logs requests, one JSON line each."""

    @model_validator(mode="after")
    def _gateway_rules(self) -> Self:
        return check(self, pod_rules.gateway)


class Monitoring(Model):
    """What is made for the Prometheus operator."""

    pod_monitor: bool = False
    """Make a PodMonitor for the gateway pods."""
