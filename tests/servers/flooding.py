"""A legacy MCP server over stdin and stdout whose tool `flood` says far too much.

    python -S -m tests.servers.flooding questions|news "in a call"|"outside of calls"

A hundred thousand messages come before the tool's answer, or after it. The tool `wait` answers once
all of them were said.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from tests.servers.babbling import answer_of

NUMBER = 100_000
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("flood", "wait")]
_saying = threading.Lock()


def say(messages: list[dict[str, Any]]) -> None:
    data = "".join(json.dumps(message) + "\n" for message in messages)
    with _saying:
        sys.stdout.write(data)
        sys.stdout.flush()


def flood(what: str, answer: dict[str, Any] | None) -> None:
    for start in range(0, NUMBER, 100):
        say([_message(what, number) for number in range(start, start + 100)])
    if answer is not None:
        say([answer])


def answer_after(floods: list[threading.Thread], answer: dict[str, Any]) -> None:
    for each in floods:
        each.join()
    say([answer])


def _message(what: str, number: int) -> dict[str, Any]:
    if what == "questions":
        schema = {"type": "object", "properties": {}}
        params = {"message": "?" * 100, "requestedSchema": schema}
        message = {"jsonrpc": "2.0", "id": number, "method": "elicitation/create"}
        return {**message, "params": params}
    news: list[tuple[str, dict[str, Any]]] = [
        ("resources/updated", {"uri": f"file:///a/{number}"}),
        ("tools/list_changed", {}),
        ("message", {"level": "error", "data": "x" * 100}),
        ("cancelled", {"requestId": number}),
    ]
    method, said = news[number % len(news)]
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": said}


def main(what: str, when: str) -> None:
    floods: list[threading.Thread] = []
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params", {})
        if "id" not in message or method is None:
            continue
        result = answer_of("legacy", method, params)
        if method == "tools/list":
            result = {"tools": TOOLS}
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        answer |= (
            {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
        )
        tool = params.get("name") if method == "tools/call" else None
        if tool == "wait":
            # Standard input is read on: a full pipe would hold up who floods.
            waiting = threading.Thread(target=answer_after, args=([*floods], answer), daemon=True)
            waiting.start()
            continue
        last = answer if tool == "flood" and when == "in a call" else None
        if last is None:
            say([answer])
        if tool == "flood":
            floods.append(threading.Thread(target=flood, args=(what, last), daemon=True))
            floods[-1].start()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
