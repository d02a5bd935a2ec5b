"""Rules over more than one field of what the operator acts on: pods, Service, NetworkPolicy.

Most are Kubernetes' own, so that a fault is told where it was written and not by a child that
cannot be applied.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from mcpgroup_api.rules import Violation, repeated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mcpgroup_api.deployment import Gateway, Service
    from mcpgroup_api.network import LabelRequirement, NetworkPeer
    from mcpgroup_api.podspec import PodVariable, Resources, Toleration

RESERVED_PREFIXES: Final = ("mcpgroup.dev/", "app.kubernetes.io/")
"""Labels and annotations that the operator sets itself begin with these."""

RESERVED_VARIABLES: Final = ("POD_NAME", "POD_NAMESPACE")
"""Variables that the operator sets itself."""

_UNITS: Final = {
    "n": Decimal(10) ** -9,
    "u": Decimal(10) ** -6,
    "m": Decimal(10) ** -3,
    "": Decimal(1),
    **{unit: Decimal(10) ** (3 * power) for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}


def amount(quantity: str) -> Decimal:
    """The number that a quantity of Kubernetes stands for: `250m` is 0.25, `1Ki` is 1024."""
    digits, rest = re.findall(r"^([0-9.]+)(.*)$", quantity)[0]
    if rest in _UNITS:
        return Decimal(digits) * _UNITS[rest]
    return Decimal(digits + rest)


def service(entry: Service) -> Iterator[Violation]:
    yield from _reserved("annotations", entry.annotations)


def gateway(pods: Gateway) -> Iterator[Violation]:
    yield from _reserved("podAnnotations", pods.pod_annotations)
    yield from _reserved("podLabels", pods.pod_labels)
    for index, first in repeated([secret.name for secret in pods.image_pull_secrets]):
        yield Violation(
            ("imagePullSecrets", index, "name"),
            f"must be unique: imagePullSecrets[{first}] has the same name",
        )
    for index, first in repeated([variable.name for variable in pods.env]):
        yield Violation(("env", index, "name"), f"must be unique: env[{first}] has the same name")


def _reserved(field: str, keys: Iterable[str]) -> Iterator[Violation]:
    for key in keys:
        if key.startswith(RESERVED_PREFIXES):
            prefixes = " and ".join(RESERVED_PREFIXES)
            yield Violation((field, key), f"must not begin with what the operator sets: {prefixes}")


def pod_variable(variable: PodVariable) -> Iterator[Violation]:
    if variable.name in RESERVED_VARIABLES:
        names = " and ".join(RESERVED_VARIABLES)
        yield Violation(("name",), f"must be none that the operator sets: {names}")


def resources(entry: Resources) -> Iterator[Violation]:
    for name, requested in entry.requests.items():
        limit = entry.limits.get(name)
        if limit is not None and amount(requested) > amount(limit):
            yield Violation(("requests", name), f"must be at most the limit of {name}")


def toleration(entry: Toleration) -> Iterator[Violation]:
    if entry.operator == "Exists" and entry.value:
        yield Violation(("value",), "is allowed with operator: Equal only")
    if entry.operator == "Equal" and entry.key is None:
        yield Violation((), "without key needs operator: Exists")
    if entry.toleration_seconds is not None and entry.effect != "NoExecute":
        yield Violation(("tolerationSeconds",), "is allowed with effect: NoExecute only")


def label_requirement(entry: LabelRequirement) -> Iterator[Violation]:
    compares = entry.operator in ("In", "NotIn")
    if compares and not entry.values:
        yield Violation((), f"needs values with operator: {entry.operator.value}")
    if not compares and entry.values:
        yield Violation(("values",), "is allowed with operator: In and NotIn only")


def network_peer(peer: NetworkPeer) -> Iterator[Violation]:
    selects = peer.pod_selector is not None or peer.namespace_selector is not None
    if selects == (peer.ip_block is not None):
        yield Violation(
            (), "must have either ipBlock, or podSelector and namespaceSelector or one of them"
        )
