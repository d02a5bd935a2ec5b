"""Valid requests, and what is left of them after a few random changes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from tests.harness.front import BOTH, call, request

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

BODIES = [
    request("ping", 1),
    request("initialize", 2, protocolVersion="2025-11-25", capabilities={}, clientInfo={"a": "b"}),
    call("echo", "three", arguments={"n": 12345678901234567890, "s": "é", "deep": [[[{}]]]}),
    call("progress", 4, _meta={"progressToken": "t"}),
    request("tools/list", 5, cursor="abc"),
    request("logging/setLevel", 6, level="debug"),
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    {"jsonrpc": "2.0", "id": 1, "result": {}},
]
INSERTS = [
    *(bytes([n]) for n in (0, 9, 10, 13, 32, 34, 44, 58, 92, 123, 125, 127, 128, 195, 255)),
    *(bytes([n]) for n in b"0189aeEzZ._/"),
    b"\r\n",
    b"null",
    b"-1",
    b"1e999",
    b"\\ud800",
    b"Infinity",
    b"[" * 2000,
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\n",
    b"Expect: 100-continue\r\n",
    b"Upgrade: websocket\r\nConnection: upgrade\r\n",
    b"Content-Encoding: gzip\r\n",
    b"Mcp-Session-Id: x\r\n",
    b"MCP-Protocol-Version: 2026-07-28\r\n",
]


def damaged_request(rng: random.Random, session_id: str) -> bytes:
    """A request damaged in its body only, framed as it should be, or anywhere."""
    body = json.dumps(rng.choice(BODIES), ensure_ascii=False).encode()
    if rng.random() < 0.5:
        return framed(rng, session_id, mutate(rng, body))
    return mutate(rng, framed(rng, session_id, body))


def framed(rng: random.Random, session_id: str, body: bytes) -> bytes:
    method = rng.choices(["POST", "OPTIONS", "HEAD", "PUT"], [40, 1, 1, 1])[0]
    lines = [
        f"{method} {rng.choice(['/mcp', '/mcp/', '/mcp?a=b'])} HTTP/1.{rng.choice('1110')}",
        "Host: localhost:8080",
        f"Accept: {rng.choice([BOTH, '*/*', 'application/json'])}",
        "Content-Type: application/json",
        "MCP-Protocol-Version: 2025-11-25",
    ]
    if rng.random() < 0.7:
        lines.append(f"Mcp-Session-Id: {session_id}")
    if rng.random() < 0.2:
        lines.append("Transfer-Encoding: chunked")
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def mutate(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data = data[:at] + rng.choice(INSERTS) + data[at:]
            case 1:
                data = data[:at] + data[at + rng.randint(1, 20) :]
            case 2:
                data = data[:at] + bytes([rng.randrange(32, 256)]) + data[at + 1 :]
            case 3:
                line_end = data.find(b"\r\n", at) + 2
                data = data[:line_end] + rng.choice(INSERTS) + data[line_end:]
            case _:
                data = data[:at] + data[max(0, at - rng.randint(1, 40)) :]
    return data


async def send_damaged_requests(
    rng: random.Random,
    session_id: str,
    number: int,
    clients: int,
    send: Callable[[bytes], Awaitable[int]],
) -> None:
    """`send` gives the status of an answer, 0 for none. No 500; both kinds of answers come."""
    cases = iter([damaged_request(rng, session_id) for _ in range(number)])
    statuses: dict[int, int] = {}

    async def client() -> None:
        for data in cases:
            status = await send(data)
            assert status < 500, (status, data)
            statuses[status] = statuses.get(status, 0) + 1

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    assert sum(statuses.values()) == number
    # The damage was real, but not all of it: both sides of the line were tried.
    assert statuses[200] > 500
    assert statuses[400] > 500
