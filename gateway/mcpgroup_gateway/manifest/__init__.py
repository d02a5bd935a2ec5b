"""A file or text as a valid `McpServerGroup`.

    read(path)            from a file, or from standard input for "-"
    load(source, name=…)  from bytes

Both are strict, for what people write: an unknown field at any depth is a fault. With `rendered`
unknown fields are ignored and named: an operator wrote the file, which may be newer than this
gateway (DESIGN section 8). Both raise `ManifestError`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from mcpgroup_api import (
    API_VERSION,
    KIND,
    McpServerGroup,
    config_hash,
    parse_rendered,
    warnings,
)
from mcpgroup_gateway.manifest.documents import MAX_BYTES, Document, parse
from mcpgroup_gateway.manifest.faults import Fault, ManifestError
from mcpgroup_gateway.manifest.sentences import nulls, sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mcpgroup_gateway.manifest.faults import Path

__all__ = ["MAX_BYTES", "STDIN", "Fault", "Manifest", "ManifestError", "load", "read"]

STDIN: Final = "-"

#: What has an option of `run`: the field of `gateway`, its name on the wire, the option.
_OPTIONS: Final = (
    ("log_level", "logLevel", "--log-level"),
    ("request_log", "requestLog", "--request-log"),
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A valid manifest.

    `source` is what people call it, `digest` the `config_hash` of its bytes, `warnings` tell what
    is allowed and probably not meant, with lines. `for_pods` are fields that have an effect in
    pods alone, where an operator makes options of them. `ignored` are the paths of unknown fields.
    """

    source: str
    group: McpServerGroup
    digest: str
    warnings: tuple[Fault, ...]
    for_pods: tuple[Fault, ...] = ()
    ignored: tuple[str, ...] = ()


def read(path: str, *, rendered: bool = False) -> Manifest:
    """Read and load a file, or standard input when `path` is "-". Blocks."""
    name = "<stdin>" if path == STDIN else path
    try:
        if path == STDIN:
            source = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with open(path, "rb") as file:
                source = file.read(MAX_BYTES + 1)
    except OSError as error:
        text = (error.strerror or str(error)).lower()
        raise ManifestError(name, [Fault(0, "", f"cannot be read: {text}")]) from error
    return load(source, name=name, rendered=rendered)


def load(source: bytes, *, name: str, rendered: bool = False) -> Manifest:
    """`name` stands in errors for the file. Of several documents in `source` exactly one may be a
    McpServerGroup; the others (a Secret beside it, say) are left to whom they concern."""
    document = _the_group(parse(source, name=name), name)
    data = document.data
    if not isinstance(data, dict):
        text = "must be a mapping of apiVersion, kind, metadata, spec"
        raise ManifestError(name, [Fault(document.line(()), "", text)])
    # Only people forget values; what an operator leaves empty may be a field that is not known.
    found: list[tuple[Path, str]] = [] if rendered else nulls(data)
    group: McpServerGroup | None = None
    ignored: Sequence[str] = ()
    try:
        if rendered:
            group, ignored = parse_rendered(data)
        else:
            group = McpServerGroup.model_validate(data)
    except ValidationError as error:
        known = {path for path, _ in found}
        found += [entry for entry in sentences(error, data) if entry[0] not in known]
    if group is None or found:
        raise ManifestError(name, sorted(document.faults(found), key=lambda fault: fault.line))
    return Manifest(
        source=name,
        group=group,
        digest=config_hash(source),
        warnings=document.faults(warnings(group)),
        for_pods=document.faults(_for_pods(group)),
        ignored=tuple(ignored),
    )


def _for_pods(group: McpServerGroup) -> Iterator[tuple[Path, str]]:
    written = group.spec.gateway.model_fields_set
    for field, name, option in _OPTIONS:
        if field in written:
            yield ("spec", "gateway", name), f"is for pods: where you start it, {option} counts"


def _the_group(documents: list[Document], name: str) -> Document:
    if not documents:
        text = f"is empty: it must hold a {KIND} of {API_VERSION}"
        raise ManifestError(name, [Fault(1, "", text)])
    if len(documents) == 1:
        return documents[0]
    groups = [document for document in documents if _is_group(document.data)]
    if len(groups) != 1:
        line = groups[1].line(()) if groups else 1
        text = f"must hold exactly one {KIND}, it holds {len(groups)} in {len(documents)} documents"
        raise ManifestError(name, [Fault(line, "", text)])
    return groups[0]


def _is_group(data: Any) -> bool:
    return isinstance(data, dict) and data.get("kind") == KIND
