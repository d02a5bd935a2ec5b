"""What the faulty server answers, whatever the transport."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING

from tests.servers import faulty_tools
from tests.servers.faulty_json import dump, members, splice
from tests.servers.faulty_tools import Call, RpcError, Session, Stream

if TYPE_CHECKING:
    from tests.servers.faulty_knobs import Knobs

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
CAPABILITIES = (
    '{"completions":{},"logging":{},"prompts":{"listChanged":true},'
    '"resources":{"listChanged":true},"tools":{"listChanged":true},"experimental":{"x/y":{"n":1.0}}}'
)


class CallFailed(Exception):
    """This call is to fail on the transport."""


class Server:
    """One server: its tools, its counters and the lock that `busy` and single threads hold."""

    def __init__(self, knobs: Knobs) -> None:
        self.knobs = knobs
        self.turn = threading.RLock()
        self.grandchild: int | None = None
        self.extra_tools: dict[str, str] = {}
        self._tools = self._load_tools()
        self._calls = 0
        self._count = 0
        self._lock = threading.Lock()

    def _load_tools(self) -> dict[str, str]:
        if self.knobs.tools_file is None:
            return faulty_tools.definitions(self.knobs.name, self.knobs.schema_variant)
        with open(self.knobs.tools_file, encoding="utf-8") as file:
            return {tool["name"]: dump(tool) for tool in json.load(file)}

    def next_count(self) -> int:
        with self._lock:
            self._count += 1
            return self._count

    def record(self, event: str, tool: str, raw_id: str, arguments: str) -> None:
        """Append `{"event", "name", "tool", "id", "args", "at"}`; `at` is the monotonic clock."""
        if self.knobs.call_counter is None:
            return
        line = splice(
            event=dump(event),
            name=dump(self.knobs.name),
            tool=dump(tool),
            id=raw_id,
            args=arguments,
            at=f"{time.monotonic():.6f}",
        )
        fd = os.open(self.knobs.call_counter, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, line.encode() + b"\n")
        finally:
            os.close(fd)

    def announce(self, text: str, session: Session) -> None:
        """Make a request known, so that it can be cancelled from now on."""
        message = members(text)
        if "method" in message and "id" in message:
            session.running.setdefault(message["id"], threading.Event())

    def handle(self, text: str, session: Session, stream: Stream) -> None:
        """Handle one message and send its answer, if it has one. Raises `CallFailed`."""
        message = members(text)
        raw_id = message.get("id")
        if "method" not in message:
            self._answered(raw_id or "", text, session)
            return
        method = json.loads(message["method"])
        params = members(message.get("params", "{}"))
        if raw_id is None:
            if method == "notifications/cancelled":
                self.record("told", "cancelled", params.get("requestId", "null"), "{}")
                running = session.running.get(params.get("requestId", ""))
                if running is not None:
                    running.set()
            return
        if self.knobs.silent and method not in ("initialize", "server/discover"):
            return
        after: list[str] = []
        try:
            if method == "tools/call":
                call = Call(self, session, stream, raw_id, params)
                after = call.after_answer
                result = self._call(call)
            else:
                result = self._answer(method, params, session)
        except RpcError as fault:
            data = {} if fault.data is None else {"data": fault.data}
            error = splice(code=str(fault.code), message=dump(fault.text), **data)
            stream.send(splice(jsonrpc='"2.0"', id=raw_id, error=error))
            return
        finally:
            session.running.pop(raw_id, None)
        if result is not None:
            stream.send(splice(jsonrpc='"2.0"', id=raw_id, result=result))
        for notification in after:
            stream.send(notification)

    def _answered(self, raw_id: str, text: str, session: Session) -> None:
        asked = session.asked.get(raw_id)
        if asked is not None:
            asked[1].append(text)
            asked[0].set()

    def _call(self, call: Call) -> str | None:
        if call.tool not in self._tools and call.tool not in self.extra_tools:
            raise RpcError(-32602, f"Unknown tool: {call.tool}")
        self.record("call", call.tool, call.raw_id, call.arguments)
        with self._lock:
            self._calls += 1
            turn_to_fail = self.knobs.fail_every and self._calls % self.knobs.fail_every == 0
        if self.knobs.fail_calls or turn_to_fail:
            raise CallFailed
        function = faulty_tools.FUNCTIONS.get(call.tool, faulty_tools.named)
        result = function(call)
        if self.knobs.call_status:
            raise CallFailed
        return result

    def _answer(self, method: str, params: dict[str, str], session: Session) -> str:
        if method == "initialize":
            self.record("initialize", "", "0", "{}")
            return self._initialize(params)
        if method == "ping" and not self.knobs.no_ping:
            return "{}"
        if method == "tools/list":
            return self._page("tools", {**self._tools, **self.extra_tools}, params)
        if method == "prompts/list":
            return self._page("prompts", faulty_tools.PROMPTS, params)
        if method == "resources/list":
            return self._page("resources", faulty_tools.resources(self.knobs.name), params)
        if method == "resources/templates/list":
            return self._page("resourceTemplates", faulty_tools.TEMPLATES, params)
        if method == "prompts/get":
            return self._prompt(params)
        if method == "resources/read":
            return self._read(params)
        if method == "completion/complete":
            begin = str(json.loads(members(params["argument"])["value"]))
            values = [name for name in ("alice", "albert", "bob") if name.startswith(begin)]
            return splice(completion=splice(values=dump(values), hasMore="false", total="1.0"))
        if method == "logging/setLevel":
            session.level = str(json.loads(params["level"]))
            return "{}"
        raise RpcError(-32601, f"Method not found: {method}")

    def _initialize(self, params: dict[str, str]) -> str:
        offered = json.loads(params.get("protocolVersion", '""'))
        version = offered if offered in VERSIONS else VERSIONS[0]
        return splice(
            protocolVersion=dump(self.knobs.protocol_version or version),
            capabilities=CAPABILITIES,
            serverInfo=splice(name=dump(self.knobs.name), version='"1.0"'),
            instructions=dump(f"This is {self.knobs.name}."),
        )

    def _page(self, key: str, entries: dict[str, str], params: dict[str, str]) -> str:
        texts = list(entries.values())
        if self.knobs.bad_entries:
            texts += ["null", "7", '{"name":5}', "{}", *texts[:1]]
        size = self.knobs.page_size or max(len(texts), 1)
        cursor = json.loads(params.get("cursor", '"0"'))
        if not str(cursor).isdigit():
            raise RpcError(-32602, f"Invalid cursor: {cursor}")
        begin = int(cursor)
        following = begin + size
        page = {key: "[" + ",".join(texts[begin:following]) + "]"}
        if self.knobs.repeat_cursor:
            page["nextCursor"] = '"0"'
        elif following < len(texts):
            page["nextCursor"] = f'"{following}"'
        return splice(**page)

    def _prompt(self, params: dict[str, str]) -> str:
        name = json.loads(params.get("name", '""'))
        if name not in faulty_tools.PROMPTS:
            raise RpcError(-32602, f"Unknown prompt: {name}")
        who = json.loads(members(params.get("arguments", "{}")).get("who", '"you"'))
        text = dump(f"Hello {who}, this is {self.knobs.name}")
        content = splice(type='"text"', text=text)
        return splice(messages="[" + splice(role='"user"', content=content) + "]", unknown="1.0")

    def _read(self, params: dict[str, str]) -> str:
        uri = json.loads(params.get("uri", '""'))
        known = uri in faulty_tools.resources(self.knobs.name)
        if not known and not uri.startswith("test://items/"):
            raise RpcError(-32002, "Resource not found", splice(uri=dump(uri)))
        text = dump(f"{uri} on {self.knobs.name}")
        contents = splice(uri=dump(uri), mimeType='"text/plain"', text=text, unknown="1e2")
        return splice(contents=f"[{contents}]")
