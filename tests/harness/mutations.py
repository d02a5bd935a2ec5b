"""Valid requests, and what is left of them after a few random changes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from tests.harness.front import call, modern, modern_headers
from tests.harness.messages import ACCEPT, CAPABILITIES_KEY, request

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
MODERN_BODIES = [
    modern("server/discover", 1),
    modern("tools/call", "two", name="echo", arguments={"region": "eu", "deep": [[[{}]]]}),
    modern("tools/call", 3, {CAPABILITIES_KEY: {"sampling": {}}, "progressToken": 1}, name="echo"),
    modern("tools/call", 4, {"progressToken": "t"}, name="progress", arguments={"region": "é"}),
    modern("tools/list", 5, {"io.modelcontextprotocol/logLevel": "debug"}, cursor="abc"),
    modern("resources/read", 6, uri="file:///a%20b"),
    modern("ping", 7),
    modern("no/such", 8),
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
]
HEADER_VALUES = ["", "x", "tools/call", "echo", "2025-11-25", "2099-01-01", "=?base64?ZWNobx==?="]
JSON_VALUES: list[Any] = [
    None,
    True,
    0,
    -1.5,
    10**30,
    "",
    "é",
    "=?base64?ZWNobw==?=",
    [],
    [{}],
    {},
    "x" * 999,
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
    b"Mcp-Method: tools/call\r\n",
    b"Mcp-Name: =?base64?ZWNobw==?=\r\n",
    b"Mcp-Param-Region: eu\r\n",
    b"io.modelcontextprotocol/",
]


def damaged_request(rng: random.Random, session_id: str) -> bytes:
    """A request damaged in its body only, framed as it should be, or anywhere."""
    body = json.dumps(rng.choice(BODIES), ensure_ascii=False).encode()
    lines = ["MCP-Protocol-Version: 2025-11-25"]
    if rng.random() < 0.7:
        lines.append(f"Mcp-Session-Id: {session_id}")
    return damaged(rng, lines, body)


def damaged_modern_request(rng: random.Random, session_id: str) -> bytes:
    """The same of the modern era, where a session means nothing.

    Half of them are well-formed, and something is wrong with what they say.
    """
    message = rng.choice(MODERN_BODIES)
    region = message["params"].get("arguments", {}).get("region")
    fields = modern_headers(message, mcp_session_id=session_id, mcp_param_region=region)
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items() if value]
    if rng.random() < 0.5:
        return damaged(rng, lines, json.dumps(message, ensure_ascii=False).encode())
    match rng.randrange(4):
        case 0:
            message = confused(rng, message)
        case 1:
            del lines[rng.randrange(len(lines))]
        case 2:
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
        case _:
            at = rng.randrange(len(lines))
            lines[at] = f"{lines[at].partition(':')[0]}: {rng.choice(HEADER_VALUES)}"
    return framed(rng, lines, json.dumps(message, ensure_ascii=False).encode())


def confused(rng: random.Random, value: Any) -> Any:
    """The same JSON with one value of it dropped or replaced."""
    if not isinstance(value, dict) or not value or rng.random() < 0.1:
        return rng.choice(JSON_VALUES)
    changed = dict(value)
    key = rng.choice(list(changed))
    if rng.random() < 0.2:
        del changed[key]
    else:
        changed[key] = confused(rng, changed[key])
    return changed


def damaged(rng: random.Random, lines: list[str], body: bytes) -> bytes:
    if rng.random() < 0.5:
        return framed(rng, lines, mutate(rng, body))
    return mutate(rng, framed(rng, lines, body))


def framed(rng: random.Random, headers: list[str], body: bytes) -> bytes:
    method = rng.choices(["POST", "OPTIONS", "HEAD", "PUT"], [40, 1, 1, 1])[0]
    lines = [
        f"{method} {rng.choice(['/mcp', '/mcp/', '/mcp?a=b'])} HTTP/1.{rng.choice('1110')}",
        "Host: localhost:8080",
        f"Accept: {rng.choice([ACCEPT, '*/*', 'application/json'])}",
        "Content-Type: application/json",
        *headers,
    ]
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
    damage: Callable[[random.Random, str], bytes] = damaged_request,
) -> None:
    """`send` gives the status of an answer, 0 for none. No 500; both kinds of answers come."""
    cases = iter([damage(rng, session_id) for _ in range(number)])
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
    # Without an answer stays only a request that did not end, or came too late.
    assert statuses.get(0, 0) < number / 10
