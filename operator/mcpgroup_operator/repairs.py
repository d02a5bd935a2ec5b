"""What must be taken out of a live object before the desired one can be applied to it.

Server-side apply merges. When somebody changes the port of a Service by hand, the merged list has
their entry and ours, both of one name, and the API server refuses it: now and at every later try.
The same goes for fields of which an object may have only one, for example two ways to probe. For
these cases a JSON patch replaces the part in question, if it still is as it was looked at; the
version of the whole object would be no good to ask for, as controllers write its status all the
time. A patch that comes too late is refused with 422, like one that makes no sense.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mcpgroup_operator.lacking import KEYS_OF_LISTS, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator

Manifest = dict[str, Any]
Operation = dict[str, Any]
"""One of a JSON patch, RFC 6902."""

_PROBES: Final = ("startupProbe", "livenessProbe", "readinessProbe")
_WAYS_TO_PROBE: Final = ("exec", "grpc", "httpGet", "tcpSocket")
_WAYS_TO_STOP: Final = ("exec", "httpGet", "sleep", "tcpSocket")
_BUDGETS: Final = ("maxUnavailable", "minAvailable")
_VALUES: Final = ("value", "valueFrom")


def repairs(desired: Manifest, live: Manifest) -> list[Operation]:
    """The JSON patch that makes `desired` applicable to `live`; empty when it is as it is."""
    found = [*_of_spec(desired, live), *_of_pods(desired, live)]
    if not found:
        return []
    return [{"op": "test", "path": "/metadata/uid", "value": live["metadata"]["uid"]}, *found]


def _of_spec(desired: Manifest, live: Manifest) -> Iterator[Operation]:
    ours, theirs = desired.get("spec", {}), live.get("spec", {})
    yield from _one_of(_BUDGETS, ours, theirs, "/spec")
    yield from _ports(("spec", "ports"), ours, theirs, "/spec")


def _of_pods(desired: Manifest, live: Manifest) -> Iterator[Operation]:
    ours = desired.get("spec", {}).get("template", {}).get("spec", {})
    theirs = live.get("spec", {}).get("template", {}).get("spec", {})
    path = "/spec/template/spec"
    for volume, there, inner in _matched("volumes", ours, theirs, path):
        if set(there) - set(volume):
            yield from _replaced(inner, there, volume)
    for container, there, inner in _matched("containers", ours, theirs, path):
        yield from _ports(("containers", "ports"), container, there, inner)
        for probe in _PROBES:
            yield from _inside(probe, _WAYS_TO_PROBE, container, there, inner)
        hooks = (container.get("lifecycle", {}), there.get("lifecycle", {}))
        yield from _inside("preStop", _WAYS_TO_STOP, *hooks, f"{inner}/lifecycle")
        for variable, other, innermost in _matched("env", container, there, inner):
            yield from _one_of(_VALUES, variable, other, innermost)


def _ports(
    place: tuple[str, str], ours: Manifest, theirs: Manifest, path: str
) -> Iterator[Operation]:
    """Names must be unique in a list of ports, and entries are told apart by number."""
    keys = KEYS_OF_LISTS[place]
    wanted, there = ours.get("ports") or [], theirs.get("ports") or []
    number_of = {entry["name"]: key_of(entry, keys) for entry in wanted}
    moved = [e for e in there if number_of.get(e.get("name"), key_of(e, keys)) != key_of(e, keys)]
    if not moved:
        return
    numbers = set(number_of.values())
    foreign = [
        entry
        for entry in there
        if entry.get("name") not in number_of and key_of(entry, keys) not in numbers
    ]
    # Clients may know the port of the nodes, which the API server chose.
    node_ports = {entry["name"]: entry["nodePort"] for entry in moved if "nodePort" in entry}
    kept = [
        {**entry, "nodePort": node_ports[entry["name"]]} if entry["name"] in node_ports else entry
        for entry in wanted
    ]
    yield from _replaced(f"{path}/ports", there, [*kept, *foreign])


def _inside(
    field: str, choices: tuple[str, ...], ours: Manifest, theirs: Manifest, path: str
) -> Iterator[Operation]:
    if field in ours and field in theirs:
        yield from _one_of(choices, ours[field], theirs[field], f"{path}/{field}")


def _one_of(
    choices: tuple[str, ...], ours: Manifest, theirs: Manifest, path: str
) -> Iterator[Operation]:
    """Where an object may have one of some fields, ours in place of any other."""
    wanted = {choice: ours[choice] for choice in choices if choice in ours}
    excluded = {choice for choice in choices if choice in theirs and choice not in ours}
    if wanted and excluded:
        rest = {name: value for name, value in theirs.items() if name not in choices}
        yield from _replaced(path, theirs, {**rest, **wanted})


def _replaced(path: str, seen: object, value: object) -> Iterator[Operation]:
    yield {"op": "test", "path": path, "value": seen}
    yield {"op": "replace", "path": path, "value": value}


def _matched(
    field: str, ours: Manifest, theirs: Manifest, path: str
) -> Iterator[tuple[Manifest, Manifest, str]]:
    """Our named entries of a list, theirs of the same name, and the path of those."""
    there = {entry["name"]: index for index, entry in enumerate(theirs.get(field) or [])}
    for entry in ours.get(field) or []:
        index = there.get(entry["name"])
        if index is not None:
            yield entry, theirs[field][index], f"{path}/{field}/{index}"
