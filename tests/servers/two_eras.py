"""A server that speaks both eras over stdio and HTTP and writes down all it is told.

    python -S tests/servers/two_eras.py NAME JOURNAL [--http PORT]

Each line of the journal is an object with `event`, `name`, `pid` and `at` (`time.monotonic()`):
`started`, `got` (a message, with its headers), `gone` (the connection of a request ended before its
answer), `stopped` (a call ended without an answer).

Any request is answered with the JSON text in its `_meta["test/result"]` or `["test/error"]`. The
tools are in `two_eras_tools.py`. SIGUSR1 adds a tool for everybody, SIGUSR2 touches the resource
that is named after the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.servers.two_eras_http import serve_http
from tests.servers.two_eras_tools import TOOLS, Tools

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
LEGACY_CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "logging": {},
    "completions": {},
}


class Session:
    """A session of the era that has them, or a process; messages of no request go to `push`."""

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.capabilities: dict[str, Any] = {}
        self.initialized = False
        self.subscribed: set[str] = set()
        self.tools: list[str] = []
        self.calls: dict[Any, Asked] = {}
        self.pushed: asyncio.Queue[str] = asyncio.Queue()

    def push(self, **message: Any) -> None:
        self.pushed.put_nowait(json.dumps({"jsonrpc": "2.0", **message}))


class Asked:
    """A request that is being answered; `write` sends a message on its stream."""

    def __init__(self, server: Server, session: Session, message: dict[str, Any]) -> None:
        self.server = server
        self.session = session
        self.id = message["id"]
        self.method: str = message["method"]
        self.params: dict[str, Any] = message.get("params") or {}
        self.meta: dict[str, Any] = self.params.get("_meta") or {}
        self.modern = f"{META}protocolVersion" in self.meta
        self.headers: dict[str, str] = {}
        self.task: asyncio.Task[None] | None = None
        self.sent: asyncio.Queue[str | None] = asyncio.Queue()

    @property
    def capabilities(self) -> dict[str, Any]:
        """Those of the client whose request it is."""
        if self.modern:
            found: dict[str, Any] = self.meta.get(f"{META}clientCapabilities", {})
            return found
        return self.session.capabilities

    def write(self, text: str) -> None:
        self.sent.put_nowait(text)

    def send(self, **message: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}))

    def notify(self, method: str, **params: Any) -> None:
        self.send(method=method, params=params)

    def result(self, **members: Any) -> None:
        if self.modern:
            members = {"resultType": "complete", **members}
        self.raw_result(json.dumps(members))

    def raw_result(self, text: str) -> None:
        self.write(f'{{"jsonrpc":"2.0","id":{json.dumps(self.id)},"result":{text}}}')

    def raw_error(self, text: str) -> None:
        self.write(f'{{"jsonrpc":"2.0","id":{json.dumps(self.id)},"error":{text}}}')

    def error(self, code: int, **data: Any) -> None:
        self.raw_error(json.dumps({"code": code, "message": "no", **data}))


class Server:
    def __init__(self, name: str, journal: str) -> None:
        self.name = name
        self.sessions: dict[str, Session] = {}
        self.listens: list[tuple[Asked, dict[str, Any]]] = []
        self.tools: list[str] = []
        self.questions: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self.calls = Tools(self)
        self.uris = [f"res://{name}/{each}" for each in ("a", "b")]
        self._journal = journal

    def note(self, event: str, **more: Any) -> None:
        entry = {"event": event, "name": self.name, "pid": os.getpid(), "at": time.monotonic()}
        with open(self._journal, "a", encoding="utf-8") as file:
            file.write(json.dumps({**entry, **more}) + "\n")

    # -- what is told

    def take(
        self, session: Session, message: dict[str, Any], headers: dict[str, str] | None = None
    ) -> Asked | None:
        """Begin to answer a request; None for everything else."""
        self.note("got", session=session.id, message=message, headers=headers or {})
        method = message.get("method")
        if method is None:
            question = self.questions.pop(str(message["id"]), None)
            if question is not None and not question.done():
                question.set_result(message)
            return None
        if "id" not in message:
            if method == "notifications/cancelled":
                self.cancel(session, message["params"]["requestId"])
            return None
        asked = Asked(self, session, message)
        asked.headers = headers or {}
        session.calls[asked.id] = asked
        asked.task = asyncio.create_task(self._answer(asked))
        return asked

    def cancel(self, session: Session, request_id: Any) -> None:
        asked = session.calls.get(request_id)
        if asked is not None and asked.task is not None:
            asked.task.cancel()

    async def _answer(self, asked: Asked) -> None:
        try:
            await self._serve(asked)
        except asyncio.CancelledError:
            self.note("stopped", id=asked.id, params=asked.params)
        finally:
            asked.session.calls.pop(asked.id, None)
            self.listens = [(each, wanted) for each, wanted in self.listens if each is not asked]
            asked.sent.put_nowait(None)

    async def _serve(self, asked: Asked) -> None:
        method, params = asked.method, asked.params
        if "test/result" in asked.meta:
            asked.raw_result(asked.meta["test/result"])
        elif "test/error" in asked.meta:
            asked.raw_error(asked.meta["test/error"])
        elif method == "tools/call":
            await self.calls.call(asked, params["name"], params.get("arguments") or {})
        elif method == "subscriptions/listen" and asked.modern:
            await self._listen(asked)
        elif method == "server/discover" and asked.modern:
            asked.result(
                supportedVersions=[MODERN],
                capabilities=LEGACY_CAPABILITIES,
                ttlMs=0,
                cacheScope="private",
                _meta={f"{META}serverInfo": {"name": self.name, "version": "1"}},
            )
        elif method == "initialize":
            asked.session.initialized = True
            asked.session.capabilities = params.get("capabilities", {})
            asked.result(
                protocolVersion="2025-11-25",
                capabilities=LEGACY_CAPABILITIES,
                serverInfo={"name": self.name, "version": "1"},
            )
        elif method == "logging/setLevel":
            asked.result()
        elif method == "resources/subscribe" and params["uri"] not in self.uris:
            asked.error(-32002)
        elif method == "resources/subscribe":
            asked.session.subscribed.add(params["uri"])
            asked.result()
        elif method == "resources/unsubscribe":
            asked.session.subscribed.discard(params["uri"])
            asked.result()
        elif method == "ping":
            asked.result()
        else:
            self._offer(asked)

    def _offer(self, asked: Asked) -> None:
        method, params, name = asked.method, asked.params, self.name
        kept = {"ttlMs": 5000, "cacheScope": "public"} if asked.modern else {}
        uri = self.uris[0]
        if method == "tools/list":
            names = [*TOOLS, *self.tools, *([] if asked.modern else asked.session.tools)]
            if "elicitation" in asked.capabilities:
                names.append(f"askers_{name}")
            tools = [{"name": each, "inputSchema": {"type": "object"}} for each in names]
            table = {"type": "array", "items": {}}
            tools += [{"name": "table", "inputSchema": {"type": "object"}, "outputSchema": table}]
            asked.result(tools=tools, **kept)
        elif method == "prompts/list":
            asked.result(prompts=[{"name": f"prompt_{name}"}], **kept)
        elif method == "prompts/get":
            asked.result(messages=[])
        elif method == "resources/list":
            resources = [{"uri": each, "name": each[-1]} for each in self.uris]
            asked.result(resources=resources, **kept)
        elif method == "resources/templates/list":
            asked.result(resourceTemplates=[], **kept)
        elif method == "resources/read" and params["uri"] == uri:
            asked.result(contents=[{"uri": uri, "text": "a"}], **kept)
        elif method == "resources/read":
            asked.error(-32602 if asked.modern else -32002, data={"uri": params["uri"]})
        elif method == "completion/complete":
            asked.result(completion={"values": [name]})
        else:
            asked.error(-32601)

    async def _listen(self, asked: Asked) -> None:
        wanted = {**asked.params.get("notifications", {})}
        if "resourceSubscriptions" in wanted:
            uris = [uri for uri in wanted["resourceSubscriptions"] if uri in self.uris]
            wanted["resourceSubscriptions"] = uris
        self.listens.append((asked, wanted))
        self.tell(asked, "notifications/subscriptions/acknowledged", notifications=wanted)
        await asyncio.Event().wait()

    # -- what is said

    def tell(self, listen: Asked, method: str, **params: Any) -> None:
        listen.notify(method, **params, _meta={f"{META}subscriptionId": listen.id})

    def changed(self, kind: str, session: Session | None = None) -> None:
        """A list is different, for one session or everybody."""
        method = f"notifications/{kind}/list_changed"
        for each in [session] if session is not None else self.sessions.values():
            if each.initialized:
                each.push(method=method)
        if session is None:
            for listen, wanted in self.listens:
                if wanted.get(f"{kind}ListChanged"):
                    self.tell(listen, method)

    def touch(self, uri: str) -> None:
        method = "notifications/resources/updated"
        for session in self.sessions.values():
            if uri in session.subscribed:
                session.push(method=method, params={"uri": uri})
        for listen, wanted in self.listens:
            if uri in wanted.get("resourceSubscriptions", ()):
                self.tell(listen, method, uri=uri)

    def add_tool(self) -> None:
        self.tools.append(f"{self.name}_{len(self.tools)}")
        self.changed("tools")


async def serve_stdio(server: Server) -> None:
    loop = asyncio.get_running_loop()
    session = server.sessions["process"] = Session("process")
    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    def write(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    async def write_pushed() -> None:
        while True:
            write(await session.pushed.get())

    pushing = loop.create_task(write_pushed())
    while line := await reader.readline():
        message = json.loads(line)
        modern = f"{META}protocolVersion" in (message.get("params") or {}).get("_meta", {})
        if message.get("method") == "initialize" and modern:
            continue
        asked = server.take(session, message)
        if asked is not None:
            asked.write = write  # type: ignore[method-assign]
    pushing.cancel()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("journal")
    parser.add_argument("--http", type=int)
    given = parser.parse_args()
    server = Server(given.name, given.journal)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, server.add_tool)
    loop.add_signal_handler(signal.SIGUSR2, server.touch, f"res://{given.name}/a")
    server.note("started", http=given.http is not None)
    if given.http is None:
        await serve_stdio(server)
    else:
        await serve_http(server, given.http, Session)


if __name__ == "__main__":
    asyncio.run(main())
