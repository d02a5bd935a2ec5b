"""The kinds of this repository, installed into a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml
from tests.harness.processes import ROOT

if TYPE_CHECKING:
    from tests.controlplane.api import Api


async def install_kinds(api: Api) -> None:
    """Apply every CustomResourceDefinition in `crds/`, and wait until each is served."""
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        definition = yaml.safe_load(path.read_text())
        name = definition["metadata"]["name"]
        await api.apply("customresourcedefinitions", definition, force=True)
        await api.wait_for("customresourcedefinitions", name, is_established)


def is_established(definition: dict[str, Any]) -> bool:
    """Whether a CustomResourceDefinition is served."""
    conditions = definition.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
