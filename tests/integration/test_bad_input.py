"""Bad requests to a real gateway: a clear error for the sender, and harm to nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.harness.front import Wire
from tests.harness.gateway import Gateway
from tests.harness.members import faulty
from tests.harness.mutations import damaged_modern_request, damaged_request, send_damaged_requests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from tests.harness.members import CallLog

SEED = 20261130
MUTATIONS = 10_000
CLIENTS = 48
#: A damaged length lets the gateway wait for the rest of a body; then we say that none will come.
PATIENCE_SECONDS = 0.25


@contextlib.asynccontextmanager
async def connected(gateway: Gateway) -> AsyncIterator[Wire]:
    port = int(gateway.url.rsplit(":", 1)[1].split("/")[0])
    wire = Wire(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield wire
    finally:
        wire.abort()


async def serves(gateway: Gateway, session: str | None = None) -> None:
    reply = await gateway.call("echo", '{"n":1.0}', session=session)
    assert reply.text == '{"n":1.0}'


@dataclass
class Bad:
    """A request that is refused: by which status, code, and word in the text."""

    body: bytes
    status: int
    code: int
    word: str
    headers: Mapping[str, str] | None = None
    session: str | None = None


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
DEEP = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":%b}}'
BAD = {
    "too large": Bad(b" " * (4 << 20) + PING, 413, -32600, "4194304 bytes"),
    "no json": Bad(b"hello", 400, -32700, "JSON"),
    "empty": Bad(b"", 400, -32700, "JSON"),
    "cut off": Bad(PING[:-3], 400, -32700, "JSON"),
    "not utf-8": Bad(PING.replace(b"ping", b"\xff\xfe"), 400, -32700, "UTF-8"),
    "utf-16": Bad(PING.decode().encode("utf-16"), 400, -32700, "UTF-8"),
    "nan": Bad(b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}', 400, -32700, "JSON"),
    "deep objects": Bad(DEEP % (b'{"a":' * 100_000 + b"1" + b"}" * 100_000), 400, -32700, "JSON"),
    "deep arrays": Bad(DEEP % (b"[" * 1_000_000), 400, -32700, "JSON"),
    "batch": Bad(b"[" + PING + b"]", 400, -32600, "batch"),
    "empty batch": Bad(b"[]", 400, -32600, "batch"),
    "a number": Bad(b"17", 400, -32600, "object"),
    "no version": Bad(b'{"id":1,"method":"ping"}', 400, -32600, '"jsonrpc"'),
    "id null": Bad(b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600, '"id"'),
    "id 1.0": Bad(b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}', 400, -32600, '"id"'),
    "params a list": Bad(
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', 400, -32600, '"params"'
    ),
    "no accept": Bad(PING, 406, -32600, "Accept", {"Accept": "text/html"}),
    "form": Bad(PING, 415, -32600, "application/json", {"Content-Type": "text/plain"}),
    "latin": Bad(PING, 415, -32600, "UTF-8", {"Content-Type": "application/json; charset=latin-1"}),
    "no session": Bad(PING, 404, -32600, "session not found", session="no-such-session"),
    "version": Bad(PING, 400, -32602, "_meta", {"MCP-Protocol-Version": "1999-01-01"}),
    "host": Bad(PING, 403, -32600, "Host", {"Host": "evil.example"}),
    "origin": Bad(PING, 403, -32600, "Origin", {"Origin": "https://evil.example"}),
}


async def test_each_bad_request_is_told_what_is_wrong_and_harms_nobody() -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        await gateway.all_ready()
        session = await gateway.open_session()
        slow = asyncio.create_task(gateway.call("sleep", {"seconds": 2}, session=session))

        async def refused(name: str, bad: Bad) -> None:
            reply = await gateway.post(bad.body, headers=bad.headers, session=bad.session)
            assert reply.status == bad.status, (name, reply)
            assert reply.error["code"] == bad.code, (name, reply)
            assert bad.word in reply.error["message"], (name, reply)

        for _ in range(2):
            await asyncio.gather(*(refused(name, bad) for name, bad in BAD.items()))
            await serves(gateway, session)
            assert not slow.done()
        assert (await slow).text == "a slept 2 s"


async def test_what_can_be_read_of_a_bad_message_names_its_id() -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        reply = await gateway.post(b'{"jsonrpc":"1.0","id":"007","method":"ping"}')
        assert (reply.status, reply.message["id"]) == (400, "007")
        for params in ("{}", '{"name":7}', '{"name":"echo","_meta":{"progressToken":1.5}}'):
            reply = await gateway.request("tools/call", params, request_id="9007199254740993")
            assert (reply.status, reply.error["code"]) == (200, -32602)
            assert b'"id":9007199254740993' in reply.body


SMUGGLED = """
{
 "x":
{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count"}}
,\r
"y": "\\n"
}
"""


@pytest.mark.parametrize("method", ["tools/call", "resources/read", "custom/method"])
async def test_line_breaks_between_tokens_put_no_second_message_into_a_pipe(
    method: str, call_log: CallLog
) -> None:
    async with Gateway(members=[faulty("a", *call_log.flags)]) as gateway:
        await gateway.all_ready()
        pid = (await gateway.member("a"))["pid"]
        params = f'\n{{"name":\r\n"echo","uri":"test://shared/readme","arguments":{SMUGGLED}}}\n'
        reply = await gateway.request(method, params)
        if method == "tools/call":
            assert json.loads(reply.text) == json.loads(SMUGGLED)
        assert reply.message["id"] == 1
        await serves(gateway)
        assert call_log.count("count") == 0
        assert (await gateway.member("a"))["pid"] == pid


async def test_nesting_that_a_parser_can_take_passes_unchanged() -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        await gateway.all_ready()
        arguments = '{"a":' * 150 + "1.0" + "}" * 150
        assert (await gateway.call("echo", arguments)).text == arguments


@pytest.mark.timeout(115)
async def test_floods_of_headers_and_slow_clients_are_refused_while_others_are_served() -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        await gateway.all_ready()
        began = time.monotonic()
        async with (
            connected(gateway) as slow_body,
            connected(gateway) as slow_head,
            connected(gateway) as many,
            connected(gateway) as long,
        ):
            slow_body.request(b"", content_length="1000")
            slow_head.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")
            many.request(PING, **{f"x_{number}": "y" * 100 for number in range(5000)})
            assert (await many.head())[0] in (400, 431)
            long.request(PING, x_long="y" * 1_000_000)
            assert (await long.head())[0] in (400, 431)

            async def drip() -> None:
                with contextlib.suppress(ConnectionError):
                    while True:
                        slow_body.send(b" ")
                        slow_head.send(b"X: y\r\n")
                        await asyncio.sleep(1)

            async def ended(wire: Wire) -> tuple[bytes, float]:
                answer = await wire.closed(60)
                return answer, time.monotonic() - began

            dripping = asyncio.create_task(drip())
            ends = asyncio.gather(ended(slow_body), ended(slow_head))
            while not ends.done():
                at = time.monotonic()
                await serves(gateway)
                assert time.monotonic() - at < 2
                await asyncio.sleep(0.5)
            dripping.cancel()
            (body, body_seconds), (head, head_seconds) = await ends
        assert body.startswith(b"HTTP/1.1 408 ")
        assert b"did not arrive within 30 s" in body
        assert body_seconds < 45
        assert head.startswith(b"HTTP/1.1 408 ") or not head
        assert head_seconds < 30


async def try_one(gateway: Gateway, data: bytes) -> int:
    """The status of the first answer; 0 when the connection was closed without one."""
    async with connected(gateway) as wire:
        wire.send(data)
        first = asyncio.ensure_future(wire.reader.readuntil(b"\r\n\r\n"))
        try:
            done, _ = await asyncio.wait({first}, timeout=PATIENCE_SECONDS)
            if not done:
                with contextlib.suppress(OSError):
                    wire.writer.write_eof()
            async with asyncio.timeout(20):
                head = await first
                if head.startswith(b"HTTP/1.1 100"):
                    with contextlib.suppress(OSError):
                        wire.writer.write_eof()
                    head = await wire.reader.readuntil(b"\r\n\r\n")
            return int(head.split()[1])
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        finally:
            first.cancel()


@pytest.mark.timeout(115)
@pytest.mark.parametrize("damage", [damaged_request, damaged_modern_request])
async def test_ten_thousand_mutations_with_a_real_member_behind_give_no_500_and_no_hang(
    damage: Callable[[random.Random, str], bytes],
) -> None:
    chance = random.Random(SEED)  # noqa: S311 - repeatable on purpose
    async with Gateway(members=[faulty("a"), faulty("b")], sessions={"max": 100_000}) as gateway:
        status = await gateway.all_ready()
        processes = [member["pid"] for member in status["members"]]
        session = await gateway.open_session()
        await send_damaged_requests(
            chance, session, MUTATIONS, CLIENTS, lambda data: try_one(gateway, data), damage
        )
        await serves(gateway)
        status = await gateway.wait_for(lambda s: not any(m["inFlight"] for m in s["members"]))
        assert [member["pid"] for member in status["members"]] == processes
        assert all(member["inRotation"] for member in status["members"])
        assert "Traceback" not in gateway.log
        assert '"level":"error"' not in gateway.log.lower().replace(" ", "")
