"""The CustomResourceDefinition of `McpServerGroup`, made from the models.

python -m mcpgroup_api.crd                               prints it
python -m mcpgroup_api.crd crds/mcpservergroups.yaml     writes it
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from mcpgroup_api.group import API_VERSION, KIND, McpServerGroup, McpServerGroupSpec
from mcpgroup_api.schema import rules_of, structural
from mcpgroup_api.status import McpServerGroupStatus
from mcpgroup_api.yamltext import to_yaml

PLURAL: Final = "mcpservergroups"
GROUP, VERSION = API_VERSION.split("/")

_HEAD: Final = "# Made from the models: python -m mcpgroup_api.crd crds/mcpservergroups.yaml\n"


def definition() -> dict[str, Any]:
    """The object as it is applied."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["mcpsg"],
                "categories": ["mcpgroup"],
            },
            "scope": "Namespaced",
            "conversion": {"strategy": "None"},
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": _columns(),
                    "schema": {"openAPIV3Schema": _schema()},
                }
            ],
        },
    }


def text() -> str:
    """The file `crds/mcpservergroups.yaml`."""
    return _HEAD + to_yaml(definition())


def _columns() -> list[dict[str, str]]:
    def condition(name: str) -> str:
        return f'.status.conditions[?(@.type=="{name}")].status'

    columns = [
        ("Ready", "string", condition("Ready")),
        ("State", "string", ".status.state"),
        ("Members", "string", ".status.members"),
        ("Replicas", "integer", ".status.replicas"),
        ("Agree", "string", condition("ReplicasAgree")),
        ("Endpoint", "string", ".status.endpoint"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ]
    return [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in columns]


def _schema() -> dict[str, Any]:
    """What of the root is the API server's own may not be constrained, but by a rule."""
    return {
        "description": McpServerGroup.__doc__,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(McpServerGroupSpec),
            "status": structural(McpServerGroupStatus),
        },
        "x-kubernetes-validations": rules_of(McpServerGroup),
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text())
    else:
        sys.stdout.write(text())
