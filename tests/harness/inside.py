"""A replica in the test's own process, whose tables can be looked into.

async with inside(members=[…]) as gateway:
    await gateway.ready()
    reply = await gateway.post({...})
    assert gateway.tables() == {}
"""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

import aiohttp
from tests.harness.messages import (
    ACCEPT,
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    MODERN,
    VERSION_KEY,
    messages_of,
    request,
)
from tests.harness.processes import until

from mcpgroup_gateway import manifest
from mcpgroup_gateway.replica import recording
from mcpgroup_gateway.replica.composition import Replica
from mcpgroup_gateway.replica.options import RunOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


class _Faults(logging.Handler):
    """Keeps what a gateway must never log whatever it is sent."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warnings: list[str] = []
        self.faults: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        (self.faults if record.levelno >= logging.ERROR else self.warnings).append(text)


@dataclass
class Inside:
    replica: Replica
    http: aiohttp.ClientSession
    log: _Faults
    _counter: list[int] = field(default_factory=lambda: [0])

    @property
    def url(self) -> str:
        return self.replica.url

    async def ready(self, seconds: float = 20) -> None:
        """Until every member is in rotation and its lists were read."""
        context = self.replica.context
        await self.until(
            lambda: all(
                endpoint.ready and context.catalogues.of(endpoint.member) is not None
                for endpoint in context.group.endpoints.values()
            ),
            seconds,
        )

    async def until(self, holds: Callable[[], bool], seconds: float = 10) -> None:
        await until(holds, seconds, what=f"still open: {self.tables()}")

    def tables(self) -> dict[str, int]:
        """The tables of what is open for clients, those that are not empty."""
        context, service = self.replica.context, self.replica.service
        sizes = {
            "calls": len(context.calls),
            "questions": len(context.questions),
            "pending": len(context.pending),
            "subscriptions": len(context.subscriptions),
            "listening": len(service.listening),
            "in_flight": sum(e.in_flight for e in context.group.endpoints.values()),
            "upstreams": len(context.upstreams),
            "sessions": len(self.replica.sessions),
            "running": self.replica.front.in_flight,
        }
        return {name: size for name, size in sizes.items() if size}

    async def post(
        self, message: object, *, session: str | None = None, **headers: str
    ) -> tuple[int, list[dict[str, Any]]]:
        """The status and all messages of the answer."""
        async with self.send(message, session=session, **headers) as answer:
            return answer.status, [each async for each in messages_of(answer)]

    def send(
        self, message: object, *, session: str | None = None, **headers: str
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        fields = {"Content-Type": "application/json", "Accept": ACCEPT, **headers}
        if session is not None:
            fields["Mcp-Session-Id"] = session
        return self.http.post(self.url, data=json.dumps(message), headers=fields)

    async def open_session(
        self, capabilities: dict[str, Any] | None = None, version: str = "2025-11-25"
    ) -> str:
        params = {
            "protocolVersion": version,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        async with self.send(request("initialize", 1, **params)) as answer:
            assert answer.status == 200, await answer.text()
            session = answer.headers["Mcp-Session-Id"]
        notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        status, _ = await self.post(notification, session=session)
        assert status == 202
        return session

    async def end_session(self, session: str) -> int:
        async with self.http.delete(self.url, headers={"Mcp-Session-Id": session}) as answer:
            return answer.status


def modern(
    method: str,
    request_id: object,
    capabilities: dict[str, Any] | None = None,
    meta: dict[str, Any] | None = None,
    **params: Any,
) -> tuple[dict[str, Any], dict[str, str]]:
    """A request of the modern era and its headers."""
    params["_meta"] = {
        VERSION_KEY: MODERN,
        CLIENT_INFO_KEY: {"name": "t", "version": "1"},
        CAPABILITIES_KEY: capabilities or {},
        **(meta or {}),
    }
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if "name" in params or "uri" in params:
        headers["Mcp-Name"] = params.get("name") or params["uri"]
    return request(method, request_id, **params), headers


@contextlib.asynccontextmanager
async def inside(path: Path, **spec: Any) -> AsyncIterator[Inside]:
    """`path` is where the manifest is written."""
    document = {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "metadata": {"name": "inside"},
        "spec": spec,
    }
    path.write_text(json.dumps(document))  # noqa: ASYNC240 - before anything runs
    options = RunOptions(str(path), port=0, admin_port=0)
    log = _Faults()
    root = logging.getLogger()
    with mock.patch.object(recording, "configure_logging"):
        replica = Replica(options, manifest.read(str(path)))
    root.addHandler(log)
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=90)
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
            try:
                await replica.start()
                yield Inside(replica, http, log)
            finally:
                await replica.close()
    finally:
        root.removeHandler(log)
