"""A first load run: an echo server directly and through the gateway, interleaved.

    python tests/bench/load.py

Everything is on loopback. The load generator, the gateway and the three echo servers share the
machine's cores: read the gateway's CPU time per call first, and ratios within one run.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 3.0
ROUNDS = 3
HEAD = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
ACCEPT = "Accept: application/json, text/event-stream\r\n"
TOOL = '{"name":"echo","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}'


class Echo(asyncio.Protocol):
    """The smallest streamable HTTP server that will do: one tool, JSON answers."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while True:
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return
            length = re.search(rb"(?i)content-length: (\d+)", head)
            size = int(length[1]) if length else 0
            if len(rest) < size:
                return
            self.buffer = rest[size:]
            self.answer(head, rest[:size])

    def answer(self, head: bytes, body: bytes) -> None:
        assert isinstance(self.transport, asyncio.WriteTransport)
        if not head.startswith(b"POST"):
            self.transport.write(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
            return
        message = json.loads(body)
        method = message["method"]
        if "id" not in message:
            self.transport.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            return
        if method == "initialize":
            result = (
                '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
                '"serverInfo":{"name":"echo","version":"1"}}'
            )
        elif method == "tools/list":
            result = f'{{"tools":[{TOOL}]}}'
        elif method == "tools/call":
            result = f'{{"content":[{{"type":"text","text":"{"x" * 64}"}}]}}'
        else:
            result = "{}"
        answer = f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":{result}}}'
        session = "Mcp-Session-Id: s\r\n" if method == "initialize" else ""
        self.transport.write(
            (
                f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{session}"
                f"Content-Length: {len(answer)}\r\n\r\n{answer}"
            ).encode()
        )


async def serve_echo() -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, extra: str, body: str
) -> tuple[str, bytes]:
    head = f"{HEAD}{ACCEPT}{extra}Content-Length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    answer = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = re.search(r"(?i)content-length: (\d+)", answer)
    return answer, await reader.readexactly(int(length[1])) if length else b""


async def worker(port: int, end: float, times: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    params = (
        '{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"1"}}'
    )
    begin = f'{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{params}}}'
    head, _ = await exchange(reader, writer, "", begin)
    found = re.search(r"(?i)mcp-session-id: (\S+)", head)
    session = f"Mcp-Session-Id: {found[1]}\r\n" if found else ""
    number = 0
    while time.perf_counter() < end:
        number += 1
        body = (
            f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":'
            f'{{"name":"echo","arguments":{{"text":"{"x" * 64}"}}}}}}'
        )
        began = time.perf_counter()
        _, answer = await exchange(reader, writer, session, body)
        times.append(time.perf_counter() - began)
        if f'"id":{number},'.encode() not in answer or b'"result"' not in answer:
            raise SystemExit(f"wrong answer: {answer!r}")
    writer.close()


async def measure(port: int, connections: int, pid: int | None) -> tuple[float, float, float]:
    """Requests a second, median seconds, CPU seconds of `pid` per call."""
    times: list[float] = []
    before = cpu(pid)
    began = time.perf_counter()
    await asyncio.gather(*(worker(port, began + SECONDS, times) for _ in range(connections)))
    seconds = time.perf_counter() - began
    return len(times) / seconds, statistics.median(times), (cpu(pid) - before) / len(times)


def cpu(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def started(command: list[str]) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(  # noqa: S603 - commands of our own
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline()


async def main() -> None:
    processes = []
    ports = []
    for _ in range(3):
        process, line = started([sys.executable, __file__, "echo"])
        processes.append(process)
        ports.append(int(line))
    members = [
        {"name": f"m{n}", "http": {"url": f"http://127.0.0.1:{port}/mcp"}}
        for n, port in enumerate(ports)
    ]
    manifest = {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "metadata": {"name": "bench"},
        "spec": {"members": members},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.yaml"
        path.write_text(json.dumps(manifest))
        command = [sys.executable, "-m", "mcpgroup_gateway", "run", str(path)]
        gateway, line = started([*command, "--port", "0", "--admin-port", "0"])
        processes.append(gateway)
        found = re.search(r"http://127\.0\.0\.1:(\d+)/mcp", line)
        assert found is not None, line
        await asyncio.sleep(1.0)
        results: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
        try:
            for _ in range(ROUNDS):
                for connections in (1, 16):
                    for name, port, pid in (
                        ("direct", ports[0], None),
                        ("gateway", int(found[1]), gateway.pid),
                    ):
                        sample = await measure(port, connections, pid)
                        results.setdefault((name, connections), []).append(sample)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(40)
    print("path     c   requests/s   p50 ms   gateway CPU ms/call")
    for (name, connections), samples in results.items():
        rate, median, used = (statistics.median(column) for column in zip(*samples, strict=True))
        print(f"{name:8} {connections:<3} {rate:8.0f}   {median * 1e3:8.3f}   {used * 1e3:8.3f}")


if __name__ == "__main__":
    asyncio.run(serve_echo() if sys.argv[1:] == ["echo"] else main())
