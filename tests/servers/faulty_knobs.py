"""What the faulty server can be told to do wrong; standard library only, it must start fast."""

from __future__ import annotations

import argparse
import json
import os


class Knobs(argparse.Namespace):
    """Flags of the command line, overridden while it runs by the JSON object in `--control-file`.

    Keys of that object are the flags' names with underscores, for instance `{"fail_calls": true}`.
    """

    transport: str
    name: str
    port: int
    tools_file: str | None
    start_delay: float
    fail_start_until_file: str | None
    protocol_version: str | None
    single_threaded: bool
    page_size: int
    repeat_cursor: bool
    bad_entries: bool
    no_ping: bool
    silent: bool
    fail_calls: bool
    fail_every: int
    call_status: int
    retry_after: str | None
    call_counter: str | None
    control_file: str | None
    ignore_sigterm: bool
    ignore_eof: bool
    grandchild: bool
    stderr_flood: bool
    stdout_noise: bool
    schema_variant: str
    lose_session_after: int
    unknown_session: int
    stateless: bool
    sse: bool
    resume: bool
    no_get: bool
    keep_alive_seconds: float

    _overridden_at: int = 0

    def refresh(self) -> None:
        """Take over what the control file says now."""
        if self.control_file is None:
            return
        try:
            changed = os.stat(self.control_file).st_mtime_ns
        except FileNotFoundError:
            return
        if changed != self._overridden_at:
            with open(self.control_file, encoding="utf-8") as file:
                overrides = json.load(file)
            for key, value in overrides.items():
                setattr(self, key, value)
            self._overridden_at = changed


def parse(arguments: list[str]) -> Knobs:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("transport", choices=["stdio", "http"])
    add("--name", default=os.environ.get("FAULTY_NAME", "faulty"))
    add("--port", type=int, default=0, help="0 takes a free one; it is printed on stderr")
    add("--tools-file", help="JSON list of tools that takes the place of the usual ones")
    # starting
    add("--start-delay", type=float, default=0.0, metavar="SECONDS")
    add("--fail-start-until-file", metavar="PATH", help="exit 1 at once while PATH is missing")
    add("--protocol-version", help="answer initialize with this version whatever was offered")
    # lists
    add("--page-size", type=int, default=0)
    add("--repeat-cursor", action="store_true", help="every page names the same next cursor")
    add("--bad-entries", action="store_true", help="lists hold entries that are not valid")
    add("--schema-variant", default="a", help="changes the schema of the tool `variant`")
    # calls
    add("--single-threaded", action="store_true", help="nothing is read while a request runs")
    add("--no-ping", action="store_true", help="ping is an unknown method")
    add("--silent", action="store_true", help="requests after the handshake are never answered")
    add("--fail-calls", action="store_true", help="tool calls: HTTP 500, over stdio no JSON-RPC")
    add("--fail-every", type=int, default=0, metavar="N", help="like --fail-calls for each Nth")
    add("--call-status", type=int, default=0, help="tool calls run, the answer is this HTTP status")
    add("--answer-502", action="store_const", const=502, dest="call_status")
    add("--retry-after", help="the header's value, with --call-status")
    add("--call-counter", metavar="FILE", help="append one JSON line for each call that ran")
    add("--control-file", metavar="FILE", help="JSON object of knobs, read before each request")
    # the process
    add("--ignore-sigterm", action="store_true")
    add("--ignore-eof", action="store_true", help="run on after stdin ended")
    add("--grandchild", action="store_true", help="have a child process that outlives everything")
    add("--stderr-flood", action="store_true")
    add("--stdout-noise", action="store_true", help="print lines that are no messages")
    # HTTP
    add("--lose-session-after", type=int, default=0, metavar="N", help="requests a session lives")
    add("--unknown-session", type=int, choices=[404, 400], default=404)
    add("--stateless", action="store_true")
    add("--sse", action="store_true", help="answer requests with an event stream")
    add("--resume", action="store_true", help="--sse, and the stream breaks before the answer")
    add("--no-get", action="store_true", help="405 for GET")
    add("--keep-alive-seconds", type=float, default=0.0, help="close connections idle for so long")
    return parser.parse_args(arguments, namespace=Knobs())
