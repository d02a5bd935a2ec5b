"""The file that the operator gives to its gateways: what is in it, how it is read, its name.

The operator writes `gateway_view(group)`. A gateway reads it with `parse_rendered`: an older one
serves what a newer operator wrote. Both know the content by its `config_hash`.
"""

from __future__ import annotations

import copy
import hashlib
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from mcpgroup_api.group import McpServerGroup

_OPERATORS: Final = {"replicas", "service", "gateway", "network_policy", "monitoring"}


def config_hash(content: bytes) -> str:
    """The name of a configuration: "sha256:" and the hash of its bytes in hexadecimal."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def gateway_view(group: McpServerGroup) -> dict[str, Any]:
    """Plain data of what a gateway acts on, with names on the wire in the order of the models.

    Without what the operator alone acts on and without values equal to their default, so that
    neither scaling nor a default written out changes it. Of `metadata` only name and namespace.
    """
    return group.model_dump(
        mode="json",
        exclude_defaults=True,
        include={
            "api_version": True,
            "kind": True,
            "metadata": {"name", "namespace"},
            "spec": set(type(group.spec).model_fields) - _OPERATORS,
        },
    )


class Rendered(NamedTuple):
    """A group, and the fields that were left out of it, as in `spec.members[0].container`."""

    group: McpServerGroup
    ignored: tuple[str, ...]


def parse_rendered(data: Any) -> Rendered:
    """A group from plain data in which unknown fields, at any depth, are ignored and listed.

    Everything else is as strict as `McpServerGroup.model_validate`: raises `ValidationError`.
    """
    try:
        return Rendered(McpServerGroup.model_validate(data), ())
    except ValidationError as error:
        unknown = [e["loc"] for e in error.errors() if e["type"] == "extra_forbidden"]
    known = copy.deepcopy(data)
    for *parents, name in unknown:
        place = known
        for part in parents:
            place = place[part]
        del place[name]
    return Rendered(McpServerGroup.model_validate(known), tuple(map(_dotted, unknown)))


def _dotted(path: tuple[str | int, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")
