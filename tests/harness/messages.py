"""Messages as clients on plain HTTP write and read them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from mcpgroup_gateway.wire.sse import EventParser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

ACCEPT: Final = "application/json, text/event-stream"
MODERN: Final = "2026-07-28"
#: What the protocol's own keys of `_meta` begin with.
META: Final = "io.modelcontextprotocol/"
VERSION_KEY: Final = f"{META}protocolVersion"
CLIENT_INFO_KEY: Final = f"{META}clientInfo"
CAPABILITIES_KEY: Final = f"{META}clientCapabilities"


def request(method: str, request_id: Any, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


async def messages_of(answer: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    """The messages of an answer as they come."""
    if not answer.content_type.startswith("text/event-stream"):
        body = await answer.read()
        if body:
            yield json.loads(body)
        return
    parser = EventParser(1 << 26)
    async for data in answer.content.iter_any():
        for event in parser.feed(data):
            if event.data:
                yield json.loads(event.data)
