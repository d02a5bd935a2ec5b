"""The fixture over stdio, started in 50 ms: each process is a fork of one that imported all.

python tests/conformance/fixture_fork.py serve SOCKET
python -S tests/conformance/fixture_fork.py join SOCKET

The suite gives some calls 600 ms, in which a process that imports the SDK has not said a word.
`join` is the member's command: it hands its stdin, stdout and stderr over and waits for the end of
the fork, which is a fixture like any other. The forks share their lists, as the processes of one
server do: in the new era lists do not depend on the connection. A change that one of them is asked
for goes to the process that forked them, and from there to all.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
from pathlib import Path

_STREAMS = (0, 1, 2)


class Forking:
    """The process that all the others come from; it never runs an event loop."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._ready = selectors.DefaultSelector()
        self._ready.register(listener, selectors.EVENT_READ)
        self._children: set[socket.socket] = set()
        self._changed = b""

    def run(self) -> None:
        while True:
            for key, _ in self._ready.select():
                if key.fileobj is self._listener:
                    self._fork()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._pass_on(key.fileobj)

    def _pass_on(self, child: socket.socket) -> None:
        changes = child.recv(64)
        if not changes:
            self._ready.unregister(child)
            self._children.discard(child)
            child.close()
            return
        self._changed += changes
        for each in self._children:
            each.sendall(changes)

    def _fork(self) -> None:
        connection, _ = self._listener.accept()
        _, streams, _, _ = socket.recv_fds(connection, 1, len(_STREAMS))
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            self._ready.close()
            for inherited in (self._listener, ours, *self._children):
                inherited.close()
            for target, stream in zip(_STREAMS, streams, strict=True):
                os.dup2(stream, target)
                os.close(stream)
            from tests.conformance import fixture

            fixture.run_stdio(theirs, self._changed)
            os._exit(0)  # which closes the connection that `join` waits for
        for stream in streams:
            os.close(stream)
        connection.close()
        theirs.close()
        self._children.add(ours)
        self._ready.register(ours, selectors.EVENT_READ)


def serve(path: str) -> None:
    """Fork for whoever connects; prints `ready` once that is quick."""
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from tests.conformance import fixture  # noqa: F401 - what the forks need not do again

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        Forking(listener).run()


def join(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [b"x"], _STREAMS)
        connection.recv(1)  # nothing ever comes but the end


if __name__ == "__main__":
    {"serve": serve, "join": join}[sys.argv[1]](sys.argv[2])
