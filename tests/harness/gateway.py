"""A gateway as a real process: `async with Gateway(members=[…]) as gateway`."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import mcp
from prometheus_client.parser import text_string_to_metric_families
from tests.harness.messages import ACCEPT
from tests.harness.processes import ROOT, Running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    import psutil


@dataclass
class Reply:
    """An HTTP answer of `/mcp`, and the JSON-RPC messages in it as the bytes they were."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def messages(self) -> list[bytes]:
        if self.headers.get("Content-Type", "").startswith("text/event-stream"):
            events = re.split(rb"\r?\n\r?\n", self.body)
            data = [re.findall(rb"^data: ?(.*)$", event, re.MULTILINE) for event in events]
            return [b"\n".join(lines).strip() for lines in data if any(lines)]
        return [self.body] if self.body else []

    @property
    def message(self) -> dict[str, Any]:
        """The last message: the answer."""
        answer: dict[str, Any] = json.loads(self.messages[-1])
        return answer

    @property
    def result(self) -> dict[str, Any]:
        assert "result" in self.message, self.message
        result: dict[str, Any] = self.message["result"]
        return result

    @property
    def error(self) -> dict[str, Any]:
        assert "error" in self.message, self.message
        error: dict[str, Any] = self.message["error"]
        return error

    @property
    def text(self) -> str:
        """The text of a tool's result."""
        return str(self.result["content"][0]["text"])


class Gateway:
    """Runs `mcpgroup run` with a manifest of its own and free ports.

    `members` and the other fields are those of `spec`. On exit the process and all its descendants
    are gone; when the test failed, its log is added to the failure.
    """

    def __init__(
        self,
        *,
        name: str = "test",
        flags: tuple[str, ...] = (),
        wait_ready: bool = True,
        **spec: Any,
    ) -> None:
        self.name = name
        self.spec = spec
        self._flags = flags
        self._wait_ready = wait_ready
        self._directory = Path(tempfile.mkdtemp(prefix="mcpgroup-test-"))
        self.path = self._directory / "group.yaml"
        self.url = ""
        self.admin_url = ""
        self.running: Running
        self.http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self.write(self.spec)
        self.http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=90)
        )
        try:
            await self._start()
        except BaseException as fault:
            await self.__aexit__(type(fault), fault, None)
            raise
        return self

    async def _start(self) -> None:
        self.running = self._process()
        await self.running.start()
        line = await self.running.printed(
            r"group \S+ on (http://\S+?/mcp)\b.*admin on (http://[^\s\"]+)"
        )
        self.url, self.admin_url = line[1], line[2].rstrip("/")
        if self._wait_ready:
            await self.ready()

    async def __aexit__(self, *fault: Any) -> None:
        await self.http.close()
        await self.running.__aexit__(*fault)
        shutil.rmtree(self._directory, ignore_errors=True)

    # -- the process

    def _process(self) -> Running:
        command = [sys.executable, "-m", "mcpgroup_gateway", "run", str(self.path)]
        ports = ["--port", "0", "--admin-port", "0"]
        return Running([*command, *ports, *self._flags], python_env())

    @property
    def log(self) -> str:
        return self.running.log

    @property
    def pid(self) -> int:
        return self.running.pid

    async def ready(self, timeout: float = 30) -> None:
        """Wait for `/readyz` to say yes."""
        async with asyncio.timeout(timeout):
            while True:
                async with self.http.get(f"{self.admin_url}/readyz") as answer:
                    if answer.status == 200:
                        return
                await asyncio.sleep(0.02)

    async def terminate(self, timeout: float = 45) -> int:
        """SIGTERM; the exit code."""
        self.running.send(signal.SIGTERM)
        return await self.running.exited(timeout)

    def descendants(self) -> list[psutil.Process]:
        return self.running.descendants()

    # -- the manifest

    def write(self, spec: dict[str, Any] | None = None, *, text: str | None = None) -> None:
        """Replace the manifest at once; `text` writes something that is none."""
        if text is None:
            metadata = {"name": self.name}
            document = {
                "apiVersion": "mcpgroup.dev/v1alpha1",
                "kind": "McpServerGroup",
                "metadata": metadata,
                "spec": spec,
            }
            text = json.dumps(document, indent=1)  # which is YAML too
        new = self.path.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self.path)

    async def reload(self, timeout: float = 20, **changes: Any) -> dict[str, Any]:
        """Change fields of `spec` and wait until the gateway took the file or refused it."""
        before = (await self.status())["config"]
        self.spec = {**self.spec, **changes}
        self.write(self.spec)
        return await self.wait_for(
            lambda status: (
                status["config"]["hash"] != before["hash"]
                or status["config"]["rejected"] != before["rejected"]
            ),
            timeout,
        )

    # -- the admin port

    async def status(self) -> dict[str, Any]:
        async with self.http.get(f"{self.admin_url}/status") as answer:
            status: dict[str, Any] = await answer.json()
            return status

    async def member(self, name: str) -> dict[str, Any]:
        """A member's entry in `/status`."""
        return member_of(await self.status(), name)

    async def wait_for(
        self, holds: Callable[[dict[str, Any]], bool], timeout: float = 10
    ) -> dict[str, Any]:
        """Poll `/status` until `holds(status)`; the status that did."""
        status: dict[str, Any] = {}
        try:
            async with asyncio.timeout(timeout):
                while True:
                    status = await self.status()
                    if holds(status):
                        return status
                    await asyncio.sleep(0.02)
        except TimeoutError:
            seen = json.dumps({**status, "events": status.get("events", [])[-10:]}, indent=1)
            raise AssertionError(f"not within {timeout} s; last status:\n{seen}") from None

    async def wait_state(
        self, name: str, state: str = "Ready", timeout: float = 20
    ) -> dict[str, Any]:
        """Wait for a member's state; its entry in `/status`."""
        status = await self.wait_for(lambda s: member_of(s, name)["state"] == state, timeout)
        return member_of(status, name)

    async def all_ready(self, timeout: float = 30) -> dict[str, Any]:
        """Wait until every member is Ready and in rotation, and its lists were read."""
        return await self.wait_for(
            lambda s: all(
                m["state"] == "Ready" and m["inRotation"] and m["tools"] is not None
                for m in s["members"]
            ),
            timeout,
        )

    async def metrics(self) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
        """Samples by name and labels."""
        async with self.http.get(f"{self.admin_url}/metrics") as answer:
            text = await answer.text()
        found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
        return found

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels; 0 when there are none."""
        samples = (await self.metrics()).get(name, {})
        wanted = set(labels.items())
        return sum(value for have, value in samples.items() if wanted <= have)

    async def explain(self, **query: str) -> dict[str, Any]:
        """For instance `explain(tool="echo", tenant="a")`."""
        async with self.http.get(f"{self.admin_url}/explain", params=query) as answer:
            explanation: dict[str, Any] = await answer.json()
            return explanation

    async def act(self, path: str) -> int:
        """POST an action, for instance `members/a/drain`, with the printed token; the status."""
        token = re.search(r"admin token:? (\S+)", self.log)
        assert token is not None, "the gateway printed no admin token"
        headers = {"Authorization": f"Bearer {token[1]}"}
        async with self.http.post(f"{self.admin_url}/{path}", headers=headers) as answer:
            return answer.status

    # -- MCP

    def client(self, **options: Any) -> mcp.Client:
        """The official client, for `async with`."""
        return mcp.Client(self.url, **options)

    async def post(
        self,
        body: bytes,
        *,
        session: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """POST exactly these bytes. A header that is the empty string is left out."""
        sent = {"Content-Type": "application/json", "Accept": ACCEPT, **(headers or {})}
        if session is not None:
            sent["Mcp-Session-Id"] = session
        sent = {name: value for name, value in sent.items() if value}
        # aiohttp warns of large bodies that are plain bytes.
        data = io.BytesIO(body) if len(body) > 1 << 20 else body
        async with self.http.post(self.url, data=data, headers=sent) as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    async def request(
        self,
        method: str,
        params: str | dict[str, Any] | None = None,
        *,
        request_id: str = "1",
        session: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One request; `request_id` and a `params` string are JSON text, sent as they are."""
        text = params if isinstance(params, str) else json.dumps(params or {})
        body = f'{{"jsonrpc":"2.0","id":{request_id},"method":"{method}","params":{text}}}'
        return await self.post(body.encode(), session=session, headers=headers)

    async def call(
        self,
        tool: str,
        arguments: str | dict[str, Any] | None = None,
        *,
        request_id: str = "1",
        session: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Call a tool; without a session the call belongs to none."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        params = f'{{"name":{json.dumps(tool)},"arguments":{text}}}'
        return await self.request(
            "tools/call", params, request_id=request_id, session=session, headers=headers
        )

    async def open_session(self, version: str = "2025-11-25") -> str:
        """Initialize a client session without the SDK; its id."""
        reply = await self.request(
            "initialize",
            {
                "protocolVersion": version,
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        )
        assert reply.status == 200, reply.body
        session = reply.headers["Mcp-Session-Id"]
        ready = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        assert (await self.post(ready, session=session)).status == 202
        return session

    async def close_session(self, session: str) -> int:
        headers = {"Mcp-Session-Id": session}
        async with self.http.delete(self.url, headers=headers) as answer:
            return answer.status

    @contextlib.asynccontextmanager
    async def stream(self, session: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """The GET stream of a session, as an `aiohttp.ClientResponse`."""
        headers = {"Accept": "text/event-stream", "Mcp-Session-Id": session}
        async with self.http.get(self.url, headers=headers) as answer:
            yield answer


def python_env() -> dict[str, str]:
    """What a Python process needs to import the gateway from the sources."""
    return {"PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'gateway'}", "PYTHONUNBUFFERED": "1"}


def member_of(status: dict[str, Any], name: str) -> dict[str, Any]:
    for member in status["members"]:
        if member["name"] == name:
            found: dict[str, Any] = member
            return found
    raise AssertionError(f"{name} is not in /status")
