"""A stdio server with habits that make its era hard to tell. Standard library only.

    python tests/servers/eras.py HABIT [--start-delay SECONDS] [--log FILE]

`modern`, `legacy`      one era, the other one is refused as the protocol wants it
`silent`                legacy, and does not answer a method that it does not know
`exits`                 legacy, and ends at a first message other than `initialize`
`lenient`               legacy, and answers what it does not know with an empty result
`locked`                modern; the first `server/discover` is lost, `initialize` is refused
`broken`                ends at the first message, whatever it is

What was read is appended to the log, a line each. Tools: `meta` gives the `_meta` it was called
with, `slow` sends progress and a log message and never answers, `ask` sends `elicitation/create`
and gives what was answered, `drop` sends it and cancels it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
TOOLS = [{"name": "meta", "inputSchema": {"type": "object"}}]
LIST_CHANGED = "notifications/tools/list_changed"


class Eras:
    def __init__(self, habit: str, log: str | None) -> None:
        self.habit = habit
        self.log = log
        self.modern = habit in ("modern", "locked")
        self.heard = 0
        self.asked: dict[str, Any] = {}
        self.listens: list[Any] = []

    def send(self, **message: Any) -> None:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    def fail(self, request_id: Any, code: int, data: Any = None) -> None:
        fault = {"code": code, "message": "no"} | ({} if data is None else {"data": data})
        self.send(id=request_id, error=fault)

    def hear(self, line: str) -> None:
        if self.log is not None:
            with open(self.log, "a", encoding="utf-8") as file:
                file.write(line)
        message = json.loads(line)
        self.heard += 1
        method = message.get("method")
        if self.habit == "broken":
            sys.exit(3)
        if self.habit == "exits" and self.heard == 1 and method != "initialize":
            sys.exit(2)
        if method is None:
            self.answered(message)
        elif "id" not in message:
            return
        elif self.modern:
            self.modern_request(message["id"], method, message.get("params", {}))
        else:
            self.legacy_request(message["id"], method, message.get("params", {}))

    def modern_request(self, i: Any, method: str, params: dict[str, Any]) -> None:
        supported = {"supported": [MODERN], "requested": "2025-11-25"}
        done = {"resultType": "complete"}
        if method == "initialize":
            self.fail(i, -32022, supported)
        elif params.get("_meta", {}).get(f"{META}protocolVersion") != MODERN:
            self.fail(i, -32602)
        elif method == "server/discover":
            if self.habit == "locked" and self.heard == 1:
                return
            info = {f"{META}serverInfo": {"name": "eras", "version": "1"}}
            result = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "_meta": info}
            self.send(id=i, result={**done, **result, "instructions": "Be modern."})
        elif method == "subscriptions/listen":
            self.listens.append(i)
            self.tagged(i, "notifications/subscriptions/acknowledged", notifications={})
        elif method == "tools/call":
            self.call(i, params)
        elif method == "tools/list":
            cached = {"ttlMs": 0, "cacheScope": "public"}
            self.send(id=i, result={**done, **cached, "tools": TOOLS})
        else:
            self.fail(i, -32601)

    def legacy_request(self, i: Any, method: str, params: dict[str, Any]) -> None:
        if method == "initialize":
            info = {"name": "eras", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            self.send(id=i, result={**result, "serverInfo": info})
        elif method == "tools/call":
            self.call(i, params)
        elif method == "tools/list":
            self.send(id=i, result={"tools": TOOLS})
        elif method == "ping" or self.habit == "lenient":
            self.send(id=i, result={})
        elif self.habit != "silent":
            self.fail(i, -32601)

    def call(self, i: Any, params: dict[str, Any]) -> None:
        tool, meta = params["name"], params.get("_meta", {})
        if tool == "slow":
            token = meta.get("progressToken")
            self.send(method="notifications/message", params={"level": "info", "data": "x"})
            progress = {"progressToken": token, "progress": 1}
            self.send(method="notifications/progress", params=progress)
        elif tool in ("ask", "drop"):
            asked = f"ask-{i}"
            self.asked[asked] = i
            self.send(id=asked, method="elicitation/create", params={"message": "really?"})
            if tool == "drop":
                params = {"requestId": asked, "reason": "too late"}
                self.send(method="notifications/cancelled", params=params)
        elif tool == "change":
            for listen in self.listens:
                self.tagged(listen, LIST_CHANGED)
            self.tagged(4711, LIST_CHANGED)  # of a listen that nobody has
            self.send(id=i, result={"resultType": "complete", "content": []})
        elif tool == "end_listens":
            for listen in self.listens:
                self.send(id=listen, result={"resultType": "complete"})
            self.send(id=i, result={"resultType": "complete", "content": []})
        elif tool == "cancel_listens":
            for listen in self.listens:
                self.send(method="notifications/cancelled", params={"requestId": listen})
            self.send(id=i, result={"resultType": "complete", "content": []})
        else:
            self.send(id=i, result={"resultType": "complete", "content": [], "meta": meta})

    def tagged(self, listen: Any, method: str, **params: Any) -> None:
        meta = {f"{META}subscriptionId": listen}
        self.send(method=method, params={**params, "_meta": meta})

    def answered(self, message: dict[str, Any]) -> None:
        call = self.asked.pop(message["id"], None)
        if call is not None:
            self.send(id=call, result={"content": [], "answer": message.get("result")})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("habit")
    parser.add_argument("--start-delay", type=float, default=0.0)
    parser.add_argument("--log")
    given = parser.parse_args()
    if given.log is not None:
        with open(given.log, "a", encoding="utf-8") as file:
            file.write("started\n")
    time.sleep(given.start_delay)
    server = Eras(given.habit, given.log)
    for line in sys.stdin:
        server.hear(line)


if __name__ == "__main__":
    main()
