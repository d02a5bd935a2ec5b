"""YAML and JSON text as plain data that remembers the line of every field.

The data is what Kubernetes' YAML reader would make of the text: strings, whole numbers, floats,
booleans, null, lists and mappings with text as keys. Timestamps and base-60 numbers stay the text
that they were. Anchors and merge keys work; the size of what they unfold to is bounded.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from mcpgroup_gateway.manifest.faults import Fault, ManifestError, Path, dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_BYTES: Final = 1024 * 1024
_MAX_NODES: Final = 100_000
_MAX_DEPTH: Final = 40
_MAX_DIGITS: Final = 40

_TAG: Final = "tag:yaml.org,2002:"
_TRUE: Final = frozenset({"true", "yes", "on"})


class Document(NamedTuple):
    """One document; `lines` has the line of each field and list item, by path."""

    data: Any
    lines: dict[Path, int]

    def line(self, path: Path) -> int:
        """The line of `path`, or of the nearest thing around it that is there."""
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]

    def faults(self, found: Iterable[tuple[Path, str]]) -> tuple[Fault, ...]:
        """What was found at paths of this document, with their lines."""
        return tuple(Fault(self.line(path), dotted(path), text) for path, text in found)


class _Refused(Exception):
    def __init__(self, line: int, path: Path, text: str) -> None:
        super().__init__(text)
        self.fault = Fault(line, dotted(path), text)


class _Loader(yaml.SafeLoader):
    """Composes nodes and stops early when there are too many of them, or too deep ones."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = 0
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._nodes += 1
        self._depth += 1
        if self._nodes > _MAX_NODES or self._depth > _MAX_DEPTH:
            raise _Refused(self.line + 1, (), _too_much(self._depth))
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


def parse(source: bytes, *, name: str) -> list[Document]:
    """The documents of a file, empty ones left out. Raises `ManifestError`."""
    if len(source) > MAX_BYTES:
        raise ManifestError(name, [Fault(0, "", f"must be at most {MAX_BYTES} bytes long")])
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise ManifestError(name, [Fault(line, "", "must be text in UTF-8")]) from None
    if _is_json(text):
        text = text.replace("\t", " ")  # white space to JSON and an error to YAML
    try:
        return list(_documents(text))
    except _Refused as refused:
        raise ManifestError(name, [refused.fault]) from None
    except yaml.YAMLError as error:
        raise ManifestError(name, [_syntax(error, text)]) from None


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _documents(text: str) -> Iterator[Document]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None:
                continue
            builder = _Builder()
            data = builder.build(node, (), 1)
            if data is not None:
                yield Document(data, builder.lines)
    finally:
        loader.dispose()


class _Builder:
    """Nodes to data. Counts what it makes, so that aliases cannot multiply without end."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self._made = 0

    def build(self, node: yaml.Node, path: Path, depth: int) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._made += 1
        if self._made > _MAX_NODES or depth > _MAX_DEPTH:
            raise _Refused(line, (), _too_much(depth))
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [
                self.build(item, (*path, index), depth + 1) for index, item in enumerate(node.value)
            ]
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path, depth)
        raise _Refused(line, path, "must have no YAML tag")

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        written: dict[str, int] = {}
        merged: list[yaml.MappingNode] = []
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _TAG + "merge":
                merged += _merged(value_node, path)
                continue
            key = _key(key_node, path)
            if key in written:
                raise _Refused(
                    line,
                    (*path, key),
                    f"must be given once: it is already in line {written[key]}",
                )
            written[key] = line
            self.lines[(*path, key)] = line
            data[key] = self.build(value_node, (*path, key), depth + 1)
        for other in merged:
            self._merge(other, path, depth + 1, data)
        return data

    def _merge(self, node: yaml.MappingNode, path: Path, depth: int, data: dict[str, Any]) -> None:
        """Adds what `data` does not have yet, first the mapping's own keys, then its merges."""
        line = node.start_mark.line + 1
        self._made += 1
        if self._made > _MAX_NODES or depth > _MAX_DEPTH:
            raise _Refused(line, (), _too_much(depth))
        merged: list[yaml.MappingNode] = []
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                merged += _merged(value_node, path)
                continue
            key = _key(key_node, path)
            if key not in data:
                self.lines[(*path, key)] = key_node.start_mark.line + 1
                data[key] = self.build(value_node, (*path, key), depth + 1)
        for other in merged:
            self._merge(other, path, depth + 1, data)


def _merged(node: yaml.Node, path: Path) -> list[yaml.MappingNode]:
    """What `<<` names: a mapping or a list of mappings, the first of which wins."""
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    mappings = [entry for entry in nodes if isinstance(entry, yaml.MappingNode)]
    if len(mappings) != len(nodes):
        raise _Refused(node.start_mark.line + 1, path, "'<<' must name a mapping")
    return mappings


def _key(node: yaml.Node, path: Path) -> str:
    if isinstance(node, yaml.ScalarNode) and node.tag == _TAG + "str":
        return _text(node.value, node, path)
    line = node.start_mark.line + 1
    raise _Refused(line, path, "keys must be text: put numbers, dates and words like yes in quotes")


def _scalar(node: yaml.ScalarNode, path: Path) -> Any:
    value: str = node.value
    kind = node.tag.removeprefix(_TAG)
    if kind in ("str", "timestamp", "value", "merge"):
        return _text(value, node, path)
    if kind == "null":
        return None
    if kind == "bool":
        return value.lower() in _TRUE
    try:
        if kind == "int":
            return value if ":" in value else _whole(value)
        if kind == "float":
            number = value.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan")
            return value if ":" in value else float(number)
    except ValueError:
        text = "must be a number of reasonable size"
        raise _Refused(node.start_mark.line + 1, path, text) from None
    raise _Refused(node.start_mark.line + 1, path, "must have no YAML tag")


def _text(value: str, node: yaml.Node, path: Path) -> str:
    """JSON writes characters beyond the first plane as two escapes; YAML reads them one by one."""
    try:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        text = "must have no half surrogate pairs"
        raise _Refused(node.start_mark.line + 1, path, text) from None


def _whole(text: str) -> int:
    digits = text.replace("_", "").lower()
    if len(digits) > _MAX_DIGITS:
        raise ValueError(text)
    unsigned = digits.lstrip("+-")
    octal = len(unsigned) > 1 and unsigned[0] == "0" and unsigned[1] not in "xb"
    return int(digits, 8) if octal else int(digits, 0)


def _too_much(depth: int) -> str:
    if depth > _MAX_DEPTH:
        return f"must be nested at most {_MAX_DEPTH} deep"
    return f"must unfold to at most {_MAX_NODES} values"


def _syntax(error: yaml.YAMLError, text: str) -> Fault:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem is not None:
        mark = error.problem_mark or error.context_mark
        return Fault(mark.line + 1 if mark else 0, "", f"is not valid YAML: {error.problem}")
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return Fault(line, "", "is not valid YAML: control characters are not allowed")
    return Fault(0, "", "is not valid YAML")
