"""A member without a gateway in front of it, to compare with: answers as the bytes they were."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import aiohttp
from tests.harness.gateway import Reply
from tests.harness.messages import ACCEPT

from mcpgroup_gateway.wire.envelope import parse_list, parse_message, parse_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Ask = Callable[[bytes], Awaitable[bytes]]

_WHO = {"protocolVersion": "2025-11-25", "capabilities": {}}
_INITIALIZE = {**_WHO, "clientInfo": {"name": "direct", "version": "1"}}
_READY = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


class Direct:
    """One session with a server that was opened like the gateway opens its own."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.capabilities: dict[str, Any] = {}

    async def answer(self, method: str, params: str) -> bytes:
        """The whole response; `params` is JSON text. Bytes of `result` or `error`."""
        request = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}'
        return payload(await self._ask(request.encode()))

    async def initialize(self) -> None:
        result = json.loads(await self.answer("initialize", json.dumps(_INITIALIZE)))
        self.capabilities = result["capabilities"]


def payload(message: bytes) -> bytes:
    """The bytes of a response's `result`, or of its `error`."""
    response = parse_message(message)
    return bytes(response.result) or bytes(response.error)


async def entries(
    ask: Callable[[str, str], Awaitable[bytes]], method: str, key: str
) -> dict[str, bytes]:
    """All pages of a list: the bytes of each entry, by its name, URI or template."""
    found: dict[str, bytes] = {}
    params = "{}"
    while True:
        page = parse_object(await ask(method, params))
        for raw in parse_list(page[key]):
            entry = json.loads(bytes(raw))
            found[entry.get("uriTemplate") or entry.get("uri") or entry["name"]] = bytes(raw)
        if "nextCursor" not in page:
            return found
        params = f'{{"cursor":{bytes(page["nextCursor"]).decode()}}}'


@contextlib.asynccontextmanager
async def over_stdio(command: list[str]) -> AsyncIterator[Direct]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=1 << 25,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def ask(request: bytes) -> bytes:
        stdin.write(request + b"\n")
        async with asyncio.timeout(30):
            while line := await stdout.readline():
                message = parse_message(line)
                if message.is_response and message.raw_id == b"1":
                    return line
        raise AssertionError("the server ended")

    direct = Direct(ask)
    try:
        await direct.initialize()
        stdin.write(_READY + b"\n")
        yield direct
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


@contextlib.asynccontextmanager
async def over_http(url: str) -> AsyncIterator[Direct]:
    headers = {"Content-Type": "application/json", "Accept": ACCEPT}
    async with aiohttp.ClientSession() as http:

        async def post(request: bytes) -> Reply:
            async with http.post(url, data=request, headers=headers) as answer:
                if "Mcp-Session-Id" in answer.headers:
                    headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
                return Reply(answer.status, answer.headers, await answer.read())

        async def ask(request: bytes) -> bytes:
            return (await post(request)).messages[-1]

        direct = Direct(ask)
        await direct.initialize()
        await post(_READY)
        yield direct
        async with http.delete(url, headers=headers):
            pass
