"""A member's process ends: who notices, what runs twice, and when it is back."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING

from tests.harness.gateway import Gateway, member_of
from tests.harness.members import faulty, faulty_command
from tests.harness.processes import ROOT

if TYPE_CHECKING:
    from tests.harness.members import CallLog

MEMBERS = ("a", "b", "c")


def group(call_log: CallLog) -> Gateway:
    return Gateway(members=[faulty(name, *call_log.flags) for name in MEMBERS])


async def victim_of(gateway: Gateway, call_log: CallLog, tool: str) -> tuple[str, int]:
    """The member on which a running call of `tool` is, and its pid."""
    entry = (await call_log.until(1, tool=tool))[0]
    return entry["name"], (await gateway.member(entry["name"]))["pid"]


async def test_a_read_only_call_survives_the_kill_of_its_member(call_log: CallLog) -> None:
    async with group(call_log) as gateway:
        await gateway.all_ready()
        call = asyncio.create_task(gateway.call("sleep", {"seconds": 1}))
        name, pid = await victim_of(gateway, call_log, "sleep")
        os.kill(pid, signal.SIGKILL)
        reply = await call
        assert "error" not in reply.message, reply.message
        ran_on = [entry["name"] for entry in call_log.entries(tool="sleep")]
        assert ran_on[0] == name
        assert len(ran_on) == 2
        assert ran_on[1] != name


async def test_an_unsafe_call_ends_with_one_error_and_ran_at_most_once(call_log: CallLog) -> None:
    async with group(call_log) as gateway:
        await gateway.all_ready()
        call = asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 5}))
        name, pid = await victim_of(gateway, call_log, "sleep_unsafe")
        os.kill(pid, signal.SIGKILL)
        error = (await call).error
        assert error["code"] == -31003
        assert error["data"]["member"] == name
        assert error["data"]["mayHaveRun"] is True
        assert error["data"]["retryable"] is False
        assert call_log.count("sleep_unsafe") == 1


async def start_seconds(command: list[str]) -> float:
    """How long a server takes from its spawn to its answer to `initialize`."""
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        b'"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}\n'
    )
    assert b'"result"' in await process.stdout.readline()
    seconds = time.monotonic() - began
    process.kill()
    await process.wait()
    return seconds


async def test_a_killed_member_is_back_within_two_seconds_without_any_call() -> None:
    flags = ("--start-delay", "1")
    own = await start_seconds(faulty_command("stdio", "b", *flags))
    async with Gateway(members=[faulty(name, *flags) for name in MEMBERS]) as gateway:
        await gateway.all_ready()
        pid = (await gateway.member("b"))["pid"]
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        await gateway.wait_for(
            lambda s: (
                member_of(s, "b")["state"] == "Ready"
                and member_of(s, "b")["pid"] not in (pid, None)
                and member_of(s, "b")["inRotation"]
            ),
            timeout=10,
        )
        assert time.monotonic() - killed < 2 + own


async def test_fifty_calls_lost_with_one_process_are_one_failure(call_log: CallLog) -> None:
    members = [faulty("a", *call_log.flags)]
    async with Gateway(members=members, retry={"attempts": 0}) as gateway:
        await gateway.all_ready()
        calls = [
            asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 20})) for _ in range(50)
        ]
        await call_log.until(50, tool="sleep_unsafe")
        os.kill((await gateway.member("a"))["pid"], signal.SIGKILL)
        codes = {reply.error["code"] for reply in await asyncio.gather(*calls)}
        assert codes == {-31003}
        status = await gateway.status()
        assert member_of(status, "a")["inRotation"]
        assert status["circuit"]["consecutiveFailures"] <= 1
        assert await gateway.metric("mcpgroup_evictions_total") == 0
        assert await gateway.metric("mcpgroup_member_exits_total", member="a", reason="signal") == 1


async def test_callers_in_a_loop_do_not_notice_that_members_are_killed(call_log: CallLog) -> None:
    async with group(call_log) as gateway:
        await gateway.all_ready()
        stop = asyncio.Event()
        errors: list[object] = []
        done = 0

        async def caller() -> None:
            nonlocal done
            while not stop.is_set():
                done += 1
                # Arguments of its own: the same ones lost twice would be a poisoned call.
                message = (await gateway.call("echo", {"n": done})).message
                if "error" in message:
                    errors.append(message)

        callers = [asyncio.create_task(caller()) for _ in range(8)]
        for name in MEMBERS:
            pid = (await gateway.wait_state(name))["pid"]
            os.kill(pid, signal.SIGKILL)
            await gateway.wait_for(
                lambda s, name=name, pid=pid: (  # type: ignore[misc]
                    member_of(s, name)["state"] == "Ready" and member_of(s, name)["pid"] != pid
                )
            )
        stop.set()
        await asyncio.gather(*callers)
        assert errors == []
        assert done > 100
