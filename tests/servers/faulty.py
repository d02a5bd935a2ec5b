"""A small MCP server that can be told to misbehave; see `faulty_knobs.py`.

python tests/servers/faulty.py stdio [flags]
python tests/servers/faulty.py http --port 0 [flags]

Standard library only, so that it starts in about 50 ms. Results are written as text by hand:
integers, floats and unknown keys stay as they are.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.servers import faulty_knobs  # noqa: E402 - found through the line above
from tests.servers.faulty_json import members, splice  # noqa: E402
from tests.servers.faulty_server import CallFailed, Server  # noqa: E402
from tests.servers.faulty_tools import Session  # noqa: E402

NOISE = [
    b"Welcome to the server!",
    b"",
    b"\x1b[32mINFO\x1b[0m ready",
    b'{"level":"info","msg":"a log line that is JSON"}',
    b"null",
    b"[]",
    b"\xff\xfe\x00 not UTF-8",
    b'{"jsonrpc":"2.0","id":1,"result":',
    b"\r",
]


class StdioServer:
    """stdin to stdout; calls run in threads unless `--single-threaded`."""

    headers: dict[str, str] = {}  # noqa: RUF012 - there are none here, it is `Stream`'s member

    def __init__(self, server: Server) -> None:
        self.server = server
        self._session = Session(self.send)
        self._writing = threading.Lock()

    def send(self, text: str) -> None:
        line = text.encode()
        if self.server.knobs.stdout_noise:
            line = b"\n".join(NOISE) + b"\n" + line + b"\r"
        with self._writing:
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()

    def serve(self) -> None:
        knobs = self.server.knobs
        for line in sys.stdin.buffer:
            knobs.refresh()
            self.server.announce(line.decode(), self._session)
            if knobs.single_threaded or b'"tools/call"' not in line:
                self._handle(line.decode())
            else:
                with self.server.turn:
                    pass
                threading.Thread(target=self._handle, args=(line.decode(),), daemon=True).start()
        while knobs.ignore_eof:
            time.sleep(60)

    def _handle(self, text: str) -> None:
        with self.server.turn:
            pass  # `busy` lets nothing begin
        try:
            self.server.handle(text, self._session, self)
        except CallFailed:
            self.send(splice(jsonrpc='"1.0"', id=members(text)["id"], result="{}"))


def flood_stderr() -> None:
    block = b"".join(b"noise %d " % number + b"y" * 80 + b"\n" for number in range(100))
    while True:
        sys.stderr.buffer.write(block)


def main() -> None:
    knobs = faulty_knobs.parse(sys.argv[1:])
    awaited = knobs.fail_start_until_file
    if awaited is not None and not Path(awaited).exists():
        sys.exit(1)
    if knobs.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(knobs.start_delay)
    server = Server(knobs)
    if knobs.grandchild:
        # It holds our pipes and ignores what would end it.
        script = "trap '' TERM HUP INT; while :; do sleep 3600; done"
        server.grandchild = subprocess.Popen(["/bin/sh", "-c", script]).pid  # noqa: S603
    if knobs.stderr_flood:
        threading.Thread(target=flood_stderr, daemon=True).start()
    if knobs.transport == "http":
        from tests.servers.faulty_http import serve  # http.server is slow to import

        serve(server)
    else:
        StdioServer(server).serve()
    sys.stdout.flush()
    os._exit(0)  # whatever the threads do


if __name__ == "__main__":
    main()
