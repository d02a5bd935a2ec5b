"""Members that answer nonsense: their own calls fail in time, and nobody else is harmed."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import psutil
from tests.harness.gateway import Gateway
from tests.harness.members import faulty, stdio
from tests.servers.raw_http import Member, Peer, RawServer, Request, response

#: A member that answers badly again and again is to stay, so that the next bad answer is seen.
PATIENT: dict[str, Any] = {
    "health": {"unhealthyThreshold": 10, "intervalSeconds": 300},
    "memberBreaker": {"failureThreshold": 100},
}


async def serves(gateway: Gateway, session: str | None = None) -> None:
    reply = await gateway.call("echo", '{"n":1.0}', session=session)
    assert reply.text == '{"n":1.0}'


SCRIPT = r"""
import json, sys
out = sys.stdout.buffer
def send(data):
    out.write(data + b"\n")
    out.flush()
def result(i, text):
    send(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (i, text))
for line in sys.stdin:
    m = json.loads(line)
    i, method, name = m.get("id"), m["method"], m.get("params", {}).get("name")
    ok = b'{"content":[{"type":"text","text":"bad is fine"}]}'
    if method == "initialize":
        result(i, b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
                  b'"serverInfo":{"name":"bad","version":"1"}}')
    elif method == "tools/list":
        names = ("fine", "not_utf8", "deep", "deeper", "long", "cut", "batch", "no_result", "both",
                 "twice", "chatter", "half")
        tools = [{"name": n, "inputSchema": {"type": "object"}} for n in names]
        result(i, json.dumps({"tools": tools}).encode())
    elif name == "not_utf8":
        result(i, b'{"content":[{"type":"text","text":"\xff\xfe"}]}')
    elif name == "deep":
        result(i, b'{"content":[],"x":' + b"[" * 150 + b"]" * 150 + b"}")
    elif name == "deeper":
        result(i, b'{"content":[],"x":' + b"[" * 200000 + b"]" * 200000 + b"}")
    elif name == "long":
        result(i, b'{"content":[{"type":"text","text":"' + b"x" * (17 << 20) + b'"}]}')
    elif name == "cut":
        send(b'{"jsonrpc":"2.0","id":%d,"result":{"content":' % i)
    elif name == "batch":
        send(b'[{"jsonrpc":"2.0","id":%d,"result":{}}]' % i)
    elif name == "no_result":
        send(b'{"jsonrpc":"2.0","id":%d}' % i)
    elif name == "both":
        send(b'{"jsonrpc":"2.0","id":%d,"result":{},"error":{"code":1,"message":"x"}}' % i)
    elif name == "twice":
        result(i, ok)
        result(i, b'{"content":[]}')
    elif name == "chatter":
        for other in (b"7777", b'"x"', b"null", b"%d.0" % i, b"%d" % (i + 1000), b"-1"):
            send(b'{"jsonrpc":"2.0","id":%b,"result":{"content":[]}}' % other)
        send(b'{"jsonrpc":"2.0","id":"%d","result":{"content":[]}}' % i)
        send(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{}}}')
        send(b'{"jsonrpc":"2.0","method":"notifications/\xff"}')
        result(i, ok)
    elif name == "half":
        out.write(b'{"jsonrpc":"2.0","id":%d,"result":' % i)
        out.flush()
        import time; time.sleep(0.2)
        send(ok + b"}")
    elif i is not None:
        result(i, ok if method == "tools/call" else b"{}")
"""


async def test_members_that_print_nonsense_fail_their_own_calls_only() -> None:
    bad = stdio("bad", [sys.executable, "-S", "-c", SCRIPT], callTimeoutSeconds=3)
    noisy = faulty("noisy", "--stdout-noise", "--stderr-flood")
    async with Gateway(members=[faulty("a"), bad, noisy], **PATIENT) as gateway:
        pids = [member["pid"] for member in (await gateway.all_ready())["members"]]
        other = await gateway.open_session()
        slow = [
            asyncio.create_task(gateway.call(name, {"seconds": 4}, session=other))
            for name in ("a__sleep", "noisy__sleep")
        ]

        async def fails(name: str, code: int, within: float) -> None:
            at = time.monotonic()
            reply = await gateway.call(name)
            assert time.monotonic() - at < within, (name, reply)
            assert (reply.status, reply.error["code"]) == (200, code), (name, reply)
            assert reply.error["data"]["member"] == "bad", (name, reply)

        async def is_fine(name: str) -> None:
            assert (await gateway.call(name)).text == "bad is fine"

        for _ in range(2):
            assert (await gateway.call("deep")).result["x"]
            await asyncio.gather(
                *(is_fine(name) for name in ("twice", "chatter", "half", "fine")),
                # What is whole names its call and fails it at once.
                *(fails(name, -31007, 2) for name in ("not_utf8", "deeper", "no_result", "both")),
                fails("long", -31007, 3),
                # What names nobody is skipped like any other noise.
                *(fails(name, -31002, 5) for name in ("cut", "batch")),
                *(serves(gateway, other) for _ in range(20)),
            )
            at = time.monotonic()
            for number in range(30):
                text = f'{{"n":{number}}}'
                assert (await gateway.call("noisy__echo", text)).text == text
            assert time.monotonic() - at < 5
        assert [(await call).text for call in slow] == ["a slept 4 s", "noisy slept 4 s"]
        assert psutil.Process(gateway.pid).memory_info().rss < 400 << 20
        assert [member["pid"] for member in (await gateway.status())["members"]] == pids


def scripted(**answers: bytes) -> Member:
    """An HTTP member whose tools answer with these bytes; each `%d` in them is the id."""
    member = Member()

    async def listed(request: Request, peer: Peer) -> None:
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in answers]
        message = {"jsonrpc": "2.0", "id": request.id, "result": {"tools": tools}}
        await peer.send(response(json.dumps(message).encode()))

    async def called(request: Request, peer: Peer) -> None:
        answer = answers[request.message["params"]["name"]]
        await peer.send(answer.replace(b"%d", b"%d" % request.id))
        peer.close()

    return member.on("tools/list", listed).on("tools/call", called)


def stream(*events: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    return head + b"".join(b"data: " + each + b"\n\n" for each in events)


def body(data: bytes, content_type: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nConnection: close\r\n\r\n"
    return head % content_type + data


FINE = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"ok"}]}}'
DEEPER = b'{"jsonrpc":"2.0","id":%d,"result":{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}}"
NOT_UTF8 = b'{"jsonrpc":"2.0","id":%d,"result":{"x":"\xff"}}'
#: By tool: what an HTTP member answers, and the code that the caller gets.
NONSENSE = {
    "not_utf8": (body(NOT_UTF8), -31007),
    "deeper": (body(DEEPER), -31007),
    "html": (body(b"<html>", b"text/html"), -31007),
    "other_id": (body(FINE.replace(b"%d", b"77777")), -31007),
    "batch": (body(b"[" + FINE + b"]"), -31007),
    "cut": (response(FINE)[:-5], -31003),
    "no_http": (b"hello\r\n\r\n", -31007),
    "stream_not_utf8": (stream(NOT_UTF8), -31007),
    "stream_deeper": (stream(DEEPER), -31007),
    "stream_no_json": (stream(b"hello"), -31007),
    "stream_ended": (stream(), -31003),
    "large": (body(FINE.replace(b"ok", b"x" * (17 << 20))), -31007),
    "stream_large": (stream(FINE.replace(b"ok", b"x" * (17 << 20))), -31007),
}


async def test_http_members_that_answer_nonsense_fail_their_own_calls_only() -> None:
    answers = {name: answer for name, (answer, _) in NONSENSE.items()}
    async with RawServer(scripted(fine=body(FINE), **answers)) as server:
        members = [faulty("a"), {"name": "bad", "http": {"url": server.url}}]
        async with Gateway(members=members, **PATIENT) as gateway:
            await gateway.all_ready()

            async def fails(name: str, code: int) -> None:
                async with asyncio.timeout(10):
                    reply = await gateway.call(name)
                assert (reply.status, reply.error["code"]) == (200, code), (name, reply)
                assert reply.error["data"]["member"] == "bad", (name, reply)

            await asyncio.gather(
                *(fails(name, code) for name, (_, code) in NONSENSE.items()),
                *(serves(gateway) for _ in range(20)),
            )
            assert (await gateway.call("fine")).text == "ok"
            await serves(gateway)
            assert "Traceback" not in gateway.log
