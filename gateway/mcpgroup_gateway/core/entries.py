"""What one member offers: its tools, prompts, resources and templates, as it wrote them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from mcpgroup_gateway.wire.envelope import MalformedMessage, parse_object, parse_string
from mcpgroup_gateway.wire.param_headers import ParamHeader, read_param_headers
from mcpgroup_gateway.wire.protocol import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mcpgroup_gateway.wire.envelope import Raw

#: The member of an entry that names it.
NAME_KEY = {
    Kind.TOOL: "name",
    Kind.PROMPT: "name",
    Kind.RESOURCE: "uri",
    Kind.TEMPLATE: "uriTemplate",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a member's list.

    `name` is the tool's or prompt's name, the URI or the URI template; `raw` the member's JSON
    object, untouched. Two entries of one name are the same thing when their `definition` is equal:
    a hash of the canonical `inputSchema` (prompts: `arguments`), empty for resources and
    templates. `safe` says that using it twice does no harm: everything that is read, and tools
    whose annotations say `readOnlyHint` or `idempotentHint`. `param_headers` are the arguments that
    modern clients repeat in headers.
    """

    kind: Kind
    name: str
    raw: bytes
    definition: str
    safe: bool
    param_headers: tuple[ParamHeader, ...] = ()


def parse_entries(
    kind: Kind, items: Iterable[Raw], *, modern: bool = False
) -> tuple[tuple[Entry, ...], list[str]]:
    """Read the items of one list, all pages together.

    Returns the entries and one sentence for each item that is left out: one bad entry must not
    hide the others. Left out are items without a name, tools without an `inputSchema` object
    (clients refuse a whole list over one), tools that run only as tasks, which the gateway does
    not declare (DESIGN-MCP section 6), and repeated names after the first. So are, of a `modern`
    member, tools with invalid `x-mcp-header` annotations; to a legacy one these mean nothing.
    """
    entries: dict[str, Entry] = {}
    faults: list[str] = []
    for index, item in enumerate(items):
        try:
            entry = _parse(kind, bytes(item), modern=modern)
        except (ValueError, RecursionError) as fault:
            reason = fault.text if isinstance(fault, MalformedMessage) else str(fault)
            faults.append(f"{kind.value}[{index}] is left out: {reason}")
            continue
        if entry.name in entries:
            faults.append(f"{kind.value}[{index}] is left out: it repeats {entry.name!r}")
            continue
        entries[entry.name] = entry
    return tuple(entries.values()), faults


def _parse(kind: Kind, raw: bytes, *, modern: bool) -> Entry:
    members = parse_object(raw)
    key = NAME_KEY[kind]
    name = parse_string(members.get(key))
    if not name:
        raise ValueError(f"{key!r} is not a string with content")
    if kind is Kind.TOOL:
        schema = bytes(members.get("inputSchema", b""))
        if schema[:1] != b"{":
            raise ValueError(f"the inputSchema of {name!r} is not an object")
        if _runs_only_as_task(members):
            raise ValueError(f"{name!r} can only be called as a task")
        try:
            headers = read_param_headers(schema)
        except ValueError as fault:
            if modern:
                raise ValueError(f"{name!r}: {fault}") from fault
            headers = ()
        return Entry(kind, name, raw, _canonical_hash(schema), _is_safe(members), headers)
    if kind is Kind.PROMPT:
        # No arguments and an empty list of them are the same to a caller.
        arguments = bytes(members.get("arguments", b"[]"))
        return Entry(kind, name, raw, _canonical_hash(arguments), True)
    return Entry(kind, name, raw, "", True)


def _canonical_hash(raw: bytes) -> str:
    """The same for two spellings of one JSON value: white space and the order of keys go."""
    canonical = json.dumps(json.loads(raw), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()


def _canonical(raw: bytes) -> bytes:
    """One spelling for all of a JSON object, or the one it has: this must not fail."""
    try:
        return msgspec.json.encode(msgspec.json.decode(raw), order="deterministic")
    except (ValueError, RecursionError):
        return raw


def _is_safe(members: Mapping[str, Raw]) -> bool:
    raw = bytes(members.get("annotations", b""))
    if raw[:1] != b"{":
        return False
    annotations: dict[str, Any] = json.loads(raw)
    return annotations.get("readOnlyHint") is True or annotations.get("idempotentHint") is True


def _runs_only_as_task(members: Mapping[str, Raw]) -> bool:
    raw = bytes(members.get("execution", b""))
    if raw[:1] != b"{":
        return False
    execution: dict[str, Any] = json.loads(raw)
    return execution.get("taskSupport") == "required"


class Caching(NamedTuple):
    """How long a client may keep a list (milliseconds), and whether for other callers, too."""

    ttl_ms: int = 0
    public: bool = False


NOT_CACHED: Final = Caching()


@dataclass(frozen=True, slots=True)
class MemberCatalogue:
    """All that a member said of itself.

    `capabilities` are those of its `initialize` result, their values raw; `caching` is what a
    modern member allows. `hash` is equal for equal entries, on every replica, whatever order they
    and their keys came in.
    """

    entries: Mapping[Kind, tuple[Entry, ...]]
    capabilities: Mapping[str, Raw] = field(default_factory=dict)
    instructions: str | None = None
    caching: Mapping[Kind, Caching] = field(default_factory=dict)
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        everything = (entry for entries in self.entries.values() for entry in entries)
        ordered = sorted(everything, key=lambda entry: (entry.kind, entry.name))
        object.__setattr__(
            self, "hash", hash_of((entry.name, _canonical(entry.raw)) for entry in ordered)
        )


def hash_of(entries: Iterable[tuple[str, bytes]]) -> str:
    """128 bits in hexadecimal over names and raw objects, in the given order."""
    state = hashlib.sha256()
    for name, raw in entries:
        encoded = name.encode()
        state.update(b"%d:%b%d:%b" % (len(encoded), encoded, len(raw), raw))
    return state.hexdigest()[:32]
