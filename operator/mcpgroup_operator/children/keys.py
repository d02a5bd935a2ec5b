"""The Secret with the keys that a group's replicas share: made once, never derived.

So far one key, `admin-token`: who presents it may drain, stop and start members on the admin
port. Another text in the group's annotation `mcpgroup.dev/rotate-keys` makes new keys.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mcpgroup_operator import names
from mcpgroup_operator.children.manifests import child_manifest
from mcpgroup_operator.kinds import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpgroup_api import McpServerGroup
    from mcpgroup_operator.children.manifests import ChildSettings, Manifest

_MIN_TOKEN_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Keys:
    """What the Secret is to hold."""

    admin_token: str
    rotation: str
    """The text of the annotation under which the keys were made; empty: never rotated."""


def current_keys(
    group: McpServerGroup, live: Manifest | None, new_token: Callable[[], str]
) -> Keys:
    """The keys of the Secret as it is, else new ones: when there is no Secret, when it is asked
    to rotate, and when somebody took a key out or left one that is no protection.

    Taking the annotation away from the group again rotates nothing.
    """
    annotations = (live or {}).get("metadata", {}).get("annotations") or {}
    made_under = annotations.get(names.ROTATE_KEYS_ANNOTATION, "")
    asked = (group.metadata.annotations or {}).get(names.ROTATE_KEYS_ANNOTATION, "") or made_under
    kept = _token_of(live) if live is not None and asked == made_under else None
    return Keys(admin_token=kept or new_token(), rotation=asked)


def build_keys_secret(group: McpServerGroup, settings: ChildSettings, keys: Keys) -> Manifest:
    """The Secret with these keys."""
    data = {names.ADMIN_TOKEN_KEY: base64.b64encode(keys.admin_token.encode()).decode()}
    annotations = {names.ROTATE_KEYS_ANNOTATION: keys.rotation} if keys.rotation else {}
    content = {"type": "Opaque", "data": data}
    name = names.keys_secret(group.metadata.name)
    return child_manifest(group, settings, SECRET, name, content, annotations=annotations)


def _token_of(live: Manifest) -> str | None:
    encoded = (live.get("data") or {}).get(names.ADMIN_TOKEN_KEY, "")
    try:
        token = base64.b64decode(encoded, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return None
    usable = len(token) >= _MIN_TOKEN_BYTES and token.isprintable() and " " not in token
    return token if usable else None
