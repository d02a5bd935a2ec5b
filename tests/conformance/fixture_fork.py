"""The fixture over stdio, started in 50 ms: each process is a fork of one that imported all.

python tests/conformance/fixture_fork.py serve SOCKET
python -S tests/conformance/fixture_fork.py join SOCKET

The suite gives some calls 600 ms, in which a process that imports the SDK has not said a word.
`join` is the member's command: it hands its stdin, stdout and stderr over and waits for the end of
the fork, which is a fixture like any other with a process and a state of its own.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

_STREAMS = (0, 1, 2)


def serve(path: str) -> None:
    """Fork for whoever connects; prints `ready` once that is quick."""
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from tests.conformance import fixture

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            _, streams, _, _ = socket.recv_fds(connection, 1, len(_STREAMS))
            if os.fork() == 0:
                listener.close()
                for target, stream in zip(_STREAMS, streams, strict=True):
                    os.dup2(stream, target)
                    os.close(stream)
                fixture.main(["stdio"])
                os._exit(0)
            for stream in streams:
                os.close(stream)
            connection.close()


def join(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [b"x"], _STREAMS)
        connection.recv(1)  # nothing ever comes but the end


if __name__ == "__main__":
    {"serve": serve, "join": join}[sys.argv[1]](sys.argv[2])
