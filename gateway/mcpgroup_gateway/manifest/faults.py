"""What is wrong with a manifest, told by place: file, line, field, and what is allowed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

Path = tuple[str | int, ...]

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Fault(NamedTuple):
    """`line` counts from 1, 0 stands for the file as a whole; `path` is empty for the top.

    `text` never holds a value of the manifest: it may be a secret.
    """

    line: int
    path: str
    text: str

    def at(self, source: str) -> str:
        """One line for people and editors: `file:line: field: what is allowed`."""
        place = f"{source}:{self.line}" if self.line else source
        return f"{place}: {self.path}: {self.text}" if self.path else f"{place}: {self.text}"


class ManifestError(Exception):
    """A manifest that cannot be used, with every fault that was found, in the order of lines."""

    def __init__(self, source: str, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(fault.at(source) for fault in faults))
        self.source = source
        self.faults = tuple(faults)


def dotted(path: Path) -> str:
    """`spec.members[1].http.url`; keys that are no plain words stand in brackets and quotes."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(part[:80])}]"
    return text
