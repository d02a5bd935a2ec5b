"""The tools, prompts and resources of the faulty server, as the JSON text that it sends."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from tests.servers.faulty_json import dump, members, splice

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.faulty_server import Server


class Stream(Protocol):
    """Where messages that belong to one request go."""

    headers: dict[str, str]

    def send(self, text: str) -> None: ...


class Session:
    """What the server knows of one client."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self.notify = notify
        self.level: str | None = None
        self.requests = 0
        self.running: dict[str, threading.Event] = {}  # by raw id; set when cancelled
        self.asked: dict[str, tuple[threading.Event, list[str]]] = {}


class RpcError(Exception):
    def __init__(self, code: int, text: str, data: str | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.data = data


class Call:
    """One tool call; `arguments` is the text that was received."""

    def __init__(
        self, server: Server, session: Session, stream: Stream, raw_id: str, params: dict[str, str]
    ) -> None:
        self.server = server
        self.session = session
        self.stream = stream
        self.raw_id = raw_id
        self.tool = str(json.loads(params.get("name", '""')))
        self.arguments = params.get("arguments", "{}")
        self.token = members(params.get("_meta", "{}")).get("progressToken")
        self.cancelled = session.running.setdefault(raw_id, threading.Event())
        self.after_answer: list[str] = []

    def argument(self, name: str, default: Any) -> Any:
        try:
            raw = members(self.arguments).get(name)
        except ValueError as fault:
            raise RpcError(-32602, "arguments must be an object") from fault
        return default if raw is None else json.loads(raw)


def text_result(text: str, *, structured: str | None = None, is_error: bool = False) -> str:
    parts = {"content": "[" + splice(type='"text"', text=dump(text)) + "]"}
    if structured is not None:
        parts["structuredContent"] = structured
    if is_error:
        parts["isError"] = "true"
    return splice(**parts)


def notification(method: str, params: str) -> str:
    return splice(jsonrpc='"2.0"', method=dump(f"notifications/{method}"), params=params)


def echo(call: Call) -> str:
    return text_result(call.arguments, structured=call.arguments)


def whoami(call: Call) -> str:
    facts = {
        "name": call.server.knobs.name,
        "pid": os.getpid(),
        "grandchild": call.server.grandchild,
        "level": call.session.level,
    }
    return text_result(call.server.knobs.name, structured=dump(facts))


def sleep(call: Call) -> str | None:
    seconds = float(call.argument("seconds", 1))
    if call.cancelled.wait(seconds):
        call.server.record("cancelled", call.tool, call.raw_id, call.arguments)
        return None
    return text_result(f"{call.server.knobs.name} slept {seconds:g} s")


def busy(call: Call) -> str:
    with call.server.turn:
        time.sleep(float(call.argument("seconds", 1)))
    return text_result(call.server.knobs.name)


def crash(call: Call) -> str:
    time.sleep(float(call.argument("after", 0)))
    os._exit(int(call.argument("code", 3)))


def fail(call: Call) -> str:
    return text_result(str(call.argument("text", "it failed")), is_error=True)


def rpc_error(call: Call) -> str:
    raw = members(call.arguments)
    raise RpcError(int(raw.get("code", "-32000")), "as you wish", raw.get("data"))


def count(call: Call) -> str:
    return text_result(str(call.server.next_count()))


def progress(call: Call) -> str:
    steps = int(call.argument("steps", 3))
    delay = float(call.argument("delay", 0))

    def report(token: str, step: int) -> str:
        params = splice(progressToken=token, progress=str(step), total=f"{steps}.0", unknown="1e2")
        return notification("progress", params)

    for step in range(1, steps + 1):
        if call.cancelled.wait(delay):
            break
        if call.token is not None:
            call.stream.send(report(call.token, step))
    if call.argument("unknown", default=False):
        call.stream.send(report('"no-such-token"', 99))
    if call.argument("late", default=False) and call.token is not None:
        call.after_answer.append(report(call.token, 100))
    return text_result(f"{steps} steps")


def log(call: Call) -> str:
    for number in range(int(call.argument("count", 1))):
        params = {
            "level": call.argument("level", "info"),
            "logger": call.server.knobs.name,
            "data": {"text": call.argument("text", "hello"), "number": number},
        }
        call.stream.send(notification("message", dump(params)))
    return text_result("logged")


def big(call: Call) -> str:
    return text_result("x" * int(call.argument("bytes", 1024)))


def env(call: Call) -> str:
    variables = dump(dict(os.environ))
    return text_result(variables, structured=variables)


def headers(call: Call) -> str:
    seen = dump(call.stream.headers)
    return text_result(seen, structured=seen)


def structured(call: Call) -> str:
    return (
        '{"x-first": {"kept":true},'
        '"content":[{"type":"text","text":"caf\\u00e9 é","x-unknown":1e2}],'
        '"structuredContent":{"big":9007199254740993,"huge":123456789012345678901234567890,'
        '"one":1.0,"hundred":1e2,"minus_zero":-0.0,"tenth":1.10,"more":[{"x":null}]},'
        '"_meta":{"example.com/trace":"\\/"}  ,"x-last":[ ]}'
    )


def change_tools(call: Call) -> str:
    name = str(call.argument("name", "late"))
    if call.argument("remove", default=False):
        call.server.extra_tools.pop(name, None)
    else:
        call.server.extra_tools[name] = tool_definition(name, read_only=True)
    call.session.notify(notification("tools/list_changed", "{}"))
    return text_result("changed")


def ask(call: Call) -> str:
    """Send the client a request and return its answer as it came."""
    key = dump(f"{call.server.knobs.name}-{time.monotonic_ns()}")
    answered = threading.Event()
    answers: list[str] = []
    call.session.asked[key] = (answered, answers)
    method = dump(call.argument("method", "ping"))
    call.stream.send(splice(jsonrpc='"2.0"', id=key, method=method, params="{}"))
    answered.wait(float(call.argument("seconds", 5)))
    del call.session.asked[key]
    return text_result(answers[0] if answers else "no answer")


def named(call: Call) -> str:
    return text_result(f"{call.tool} on {call.server.knobs.name}")


def tool_definition(name: str, *, read_only: bool, properties: str = "{}") -> str:
    hint = splice(readOnlyHint="true" if read_only else "false")
    return splice(
        name=dump(name),
        description='"for tests"',
        inputSchema=splice(type='"object"', properties=properties),
        annotations=hint,
    )


#: Name, function, whether it only reads.
TOOLS: list[tuple[str, Callable[[Call], str | None], bool]] = [
    ("ask", ask, True),
    ("big", big, True),
    ("busy", busy, False),
    ("change_tools", change_tools, False),
    ("count", count, False),
    ("crash", crash, True),
    ("crash_unsafe", crash, False),
    ("echo", echo, True),
    ("env", env, True),
    ("fail", fail, False),
    ("headers", headers, True),
    ("log", log, False),
    ("progress", progress, False),
    ("rpc_error", rpc_error, False),
    ("sleep", sleep, True),
    ("sleep_unsafe", sleep, False),
    ("structured", structured, True),
    ("whoami", whoami, True),
]
FUNCTIONS = {name: function for name, function, _ in TOOLS}


def definitions(name: str, variant: str) -> dict[str, str]:
    """Raw definitions by tool name, in the order in which they are listed."""
    tools = {tool: tool_definition(tool, read_only=safe) for tool, _, safe in TOOLS}
    tools["structured"] = tools["structured"][:-1] + ',"x-unknown":{"big":9007199254740993}}'
    properties = splice(**{f"key_{variant}": splice(type='"string"')})
    tools["variant"] = tool_definition("variant", read_only=True, properties=properties)
    tools[f"only_{name}"] = tool_definition(f"only_{name}", read_only=True)
    return tools


PROMPTS = {
    "greet": '{"name":"greet","arguments":[{"name":"who","required":true}],"x-unknown":1.0}',
}


def resources(name: str) -> dict[str, str]:
    return {
        uri: splice(uri=dump(uri), name=dump(uri), mimeType='"text/plain"')
        for uri in ("test://shared/readme", f"test://{name}/own")
    }


TEMPLATES = {"test://items/{id}": '{"uriTemplate":"test://items/{id}","name":"items"}'}
