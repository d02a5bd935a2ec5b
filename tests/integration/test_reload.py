"""Live changes of the manifest: what stays, what is replaced, and that no caller notices."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from tests.harness.gateway import Gateway, member_of
from tests.harness.members import FaultyHttp, faulty, free_port
from tests.harness.processes import alive, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.harness.members import CallLog, Control

NAMES = ("a", "b", "c")


def pids(status: dict[str, Any]) -> dict[str, int]:
    return {member["name"]: member["pid"] for member in status["members"]}


def nowhere(name: str) -> dict[str, Any]:
    return {"name": name, "http": {"url": f"http://127.0.0.1:{free_port()}/mcp"}}


@contextlib.asynccontextmanager
async def load(
    gateway: Gateway, tool: str = "sleep_unsafe", number: int = 6
) -> AsyncIterator[Callable[[], int]]:
    """Callers in a loop; gives how many calls were answered. Afterwards none may have failed."""
    stop = asyncio.Event()
    errors: list[dict[str, Any]] = []
    done = 0

    async def caller() -> None:
        nonlocal done
        session = await gateway.open_session()
        while not stop.is_set():
            message = (await gateway.call(tool, {"seconds": 0.02}, session=session)).message
            if "error" in message:
                errors.append(message)
            done += 1

    callers = [asyncio.create_task(caller()) for _ in range(number)]
    try:
        await until(lambda: done >= 3 * number)
        yield lambda: done
        seen = done
        await until(lambda: done >= seen + 3 * number)
    finally:
        stop.set()
        await asyncio.gather(*callers)
    assert errors == []


async def test_a_new_weight_keeps_processes_sessions_and_evictions(
    control: Control, tmp_path: Any
) -> None:
    members = [faulty("a"), faulty("b", *control.flags), faulty("c")]
    health = {"intervalSeconds": 1, "timeoutSeconds": 1}
    async with Gateway(members=members, strategy="WeightedRoundRobin", health=health) as gateway:
        before = pids(await gateway.all_ready())
        session = await gateway.open_session()
        control.set(silent=True)
        await gateway.wait_for(lambda s: not member_of(s, "b")["inRotation"])
        selections = (await gateway.member("a"))["selections"]
        heavy = [{**member, "weight": 5 + at} for at, member in enumerate(members)]
        status = await gateway.reload(members=heavy)
        assert status["config"]["rejected"] is None
        assert pids(status) == before
        assert not member_of(status, "b")["inRotation"]
        assert member_of(status, "a")["selections"] >= selections
        texts = [(await gateway.call("whoami", session=session)).text for _ in range(12)]
        assert sorted(texts) == ["a"] * 5 + ["c"] * 7  # the new weights count at once
        control.set()
        control.set(silent=False)
        await gateway.wait_for(lambda s: member_of(s, "b")["inRotation"])
        assert pids(await gateway.status()) == before


async def test_renaming_all_members_under_load_fails_no_call_and_keeps_processes() -> None:
    members = [faulty(name) for name in NAMES]
    async with Gateway(members=members) as gateway:
        before = pids(await gateway.all_ready())
        async with load(gateway):
            turned = dict(zip(NAMES, ("b", "c", "a"), strict=True))
            for names in (turned, {name: f"new-{name}" for name in NAMES}):
                members = [
                    {**member, "name": names[old]}
                    for old, member in zip(NAMES, members, strict=True)
                ]
                status = await gateway.reload(members=members)
                assert pids(status) == {names[old]: before[old] for old in NAMES}
        status = await gateway.status()
        assert all(member["inRotation"] for member in status["members"])
        assert await gateway.metric("mcpgroup_member_starts_total", member="a") == 0
        text = str(await gateway.metrics())
        assert "('member', 'a')" not in text  # series of a name that is gone
        assert "('member', 'new-a')" in text


async def test_wrong_urls_leave_the_old_set_serving_and_heal_with_the_file() -> None:
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(FaultyHttp(name)) for name in NAMES]
        gateway = await stack.enter_async_context(
            Gateway(
                members=[server.spec() for server in servers], health={"startupTimeoutSeconds": 1}
            )
        )
        good = await gateway.all_ready()
        digest = good["config"]["hash"]
        async with load(gateway):
            wrong = [nowhere(name) for name in NAMES]
            status = await gateway.reload(members=wrong)
            assert status["config"]["hash"] == digest
            assert "none of the new members became ready" in status["config"]["rejected"]
            assert "refused" in status["config"]["rejected"].lower()
            assert status["state"] == "Healthy"
            assert all(member["inRotation"] for member in status["members"])
            assert len(status["members"]) == 3
            events = [event for event in status["events"] if event["kind"] == "config"]
            assert [event["to"] for event in events] == ["failed"]
            assert await gateway.metric("mcpgroup_config_reloads_total", result="failed") == 1
            assert await gateway.metric("mcpgroup_config_last_reload_successful") == 0
            status = await gateway.reload(members=[server.spec() for server in servers])
            assert status["config"]["hash"] == digest
            assert status["config"]["rejected"] is None
            assert await gateway.metric("mcpgroup_config_last_reload_successful") == 1
            # And a set that works, after one that does not.
            await gateway.reload(members=wrong)
            right = [server.spec() for server in servers[1:]]
            status = await gateway.reload(members=right)
            assert status["config"]["rejected"] is None
            serving = [m["name"] for m in status["members"] if m["state"] != "Draining"]
            assert serving == ["b", "c"]


async def test_an_invalid_file_is_refused_and_said_so() -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        before = await gateway.all_ready()
        status = before
        good = gateway.path.read_text()
        for text, said in (
            ("members: [", ":1: is not valid YAML"),
            (good.replace('"members"', '"membres"'), "membres"),
            (good.replace('"name": "test"', '"name": "other"'), "metadata.name"),
            ("", "empty"),
        ):
            gateway.write(text=text)
            status = await gateway.wait_for(
                lambda s, said=said: said in (s["config"]["rejected"] or "")  # type: ignore[misc]
            )
            assert status["config"]["hash"] == before["config"]["hash"]
            assert (await gateway.call("echo", {"n": 1})).result
        assert await gateway.metric("mcpgroup_config_reloads_total", result="rejected") == 4
        assert [e["to"] for e in status["events"] if e["kind"] == "config"] == ["rejected"] * 4
        gateway.write(text=good)
        status = await gateway.wait_for(lambda s: s["config"]["rejected"] is None)
        assert pids(status) == pids(before)


async def test_a_removed_member_drains(call_log: CallLog) -> None:
    members = [faulty(name, *call_log.flags) for name in ("a", "b")]
    async with Gateway(members=members) as gateway:
        await gateway.all_ready()
        call = asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 4}))
        entry = (await call_log.until(1, tool="sleep_unsafe"))[0]
        pid = (await gateway.member(entry["name"]))["pid"]
        rest = [member for member in members if member["name"] != entry["name"]]
        status = await gateway.reload(members=rest)
        assert status["counts"]["total"] == 1
        assert member_of(status, entry["name"])["state"] == "Draining"
        texts = {(await gateway.call("whoami")).text for _ in range(4)}
        assert texts == {rest[0]["name"]}
        assert alive([pid]) == [pid]
        assert (await call).text == f"{entry['name']} slept 4 s"
        await gateway.wait_for(lambda s: len(s["members"]) == 1)
        await until(lambda: not alive([pid]))
        assert f"('member', '{entry['name']}')" not in str(await gateway.metrics())


async def test_calls_that_outlast_a_removed_member_move_or_are_told(call_log: CallLog) -> None:
    members = [
        faulty("a", *call_log.flags, maxConcurrentRequests=2),
        faulty("b", *call_log.flags, priority=2),
    ]
    spec: dict[str, Any] = {
        "strategy": "Priority",
        "drain": {"timeoutSeconds": 1},
        "limits": {"queueMilliseconds": 30000},
    }
    async with Gateway(members=members, **spec) as gateway:
        await gateway.all_ready()
        unsafe = asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 30}))
        safe = asyncio.create_task(gateway.call("sleep", {"seconds": 3}))
        await call_log.until(2)
        await gateway.reload(members=members[1:])
        error = (await unsafe).error
        assert error["code"] == -31003
        assert error["data"]["member"] == "a"
        assert error["data"]["mayHaveRun"] is True
        assert (await safe).text == "b slept 3 s"
        assert call_log.count("sleep_unsafe") == 1


async def test_calls_queued_for_a_removed_member_go_to_those_that_stay(call_log: CallLog) -> None:
    limited = faulty("a", *call_log.flags, maxConcurrentRequests=1)
    spec: dict[str, Any] = {"limits": {"queueMilliseconds": 30000}}
    async with Gateway(members=[limited], **spec) as gateway:
        await gateway.all_ready()
        long = asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 6}))
        await call_log.until(1, tool="sleep_unsafe")
        queued = asyncio.create_task(gateway.call("whoami"))
        await gateway.wait_for(lambda s: member_of(s, "a")["queued"] == 1)
        await gateway.reload(members=[faulty("b", *call_log.flags)])
        assert (await queued).text == "b"
        assert not long.done()
        assert (await long).text == "a slept 6 s"


async def test_the_same_bytes_again_change_nothing() -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        before = await gateway.all_ready()
        for _ in range(2):
            gateway.write(gateway.spec)
            await asyncio.sleep(1.2)  # nothing is to happen: one look at the file
        status = await gateway.status()
        assert status["config"] == before["config"]
        assert pids(status) == pids(before)
        assert await gateway.metric("mcpgroup_config_reloads_total") == 0
        assert [event for event in status["events"] if event["kind"] == "config"] == []


async def test_a_new_command_is_started_before_the_old_process_goes(call_log: CallLog) -> None:
    async with Gateway(members=[faulty(name) for name in ("a", "b")]) as gateway:
        before = pids(await gateway.all_ready())
        async with load(gateway):
            slow = [faulty(name, "--start-delay", "1.5") for name in ("a", "b")]
            status = await gateway.reload(members=slow)
            ready = [m for m in status["members"] if m["state"] == "Ready"]
            assert ready, status["members"]
            assert not set(pids({"members": ready}).values()) & set(before.values())
        await gateway.wait_for(lambda s: len(s["members"]) == 2)
        await gateway.all_ready()
        await until(lambda: not alive(list(before.values())))
        assert await gateway.metric("mcpgroup_evictions_total") == 0
