"""What all builders share: their settings, metadata of children, and the hash of a manifest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcpgroup_api import API_VERSION, KIND
from mcpgroup_operator import names
from mcpgroup_operator.kinds import Kind, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcpgroup_api import McpServerGroup

Manifest = dict[str, Any]
"""An object of Kubernetes as JSON has it."""


class ConfigTooLargeError(Exception):
    """A group is valid and yet more than an API server could keep of it; the text says what."""

    def __init__(self, what: str, size: int, limit: int, unit: str) -> None:
        super().__init__(f"{what} would have {size} {unit}, {limit} are allowed")


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """What children depend on beside their group."""

    operator_mark: str
    """`names.operator_mark` of this installation."""
    operator_namespace: str
    """Where the operator runs: a NetworkPolicy lets it ask the gateways' admin port."""
    gateway_image: str
    """For groups that name none. A value of the chart, so that a new operator rolls no pods."""


@dataclass(frozen=True, slots=True)
class Desired:
    """A child as it should be: what is applied, its hash in an annotation included."""

    kind: Kind
    name: str
    manifest: Manifest

    @property
    def hash(self) -> str:
        """SHA-256 in hex of the manifest without this annotation."""
        annotations: dict[str, str] = self.manifest["metadata"]["annotations"]
        return annotations[names.DESIRED_HASH_ANNOTATION]


def child_manifest(
    group: McpServerGroup,
    settings: ChildSettings,
    kind: Kind,
    name: str,
    content: Mapping[str, Any],
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """A child in the group's namespace, owned by it, with `content` beside the metadata.

    `annotations` of users and builders come before the operator's own, which win.
    Raises `ValueError` for a group that is not from an API server.
    """
    metadata = group.metadata
    if metadata.uid is None or metadata.namespace is None:
        raise ValueError("only a group with uid and namespace can own objects")
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "labels": names.labels(metadata.name),
            "annotations": {
                **(annotations or {}),
                names.OPERATOR_ANNOTATION: settings.operator_mark,
            },
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "name": metadata.name,
                    "uid": metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        **content,
    }


def sealed(manifest: Manifest) -> Desired:
    """With the hash of all the rest as an annotation.

    A live object that lacks nothing of a manifest may still hold fields that an earlier manifest
    asked for and this one does not. Only another apply removes them, and the hash is what tells.
    """
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    metadata = manifest["metadata"]
    annotations = {**metadata["annotations"], names.DESIRED_HASH_ANNOTATION: digest}
    return Desired(
        kind_of(manifest),
        metadata["name"],
        {**manifest, "metadata": {**metadata, "annotations": annotations}},
    )
