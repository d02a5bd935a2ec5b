"""Clients of both eras on plain HTTP, whose every message can be looked at."""

from __future__ import annotations

import abc
import asyncio
import json
from itertools import count
from typing import TYPE_CHECKING, Any

import aiohttp
from tests.harness.messages import (
    ACCEPT,
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    META,
    MODERN,
    VERSION_KEY,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.harness.gateway import Gateway

SUBSCRIPTION = f"{META}subscriptionId"


class Heard:
    """Messages as they come, as bytes and parsed; `ended` once there will be no more."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []
        self.messages: list[dict[str, Any]] = []
        self.ended = False
        self._news = asyncio.Condition()

    async def put(self, data: bytes) -> None:
        async with self._news:
            self.raw.append(data)
            self.messages.append(json.loads(data))
            self._news.notify_all()

    async def end(self) -> None:
        async with self._news:
            self.ended = True
            self._news.notify_all()

    async def until(self, holds: Callable[[], bool], timeout: float = 10) -> None:
        try:
            async with asyncio.timeout(timeout), self._news:
                await self._news.wait_for(lambda: holds() or self.ended)
        except TimeoutError:
            raise AssertionError(f"not within {timeout} s; heard {self.messages}") from None
        assert holds(), f"it ended; heard {self.messages}"

    async def first(self, method: str, number: int = 1, timeout: float = 10) -> dict[str, Any]:
        """The `number`th message of a method."""
        await self.until(lambda: len(self.of(method)) >= number, timeout)
        return self.of(method)[number - 1]

    def of(self, method: str) -> list[dict[str, Any]]:
        return [each for each in self.messages if each.get("method") == method]


class Stream(Heard):
    """One HTTP request whose answer is read as it comes."""

    def __init__(self, request_id: Any = None) -> None:
        super().__init__()
        self.id = request_id
        self.status = 0
        self.headers: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self, context: Any) -> None:
        self._task = asyncio.create_task(self._read(context))

    async def begun(self) -> None:
        await self.until(lambda: bool(self.status))

    async def answer(self, timeout: float = 10) -> dict[str, Any]:
        """The response; what came before it is in `before`."""
        await self.until(lambda: any("method" not in each for each in self.messages), timeout)
        return next(each for each in self.messages if "method" not in each)

    async def raw_answer(self) -> bytes:
        await self.answer()
        return next(raw for raw in self.raw if "method" not in json.loads(raw))

    @property
    def before(self) -> list[dict[str, Any]]:
        """What came before the response."""
        return [each for each in self.messages if "method" in each]

    async def finished(self, timeout: float = 10) -> None:
        try:
            async with asyncio.timeout(timeout), self._news:
                await self._news.wait_for(lambda: self.ended)
        except TimeoutError:
            raise AssertionError(f"it did not end; heard {self.messages}") from None

    async def leave(self) -> None:
        """Close the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, context: Any) -> None:
        try:
            async with context as response:
                self.headers = dict(response.headers)
                async with self._news:
                    self.status = response.status
                    self._news.notify_all()
                if response.content_type != "text/event-stream":
                    body = await response.read()
                    if body:
                        await self.put(body)
                    return
                data = b""
                async for line in response.content:
                    if line.startswith(b"data:"):
                        data += line[5:].strip()
                    elif not line.strip() and data:
                        await self.put(data)
                        data = b""
        except aiohttp.ClientError:
            pass
        finally:
            await self.end()


class Client(abc.ABC):
    """What clients of both eras can do; a tool is named with its member, which is pinned."""

    era = ""

    def __init__(self, gateway: Gateway, capabilities: dict[str, Any], name: str) -> None:
        self.gateway = gateway
        self.capabilities = capabilities
        self.info = {"name": name, "version": "1"}
        self.headers: dict[str, str] = {}
        self._ids = count(1)
        self._streams: list[Stream] = []
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=90),
            read_bufsize=1 << 22,
        )

    async def close(self) -> None:
        for stream in self._streams:
            await stream.leave()
        await self._http.close()

    def start(
        self,
        method: str,
        params: dict[str, Any],
        *,
        request_id: Any = None,
        headers: dict[str, str] | None = None,
        log_level: str | None = None,
    ) -> Stream:
        """Send a request; its answer is read from now on."""
        request_id = next(self._ids) if request_id is None else request_id
        stream = Stream(request_id)
        self._streams.append(stream)
        body = {"jsonrpc": "2.0", "id": request_id, "method": method}
        whole, own = self._own(method, params, log_level)
        sent = {"Accept": ACCEPT, **own, **self.headers, **(headers or {})}
        stream.begin(
            self._http.post(self.gateway.url, json={**body, "params": whole}, headers=sent)
        )
        return stream

    def call(
        self,
        member: str,
        tool: str,
        arguments: dict[str, Any] | None = None,
        *,
        token: Any = None,
        meta: dict[str, Any] | None = None,
        more: dict[str, Any] | None = None,
        **options: Any,
    ) -> Stream:
        meta = {**(meta or {}), **({} if token is None else {"progressToken": token})}
        params = {"name": f"{member}__{tool}", "arguments": arguments or {}, **(more or {})}
        if meta:
            params["_meta"] = meta
        return self.start("tools/call", params, **options)

    async def ask(self, method: str, params: dict[str, Any], **options: Any) -> dict[str, Any]:
        """The whole response to a request."""
        return await self.start(method, params, **options).answer()

    async def text(self, *args: Any, **options: Any) -> Any:
        """The text of a tool's result, which is JSON."""
        answer = await self.call(*args, **options).answer()
        assert "result" in answer, answer
        return json.loads(answer["result"]["content"][0]["text"])

    async def tools(self) -> set[str]:
        answer = await self.ask("tools/list", {})
        return {tool["name"] for tool in answer["result"]["tools"]}

    @abc.abstractmethod
    def _own(
        self, method: str, params: dict[str, Any], log_level: str | None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """The params and headers of a request as this era has them."""

    @abc.abstractmethod
    async def cancel(self, stream: Stream) -> None:
        """Give a request up in the way of the era."""


class LegacyClient(Client):
    """A client session; `heard` is its GET stream, which `listening` opens."""

    era = "legacy"
    heard: Stream

    async def open(self, *, listening: bool = True) -> None:
        said = {"protocolVersion": "2025-11-25", "capabilities": self.capabilities}
        stream = self.start("initialize", {**said, "clientInfo": self.info})
        await stream.answer()
        self.headers = {
            "Mcp-Session-Id": stream.headers["Mcp-Session-Id"],
            "MCP-Protocol-Version": "2025-11-25",
        }
        await self.notify("notifications/initialized")
        self.heard = Stream()
        if listening:
            await self.listen()

    async def listen(self) -> None:
        self.heard = Stream()
        self._streams.append(self.heard)
        headers = {**self.headers, "Accept": "text/event-stream"}
        self.heard.begin(self._http.get(self.gateway.url, headers=headers))
        await self.heard.begun()

    async def post(self, **message: Any) -> int:
        body = {"jsonrpc": "2.0", **message}
        headers = {"Accept": ACCEPT, **self.headers}
        async with self._http.post(self.gateway.url, json=body, headers=headers) as answer:
            return answer.status

    async def notify(self, method: str, **params: Any) -> None:
        assert await self.post(method=method, params=params) == 202

    async def respond(self, request_id: Any, result: dict[str, Any]) -> None:
        assert await self.post(id=request_id, result=result) == 202

    async def cancel(self, stream: Stream) -> None:
        await self.notify("notifications/cancelled", requestId=stream.id)

    async def end(self) -> None:
        async with self._http.delete(self.gateway.url, headers=self.headers) as answer:
            assert answer.status in (200, 204)

    def _own(
        self, method: str, params: dict[str, Any], log_level: str | None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        return params, {}


class ModernClient(Client):
    era = "modern"

    async def open(self, *, listening: bool = False) -> None:
        """There is nothing to open."""

    async def cancel(self, stream: Stream) -> None:
        await stream.leave()

    async def listen(self, *, request_id: Any = None, **wanted: Any) -> Stream:
        """Listen, and wait for the acknowledgement."""
        params = {"notifications": wanted}
        stream = self.start("subscriptions/listen", params, request_id=request_id)
        await stream.until(lambda: bool(stream.messages))
        assert stream.messages[0]["method"] == "notifications/subscriptions/acknowledged", (
            stream.messages
        )
        return stream

    def _own(
        self, method: str, params: dict[str, Any], log_level: str | None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        meta = {
            **params.get("_meta", {}),
            VERSION_KEY: MODERN,
            CLIENT_INFO_KEY: self.info,
            CAPABILITIES_KEY: self.capabilities,
        }
        if log_level is not None:
            meta[f"{META}logLevel"] = log_level
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        name = params.get("uri") if method == "resources/read" else params.get("name")
        if name is not None:
            headers["Mcp-Name"] = name
        return {**params, "_meta": meta}, headers
