"""An MCP server that only echoes, as fast as plain asyncio allows: the yardstick of the load runs.

`python tests/bench/echo.py NAME` prints `http://127.0.0.1:PORT/mcp` and serves until it is ended.
Standard library only. It trusts its one client: no check of versions, sizes or sessions.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import signal
import sys

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ID = re.compile(rb'"id": ?("[^"]*"|-?\d+)')
_ARGUMENTS = re.compile(rb'"arguments": ?\{"text": ?("[^"]*")\}')
_TOOL = {
    "name": "echo",
    "description": "Gives the text back.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
    "annotations": {"readOnlyHint": True},
}
_TOOLS = json.dumps({"tools": [_TOOL]}).encode()
_sessions = itertools.count(1)


class Echo(asyncio.Protocol):
    """One connection; requests may arrive in pieces, one after the other."""

    def __init__(self, name: str) -> None:
        self._initialized = json.dumps(
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": name, "version": "1"},
            }
        ).encode()
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._received + data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(data, 0, end)
            total = end + 4 + (int(length[1]) if length is not None else 0)
            if len(data) < total:
                break
            self._answer(data[:4], data[end + 4 : total])
            data = data[total:]
        self._received = data

    def _answer(self, verb: bytes, body: bytes) -> None:
        if verb != b"POST":
            self._send(b"405 Method Not Allowed" if verb == b"GET " else b"200 OK")
            return
        found = _ID.search(body)
        if found is None or b'"method":"notifications/' in body:
            self._send(b"202 Accepted")
        elif b'"tools/call"' in body:
            text = _ARGUMENTS.search(body)
            assert text is not None
            self._result(found[1], b'{"content":[{"type":"text","text":%b}]}' % text[1])
        elif b'"initialize"' in body:
            session = b"Mcp-Session-Id: s%d\r\n" % next(_sessions)
            self._result(found[1], self._initialized, session)
        elif b'"tools/list"' in body:
            self._result(found[1], _TOOLS)
        else:
            self._result(found[1], b"{}")

    def _result(self, request_id: bytes, result: bytes, headers: bytes = b"") -> None:
        body = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, result)
        self._send(b"200 OK", b"Content-Type: application/json\r\n" + headers, body)

    def _send(self, status: bytes, headers: bytes = b"", body: bytes = b"") -> None:
        self._transport.write(
            b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, headers, len(body), body)
        )


async def main(name: str) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(lambda: Echo(name), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", flush=True)
    await stop.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
