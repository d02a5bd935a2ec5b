"""`mcpgroup` and `python -m mcpgroup_gateway`."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def main() -> None:
    """Run the command line and exit with its code: 0 done, 1 the answer is no, 2 wrong use."""
    # As process 1 of a container nothing ends on a signal that it does not handle, and importing
    # the rest takes a while. Commands that have something to end put their own handler here.
    signal.signal(signal.SIGTERM, _end)
    from mcpgroup_gateway.command.app import app

    app()


def _end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
