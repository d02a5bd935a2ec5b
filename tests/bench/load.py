"""How many calls a second the gateway carries, and what a call costs it.

    python tests/bench/load.py [--rounds 4] [--seconds 2] [--json]

Three echo servers, one gateway and one load client, each a process of its own on this machine. For
1 and 16 callers the client calls the servers directly and through the gateway in turn, so that what
else the machine does hits both alike; the table shows medians over the rounds. Every caller has a
session of its own, with the gateway and, through it, with each server. About 40 seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CALLERS = (1, 16)
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(echo(name)) for name in ("a", "b", "c")]
        pid, gateway = stack.enter_context(gateway_of(servers))
        measure(pid, 0.5, 16, [gateway])  # warm-up
        rows = []
        for callers in CALLERS:
            direct, through = [], []
            for _ in range(options.rounds):
                direct.append(measure(None, options.seconds, callers, servers))
                through.append(measure(pid, options.seconds, callers, [gateway]))
            rows.append(row("direct", callers, direct))
            rows.append(row("gateway", callers, through))
        show(rows, as_json=options.json)
    if any(result["errors"] for result in rows):
        sys.exit("some calls failed")


@contextlib.contextmanager
def process(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    # The commands are our own programs.
    with subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, **options
    ) as running:
        try:
            yield running
        finally:
            running.terminate()


@contextlib.contextmanager
def echo(name: str) -> Iterator[str]:
    with process([sys.executable, "-S", str(HERE / "echo.py"), name]) as running:
        yield line_of(running.stdout, r"(http\S+)")[1]


@contextlib.contextmanager
def gateway_of(servers: list[str]) -> Iterator[tuple[int, str]]:
    """The gateway's process id and address, once it serves."""
    manifest = {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "metadata": {"name": "load"},
        "spec": {
            "members": [
                {"name": name, "http": {"url": url}}
                for name, url in zip("abc", servers, strict=True)
            ]
        },
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(manifest, file)
        file.flush()
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'gateway'}"}
        ports = ["--port", "0", "--admin-port", "0", "--log-level", "Warning"]
        command = [sys.executable, "-m", "mcpgroup_gateway", "run", file.name, *ports]
        with process(command, env=env, stderr=subprocess.DEVNULL) as running:
            found = line_of(running.stdout, r"group \S+ on (http\S+?),")
            yield running.pid, found[1]


def line_of(stream: IO[str] | None, pattern: str) -> re.Match[str]:
    assert stream is not None
    for line in stream:
        if found := re.search(pattern, line):
            return found
    sys.exit("a process ended before it served")


def measure(pid: int | None, seconds: float, callers: int, urls: list[str]) -> dict[str, float]:
    """One run of the client; with `pid` also that process's CPU seconds a call."""
    began = 0.0 if pid is None else cpu_seconds(pid)
    command = [sys.executable, "-S", str(HERE / "client.py"), str(seconds), str(callers), *urls]
    output = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    result: dict[str, float] = json.loads(output.stdout)
    result["rate"] = result["calls"] / result["seconds"]
    if pid is not None:
        result["cpu"] = (cpu_seconds(pid) - began) / result["calls"]
    return result


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its threads so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def row(path: str, callers: int, runs: list[dict[str, float]]) -> dict[str, Any]:
    def middle(name: str) -> float:
        return statistics.median(run[name] for run in runs)

    return {
        "path": path,
        "callers": callers,
        "requestsPerSecond": round(middle("rate")),
        "p50Milliseconds": round(middle("p50") * 1000, 3),
        "p99Milliseconds": round(middle("p99") * 1000, 3),
        "cpuMilliseconds": round(middle("cpu") * 1000, 3) if "cpu" in runs[0] else None,
        "errors": sum(int(run["errors"]) for run in runs),
    }


def show(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    print("PATH     CALLERS  REQUESTS/S   P50 MS   P99 MS  GATEWAY CPU MS/CALL  ERRORS")
    for r in rows:
        cpu = "-" if r["cpuMilliseconds"] is None else f"{r['cpuMilliseconds']:.3f}"
        print(
            f"{r['path']:7}  {r['callers']:7}  {r['requestsPerSecond']:10}  "
            f"{r['p50Milliseconds']:7.3f}  {r['p99Milliseconds']:7.3f}  {cpu:>19}  {r['errors']:6}"
        )


if __name__ == "__main__":
    main()
