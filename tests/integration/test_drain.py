"""SIGTERM: what runs and what still arrives is served, then nothing of the gateway is left."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING, Any

from tests.harness.gateway import Gateway
from tests.harness.members import faulty
from tests.harness.processes import alive

if TYPE_CHECKING:
    from tests.harness.members import CallLog

STUBBORN = ("--ignore-sigterm", "--ignore-eof", "--grandchild")


async def drained(gateway: Gateway) -> None:
    """Wait until the gateway says that it drains."""
    await gateway.wait_for(lambda status: bool(status["draining"]))


async def test_calls_in_flight_and_late_ones_finish_and_no_process_is_left(
    call_log: CallLog,
) -> None:
    members = [faulty(name, *STUBBORN, *call_log.flags) for name in ("a", "b")]
    async with Gateway(members=members) as gateway:
        await gateway.all_ready()
        session = await gateway.open_session()
        messages: list[dict[str, Any]] = []
        closing: list[bool] = []
        stop = asyncio.Event()
        late = 0

        async def caller() -> None:
            nonlocal late
            while not stop.is_set():
                reply = await gateway.call("sleep_unsafe", {"seconds": 0.02}, session=session)
                messages.append(reply.message)
                if terminated.is_set():
                    late += 1
                    closing.append(reply.headers.get("Connection", "").lower() == "close")

        terminated = asyncio.Event()
        callers = [asyncio.create_task(caller()) for _ in range(8)]
        long = [asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 3})) for _ in range(4)]
        await call_log.until(60, tool="sleep_unsafe")
        pids = [process.pid for process in gateway.descendants()]
        assert len(pids) >= 4  # two members, each with a child
        gateway.running.send(signal.SIGTERM)
        await drained(gateway)
        terminated.set()
        late = 0
        closing.clear()
        async with gateway.http.get(f"{gateway.admin_url}/readyz") as answer:
            assert answer.status == 503
        async with gateway.http.get(f"{gateway.admin_url}/livez") as answer:
            assert answer.status == 200
        # Another replica cannot adopt a session yet: this one still opens them.
        late_session = await gateway.open_session()
        assert (await gateway.call("echo", {"n": 1}, session=late_session)).result
        await asyncio.sleep(0.5)  # load goes on while it drains
        stop.set()
        await asyncio.gather(*callers)
        messages += [reply.message for reply in await asyncio.gather(*long)]
        assert await gateway.running.exited(15) == 0
        assert [message for message in messages if "error" in message] == []
        assert late > 10
        assert sum(closing) >= len(closing) - 8  # what was under way when the state was read
        assert alive(pids) == []


async def test_a_call_on_a_connection_that_was_kept_alive_is_served(call_log: CallLog) -> None:
    async with Gateway(members=[faulty("a", *call_log.flags)]) as gateway:
        await gateway.all_ready()
        host, port = gateway.url.removeprefix("http://").removesuffix("/mcp").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = (
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
            b'"params":{"name":"echo","arguments":{"n":7}}}'
        )
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json\r\nContent-Length: {len(body)}\r\n"
        ).encode()

        async def answer() -> bytes:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            )
            return head + await reader.readexactly(length)

        writer.write(head + b"\r\n" + body)
        first = await answer()
        assert b"connection: close" not in first.lower()
        writer.write(head)  # the client is in the middle of its next request
        await writer.drain()
        call = asyncio.create_task(gateway.call("sleep", {"seconds": 1}))
        await call_log.until(1, tool="sleep")
        gateway.running.send(signal.SIGTERM)
        await drained(gateway)
        writer.write(b"\r\n" + body)
        second = await answer()
        assert second.startswith(b"HTTP/1.1 200")
        assert b'"n":7' in second
        assert b"connection: close" in second.lower()
        assert await reader.read() == b""
        writer.close()
        assert (await call).result
        assert await gateway.running.exited(10) == 0


async def test_an_idle_gateway_ends_soon_after_sigterm() -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        await gateway.all_ready()
        session = await gateway.open_session()
        async with gateway.stream(session) as stream:
            began = time.monotonic()
            gateway.running.send(signal.SIGTERM)
            # A stream ends as a chunked body ends: no client takes it for a broken connection.
            async with asyncio.timeout(5):
                assert b"error" not in await stream.content.read()
        assert await gateway.running.exited(15) == 0
        # Nothing arrived for 2 s; then the member ended on EOF.
        assert 1.9 < time.monotonic() - began < 6


async def test_calls_that_outlast_the_drain_are_told_what_became_of_them(
    call_log: CallLog,
) -> None:
    members = [
        faulty("a", *call_log.flags, maxConcurrentRequests=1),
        faulty("cold", "--start-delay", "60", provides={"tools": ["later"]}),
    ]
    spec: dict[str, Any] = {
        "drain": {"timeoutSeconds": 4},
        "limits": {"queueMilliseconds": 30000},
    }
    async with Gateway(members=members, **spec) as gateway:
        await gateway.wait_for(lambda s: s["members"][0]["tools"] is not None)
        running = asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 30}))
        await call_log.until(1, tool="sleep_unsafe")
        queued = asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 30}, request_id="2"))
        unknown = asyncio.create_task(gateway.call("not_known_yet", request_id="3"))
        await gateway.wait_for(lambda s: sum(m["queued"] for m in s["members"]) == 1)
        began = time.monotonic()
        gateway.running.send(signal.SIGTERM)
        await asyncio.sleep(2.3)
        refused = await gateway.call("echo", {"n": 1})
        assert refused.status == 503
        assert float(refused.headers["Retry-After"]) >= 1
        error = (await running).error
        assert 3.5 < time.monotonic() - began < 6
        assert error["code"] == -31003
        assert error["data"]["reason"] == "draining"
        assert error["data"]["member"] == "a"
        assert error["data"]["mayHaveRun"] is True
        assert error["data"]["retryable"] is False
        for call in (queued, unknown):
            error = (await call).error
            assert error["code"] == -31001
            assert error["data"]["reason"] == "draining"
            assert error["data"]["mayHaveRun"] is False
            assert error["data"]["retryable"] is True
        assert await gateway.running.exited(10) == 0
        assert call_log.count("sleep_unsafe") == 1
