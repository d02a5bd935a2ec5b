"""What a confused or hostile member says between its answers. Also imported by `babbling.py`.

Nothing here is a valid answer to a call in flight: over a pipe that would be the answer. All else
is allowed, from valid messages that belong to nobody to bytes that are no message.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

BIG = 10**30
IDS = [0, 1, 2, 7, -1, BIG, "", "1", "é", "x" * 300, "\ud83d", "a\nb"]
BAD_IDS: list[Any] = [None, 1.5, True, [], {}, [[1]]]
VALUES: list[Any] = [None, True, 0, -1.5, BIG, "", "é", "\ud83d", [], [{}], {}, "x" * 5000]
URIS = ["", "file:///a", "file:///a/b", "file:///a/" + "b/" * 500, "é", "\ud83d", "x" * 5000]
METHODS = [
    "notifications/progress",
    "notifications/message",
    "notifications/cancelled",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/elicitation/complete",
    "notifications/subscriptions/acknowledged",
    "notifications/tasks/status",
    "notifications/initialized",
    "notifications/no/such",
    "ping",
    "roots/list",
    "sampling/createMessage",
    "elicitation/create",
    "initialize",
    "tools/call",
    "server/discover",
    "subscriptions/listen",
    "no/such",
    "",
    "é",
]
INSERTS = [b"\0", b'"', b"{", b"}", b"[" * 1500, b"]", b",", b":", b"\xff", b"\\ud800", b"NaN"]
INSERTS += [b"\\", b"1e999", b"null", b"\xc3", b"\xef\xbb\xbf", b"\x1b[31m"]
DEEP = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,'
DEEP += b'"progress":%b%b}}'


def message(rng: random.Random, token: int | None = None, *, whole: bool = False) -> bytes:
    """One message; `token` is a progress token of some call in flight.

    A `whole` one is a JSON-RPC message, whatever it says.
    """
    match rng.choice([0, 0, 7, 9, 9]) if whole else rng.randrange(12):
        case 0 | 1 | 2:
            return encode(_request(rng, whole=whole))
        case 7:
            depth = rng.choice([5, 300, 700, 900])
            return DEEP % (token or 0, b"[" * depth, b"]" * depth)
        case 3:
            return encode(_answer(rng))
        case 4:
            return mutated(rng, encode(_notification(rng, token)))
        case 5:
            return mutated(rng, encode(_request(rng, ids=["q" * 40])))
        case 6:
            depth = rng.choice([980, 3000])
            return DEEP % (token or 0, b"[" * depth, b"]" * depth)
        case _:
            return encode(_notification(rng, token, whole=whole))


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


def _request(
    rng: random.Random, ids: list[Any] | None = None, *, whole: bool = False
) -> dict[str, Any]:
    request_id = rng.choice(ids or (IDS if whole or rng.random() < 0.8 else BAD_IDS))
    method = rng.choice(["elicitation/create", "sampling/createMessage", "roots/list", *METHODS])
    value = {"jsonrpc": "2.0", "id": request_id, "method": method}
    if rng.random() < 0.8:
        value["params"] = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    if rng.random() < 0.7:
        return value
    if whole:
        return {**value, "params": {"message": rng.choice(VALUES), "_meta": rng.choice(VALUES)}}
    return confused(rng, value, ("params", "jsonrpc"))


def _answer(rng: random.Random) -> dict[str, Any]:
    """To nobody."""
    value: dict[str, Any] = {"jsonrpc": "2.0", "id": rng.choice([BIG, "1", "", None, 1.5, [], {}])}
    value[rng.choice(["result", "error"])] = rng.choice([*VALUES, {"code": -32022}])
    return value


def _notification(rng: random.Random, token: int | None, *, whole: bool = False) -> dict[str, Any]:
    method = rng.choice([*METHODS[:8], *METHODS])
    params: dict[str, Any] = {}
    if method == "notifications/progress":
        params = {"progressToken": rng.choice([token, BIG, "1", None]), "progress": rng.random()}
    elif method == "notifications/message":
        params = {"level": rng.choice(["debug", "emergency", "?"]), "data": rng.choice(VALUES)}
    elif method == "notifications/cancelled":
        params = {"requestId": rng.choice([*IDS, *BAD_IDS]), "reason": rng.choice(VALUES)}
    elif method == "notifications/resources/updated":
        params = {"uri": rng.choice(URIS), "title": rng.choice(VALUES)}
    if rng.random() < 0.3:
        meta: Any = rng.choice(VALUES)
        if rng.random() < 0.5:
            meta = {"io.modelcontextprotocol/subscriptionId": rng.choice([*IDS, *BAD_IDS])}
        params["_meta"] = meta
    value = {"jsonrpc": "2.0", "method": method, "params": params}
    if rng.random() < 0.7:
        return value
    if whole:
        return {**value, "params": {**params, rng.choice([*params, "x"]): rng.choice(VALUES)}}
    return confused(rng, value, ("params", "jsonrpc", "method"))


def confused(rng: random.Random, value: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """The same with a value of the wrong type, or without it."""
    key = rng.choice(keys)
    within = value.get(key)
    if isinstance(within, dict) and within and rng.random() < 0.7:
        return {**value, key: confused(rng, within, tuple(within))}
    if rng.random() < 0.2:
        return {name: each for name, each in value.items() if name != key}
    return {**value, key: rng.choice(VALUES)}


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Without line breaks, which would end a message on a pipe."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(3):
            case 0:
                data = data[:at] + rng.choice(INSERTS) + data[at:]
            case 1:
                data = data[:at] + data[at + rng.randint(1, 8) :]
            case _:
                data = data[:at] + bytes([rng.randrange(32, 256)]) + data[at + 1 :]
    return data
