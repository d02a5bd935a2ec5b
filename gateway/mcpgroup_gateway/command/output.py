"""Tables on a terminal, plain columns in a pipe, JSON when asked; progress on a terminal only.

Text of members and servers comes from outside: control characters in it never reach a terminal.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SPACE: Final = re.compile(r"\s+")


def is_terminal() -> bool:
    return sys.stdout.isatty()


def printable(text: str, *, kept: str = "\n\t") -> str:
    """The text with control characters, escape sequences' first of all, written as escapes."""
    return "".join(c if c.isprintable() or c in kept else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=not _speaks_unicode()))


def _speaks_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """`columns` are headings; a cell is one line of text."""
    cells = [[printable(_SPACE.sub(" ", cell).strip()) for cell in row] for row in rows]
    if is_terminal():
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
        for row in cells:
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    lines = [list(columns), *cells]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        typer.echo("  ".join(map(str.ljust, line, widths)).rstrip())


@contextlib.contextmanager
def progress(text: str) -> Iterator[Progress]:
    """Shows what is being done while it lasts, on stderr when that is a terminal."""
    if not sys.stderr.isatty():
        yield Progress(None)
        return
    from rich.console import Console

    with Console(stderr=True).status(printable(text)) as status:
        yield Progress(status)


class Progress:
    """What a running command tells of itself."""

    def __init__(self, status: Any) -> None:
        self._status = status

    def tell(self, text: str) -> None:
        if self._status is not None:
            from rich.text import Text

            self._status.update(Text(printable(text, kept="")))
