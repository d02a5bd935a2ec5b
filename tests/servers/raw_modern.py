"""A scripted member of 2026-07-28 for `raw_http.RawServer`, and answers of members without it."""

from __future__ import annotations

import json
from typing import Any, Self

from tests.servers.raw_http import (
    Handler,
    Peer,
    Request,
    chunk,
    error,
    event,
    response,
    result,
    stream_head,
)

MODERN = "2026-07-28"
_META = "io.modelcontextprotocol/"


class ModernMember:
    """Refuses what is not modern as the protocol wants it; a test scripts the rest by method.

    A method without a script is answered with an empty complete result.
    """

    def __init__(self) -> None:
        self.scripts: dict[str, Handler] = {}

    def on(self, method: str, script: Handler) -> Self:
        self.scripts[method] = script
        return self

    async def __call__(self, request: Request, peer: Peer) -> None:
        if request.method != "POST":
            await peer.send(response(status=405))
            return
        version = request.headers.get("mcp-protocol-version")
        meta = request.message.get("params", {}).get("_meta", {})
        if version != MODERN or request.rpc_method == "initialize":
            await peer.send(response(unsupported(request), status=400))
        elif f"{_META}clientCapabilities" not in meta:
            await peer.send(response(error(request.id, -32602), status=400))
        elif meta.get(f"{_META}protocolVersion") != version:
            await peer.send(response(error(request.id, -32020), status=400))
        elif request.rpc_method in self.scripts:
            await self.scripts[request.rpc_method](request, peer)
        elif request.rpc_method == "server/discover":
            await peer.send(response(discovered(request)))
        else:
            await peer.send(response(complete(request)))


def complete(request: Request, **members: Any) -> bytes:
    return result(request, {"resultType": "complete", **members})


def discovered(request: Request) -> bytes:
    return complete(
        request,
        supportedVersions=[MODERN],
        capabilities={"tools": {"listChanged": True}},
        instructions="Be modern.",
        ttlMs=0,
        cacheScope="public",
        _meta={f"{_META}serverInfo": {"name": "raw", "version": "2"}},
    )


def unsupported(request: Request, *versions: str) -> bytes:
    data = {"supported": list(versions) or [MODERN], "requested": "x"}
    fault = {"code": -32022, "message": "no", "data": data}
    return json.dumps({"jsonrpc": "2.0", "id": request.id, "error": fault}).encode()


def notification(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


async def stream(peer: Peer, *messages: bytes, end: bool = True) -> None:
    """Answer with an event stream of these messages."""
    await peer.send(stream_head())
    for message in messages:
        await peer.send(chunk(event(message)))
    if end:
        await peer.send(chunk(b""))


def subscribed(request: Request, method: str) -> bytes:
    return notification(method, _meta={f"{_META}subscriptionId": request.id})
