"""An MCP server over stdin and stdout that talks nonsense between its answers.

    python -S -m tests.servers.babbling ERA SEED NUMBER      ERA is legacy or modern

Its tool `echo` gives its argument back, of several calls in any order; some answers come twice.
Around each call it says NUMBER messages of `babble`.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
from typing import Any

from tests.servers import babble

VERSION = {"legacy": "2025-11-25", "modern": "2026-07-28"}
_META = "io.modelcontextprotocol/"
CAPABILITIES = {
    "tools": {"listChanged": True},
    "logging": {},
    "resources": {"subscribe": True, "listChanged": True},
}
TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}}]


def answer_of(era: str, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None when the method is not known in this era."""
    info = {"name": "babbling", "version": "1"}
    result: dict[str, Any]
    if method == "initialize" and era == "legacy":
        version = params["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": info}
    elif method == "server/discover" and era == "modern":
        versions = [VERSION["modern"]]
        result = {"supportedVersions": versions, "capabilities": CAPABILITIES}
        result |= {"_meta": {f"{_META}serverInfo": info}}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "resources/list":
        result = {"resources": [{"uri": "file:///a", "name": "a"}]}
    elif method == "resources/templates/list":
        result = {"resourceTemplates": []}
    elif method == "tools/call":
        text = json.dumps(params.get("arguments"))
        result = {"content": [{"type": "text", "text": text}]}
    elif method in ("ping", "resources/subscribe", "resources/unsubscribe", "logging/setLevel"):
        result = {}
    else:
        return None
    if era == "modern":
        result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return result


def main(era: str, seed: int, number: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    waiting: list[dict[str, Any]] = []
    buffered = b""

    def say(data: bytes) -> None:
        sys.stdout.buffer.write(data + b"\n")

    def answer(message: dict[str, Any]) -> None:
        params = message.get("params", {})
        result = answer_of(era, message["method"], params)
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if result is None:
            body["error"] = {"code": -32601, "message": "no"}
        else:
            body["result"] = result
        say(babble.encode(body))
        if rng.random() < 0.2:  # once more, to nobody
            say(babble.encode({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}))

    while True:
        readable, _, _ = select.select([0], [], [], 0.002 if waiting else None)
        if readable:
            data = os.read(0, 1 << 16)
            if not data:
                return
            *lines, buffered = (buffered + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "id" not in message or "method" not in message:
                    continue
                if message["method"] != "tools/call":
                    answer(message)
                    continue
                rng.seed(f"{seed} {message['params'].get('arguments')}")
                token = message["params"].get("_meta", {}).get("progressToken")
                for _ in range(number):
                    say(babble.message(rng, token))
                waiting.append(message)
        rng.shuffle(waiting)
        keep = rng.randrange(len(waiting) + 1) if readable else 0
        while len(waiting) > keep:
            answer(waiting.pop())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
