"""The faulty server, with other flags for the replica that starts it than for its fellows.

python tests/servers/by_replica.py FOLDER stdio [flags]

A member gets none of the gateway's environment, so `POD_NAME` is read from that of an ancestor. If
`FOLDER/<pod>.json` is there it is a JSON list of further flags. Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

FAULTY = Path(__file__).with_name("faulty.py")


def pod_name() -> str:
    """Of the nearest ancestor that has one, "" without any."""
    process = os.getppid()
    while process > 1:
        folder = Path("/proc", str(process))
        for variable in folder.joinpath("environ").read_bytes().split(b"\0"):
            name, _, value = variable.partition(b"=")
            if name == b"POD_NAME":
                return value.decode()
        # The name of a program, in parentheses, may hold anything but comes before the parent.
        process = int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[1])
    return ""


def main() -> None:
    folder, *flags = sys.argv[1:]
    try:
        more = json.loads(Path(folder, f"{pod_name()}.json").read_text())
    except FileNotFoundError:
        more = []
    os.execv(sys.executable, [sys.executable, "-S", str(FAULTY), *flags, *more])  # noqa: S606


if __name__ == "__main__":
    main()
