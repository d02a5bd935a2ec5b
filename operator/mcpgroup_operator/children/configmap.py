"""The ConfigMap with the file that gateways read, and the generation that stands in it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from mcpgroup_api import config_hash, gateway_view
from mcpgroup_operator import names
from mcpgroup_operator.children.manifests import ConfigTooLargeError, child_manifest
from mcpgroup_operator.kinds import CONFIG_MAP

if TYPE_CHECKING:
    from mcpgroup_api import McpServerGroup
    from mcpgroup_operator.children.manifests import ChildSettings, Manifest

MAX_BYTES: Final = 900 * 1024
"""Of the file. An object may have 1 MiB, and endpoints are still to fit beside it."""

_WIDE: Final = 2**20
# Ten times as fast; without libyaml the same document, some characters written as they are.
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """`group.yaml` as gateways of a group are to read it."""

    text: str
    generation: int
    """Of the group when this content was new; stands in the file."""
    content_hash: str
    """SHA-256 of the content without the generation, in hex."""

    @property
    def hash(self) -> str:
        """What a gateway that has read the file says in its status: `sha256:<hex>`."""
        return config_hash(self.text.encode())


def config_file(group: McpServerGroup, live: Manifest | None) -> ConfigFile:
    """The file for a group whose ConfigMap is now `live`.

    The generation of a group counts changes that gateways never see, of `replicas` for example.
    The one in the file therefore stays what it was for as long as the rest does: `live` tells, in
    its annotations. Raises `ConfigTooLargeError`.
    """
    view = gateway_view(group)
    metadata = {key: value for key, value in view["metadata"].items() if key != "generation"}
    content_hash = _digest({**view, "metadata": metadata})
    generation = _kept_generation(live, content_hash)
    if generation is None:
        generation = group.metadata.generation or 0
    document = {**view, "metadata": {**metadata, "generation": generation}}
    text = yaml.dump(document, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=_WIDE)
    size = len(text.encode())
    if size > MAX_BYTES:
        raise ConfigTooLargeError("the file of the gateways", size, MAX_BYTES, "bytes")
    return ConfigFile(text, generation, content_hash)


def build_config_map(group: McpServerGroup, settings: ChildSettings, file: ConfigFile) -> Manifest:
    """The ConfigMap with this file."""
    annotations = {
        names.CONTENT_HASH_ANNOTATION: file.content_hash,
        names.CONTENT_GENERATION_ANNOTATION: str(file.generation),
    }
    content = {"data": {names.CONFIG_KEY: file.text}}
    name = names.child(group.metadata.name)
    return child_manifest(group, settings, CONFIG_MAP, name, content, annotations=annotations)


def _kept_generation(live: Manifest | None, content_hash: str) -> int | None:
    annotations = (live or {}).get("metadata", {}).get("annotations") or {}
    if annotations.get(names.CONTENT_HASH_ANNOTATION) != content_hash:
        return None
    generation = annotations.get(names.CONTENT_GENERATION_ANNOTATION, "")
    return int(generation) if generation.isascii() and generation.isdigit() else None


def _digest(document: dict[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
