"""What a live object lacks of the one that is desired: whether it must be applied.

Applying is a request even when it changes nothing, and in a cluster where nothing happens the
operator makes none. A live object is never equal to the manifest it was made from: the API server
fills in defaults, writes quantities its own way, drops what is empty, and others add labels,
containers and variables of theirs, which stay. So the question is not "equal?" but "is all there
that we ask for?". What an earlier manifest asked for and this one does not is another question;
`names.DESIRED_HASH_ANNOTATION` answers it.
"""

from __future__ import annotations

from decimal import DecimalException
from typing import Any, Final

from mcpgroup_api.pod_rules import amount

KEYS_OF_LISTS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("metadata", "ownerReferences"): ("uid",),
    ("spec", "containers"): ("name",),
    ("spec", "imagePullSecrets"): ("name",),
    ("spec", "ports"): ("port", "protocol"),
    ("spec", "topologySpreadConstraints"): ("topologyKey", "whenUnsatisfiable"),
    ("spec", "volumes"): ("name",),
    ("containers", "env"): ("name",),
    ("containers", "ports"): ("containerPort", "protocol"),
    ("containers", "volumeMounts"): ("mountPath",),
}
"""The lists that Kubernetes merges entry by entry, as `x-kubernetes-list-map-keys` of its OpenAPI
documents says, by the field they stand in and their own: others may add entries to them."""

_LISTS_WITH_UNKNOWN_DEFAULTS: Final = ("podMetricsEndpoints",)
"""Of kinds that are not Kubernetes' own: a later version may fill in fields of the entries."""

_WHOLE_MAPS: Final = (
    "labelSelector",
    "namespaceSelector",
    "nodeSelector",
    "podSelector",
    "selector",
)
"""Maps that Kubernetes replaces as a whole: an addition by others changes what they mean."""

_MAPS_OF_TEXT: Final = ("annotations", "data", "labels", "matchLabels", "nodeSelector")
"""Their entries are kept when they are empty texts; the maps themselves are dropped when empty,
other than an empty selector or `emptyDir`, which say something."""

_MAPS_OF_QUANTITIES: Final = ("limits", "requests")
_QUANTITIES: Final = ("sizeLimit",)


def lacks(desired: dict[str, Any], live: dict[str, Any]) -> list[str]:
    """The paths of `desired` that `live` does not have, as in
    `spec.template.spec.containers[gateway].image`; never values, which may be secret."""
    return _lacking(desired, live, ("", ""), "", exact=False)


def _lacking(
    desired: Any, live: Any, place: tuple[str, str], path: str, *, exact: bool
) -> list[str]:
    """`place` is the field that `desired` stands in and the one around it. With `exact` nothing
    else may be there either."""
    if isinstance(desired, dict) and isinstance(live, dict):
        return _lacking_of_map(desired, live, place, path, exact=exact)
    if isinstance(desired, list) and isinstance(live, list):
        return _lacking_of_list(desired, live, place, path, exact=exact)
    return [] if _is_same(desired, live, place) else [path]


def _lacking_of_map(
    desired: dict[str, Any], live: dict[str, Any], place: tuple[str, str], path: str, *, exact: bool
) -> list[str]:
    found: list[str] = []
    for name, value in desired.items():
        inner = f"{path}.{name}" if path else name
        if name in live:
            whole = exact or name in _WHOLE_MAPS
            found += _lacking(value, live[name], (place[1], name), inner, exact=whole)
        elif not _is_dropped(value, name, place[1]):
            found.append(inner)
    if exact:
        added = [name for name in live if name not in desired]
        if any(not _is_dropped(live[name], name, place[1]) for name in added):
            found.append(path)
    return found


def _lacking_of_list(
    desired: list[Any], live: list[Any], place: tuple[str, str], path: str, *, exact: bool
) -> list[str]:
    keys = KEYS_OF_LISTS.get(place)
    if keys is None:
        if len(desired) != len(live):
            return [path]
        exact = exact or place[1] not in _LISTS_WITH_UNKNOWN_DEFAULTS
        return [
            lacking
            for index, (wanted, there) in enumerate(zip(desired, live, strict=True))
            for lacking in _lacking(wanted, there, place, f"{path}[{index}]", exact=exact)
        ]
    by_key = {key_of(entry, keys): entry for entry in live}
    found: list[str] = []
    for wanted in desired:
        key = key_of(wanted, keys)
        inner = f"{path}[{','.join(map(str, key))}]"
        if key in by_key:
            found += _lacking(wanted, by_key[key], place, inner, exact=False)
        else:
            found.append(inner)
    return found


def key_of(entry: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    """What tells an entry of a merged list from the others."""
    return tuple(entry.get(key) for key in keys)


def _is_dropped(value: Any, name: str, parent: str) -> bool:
    """Whether the API server leaves a field out that has this value."""
    if value is None or value == []:
        return True
    if value == {}:
        return name in _MAPS_OF_TEXT or name in _MAPS_OF_QUANTITIES
    return value == "" and parent not in _MAPS_OF_TEXT


def _is_same(desired: Any, live: Any, place: tuple[str, str]) -> bool:
    # True == 1 in Python.
    if type(desired) is type(live) and desired == live:
        return True
    if place[0] in _MAPS_OF_QUANTITIES or place[1] in _QUANTITIES:
        try:
            return amount(str(desired)) == amount(str(live))
        except (DecimalException, IndexError):
            return False
    return False
