"""`mcpgroup-operator`, and `python -m mcpgroup_operator`."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from mcpgroup_operator import logs
from mcpgroup_operator.settings import parse

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Exits with 0 after SIGTERM, 1 when leadership was lost, 2 for wrong use."""
    settings = parse(sys.argv[1:] if arguments is None else arguments)
    logs.configure(settings.log_format, settings.log_level)
    # kopf and the client take more than a second to import; wrong use is told before.
    from mcpgroup_operator.runtime import serve

    sys.exit(asyncio.run(serve(settings, _version())))


def _version() -> str:
    try:
        return version("mcpgroup")
    except PackageNotFoundError:
        return "unknown"


if __name__ == "__main__":
    main()
