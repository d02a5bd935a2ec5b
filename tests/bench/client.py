"""Callers that do nothing else: each keeps one connection and one session and calls `echo`.

`python tests/bench/client.py SECONDS CALLERS URL…` spreads the callers over the addresses and
prints one JSON line: {"calls": …, "errors": …, "seconds": …, "p50": …, "p99": …}, times in seconds.
Standard library only.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import statistics
import sys
import time
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SESSION = re.compile(rb"\r\nmcp-session-id: *([^\r]+)", re.IGNORECASE)
_TEXT = b"sixty-four bytes of text are about what a small argument takes.."


class Caller(asyncio.Protocol):
    """Opens a session, then calls again as soon as it was answered, until `end`."""

    def __init__(self, address: str, end: float) -> None:
        url = urlsplit(address)
        self._head = (
            f"POST {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        ).encode()
        self._end = end
        self._received = b""
        self._requests = 0
        self._sent_at = 0.0
        self.latencies: list[float] = []
        self.errors = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._post(
            b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":'
            b'"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}'
        )

    def connection_lost(self, fault: Exception | None) -> None:
        if not self.done.done():
            self.errors += 1
            self.done.set_result(None)

    def data_received(self, data: bytes) -> None:
        data = self._received + data
        end = data.find(b"\r\n\r\n")
        if end >= 0:
            length = _LENGTH.search(data, 0, end)
            if len(data) >= end + 4 + (int(length[1]) if length is not None else 0):
                self._received = b""
                self._answered(data, end)
                return
        self._received = data

    def _answered(self, data: bytes, end: int) -> None:
        self._requests += 1
        if self._requests == 1:
            session = _SESSION.search(data, 0, end + 2)
            if session is not None:
                self._head += b"Mcp-Session-Id: %b\r\n" % session[1]
            self._post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
            return
        now = time.perf_counter()
        if self._requests > 2:
            if b'"id":%d,' % self._requests in data and _TEXT in data:
                self.latencies.append(now - self._sent_at)
            else:
                self.errors += 1
        if now >= self._end:
            self.done.set_result(None)
            self._transport.close()
            return
        self._sent_at = now
        self._post(
            b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo",'
            b'"arguments":{"text":"%b"}}}' % (self._requests + 1, _TEXT)
        )

    def _post(self, body: bytes) -> None:
        self._transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body))


async def main(seconds: float, callers: int, addresses: list[str]) -> None:
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    calling: list[Caller] = []
    for number in range(callers):
        address = addresses[number % len(addresses)]
        url = urlsplit(address)
        _, caller = await loop.create_connection(
            functools.partial(Caller, address, began + seconds), url.hostname or "", url.port or 80
        )
        calling.append(caller)
    await asyncio.wait_for(asyncio.gather(*(caller.done for caller in calling)), seconds + 30)
    took = time.perf_counter() - began
    latencies = sorted(latency for caller in calling for latency in caller.latencies)
    result = {
        "calls": len(latencies),
        "errors": sum(caller.errors for caller in calling),
        "seconds": took,
        "p50": statistics.median(latencies),
        "p99": latencies[len(latencies) * 99 // 100],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
