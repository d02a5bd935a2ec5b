"""New values of Secrets under a gateway that runs: members get them, and no caller notices."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from tests.harness.gateway import Gateway, member_of
from tests.harness.members import FaultyHttp, faulty, faulty_command, stdio
from tests.harness.pod import Volume
from tests.harness.processes import until

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW, BAD = "chestnut-avenue-17", "mulberry-terrace-88", "bad-larch-street-5"
SHY = [sys.executable, "-S", "-c", (
    "import os, sys\n"
    f"if os.environ['TOKEN'] == {BAD!r}: sys.exit('no')\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)]  # fmt: skip


def entry(name: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": "search", "key": "token"}}}


def shy(name: str) -> dict[str, Any]:
    """Does not start with the value BAD."""
    return stdio(name, [*SHY, *faulty_command("stdio", name)], env=[entry("TOKEN")])


def volume(folder: Path, value: str) -> tuple[Volume, tuple[str, str]]:
    return Volume(folder / "search", {"token": value}), ("--secrets", str(folder))


def changes(status: dict[str, Any]) -> list[tuple[str, str]]:
    """What became of changes of the file, and of Secrets, which are the reason then."""
    return [(e["to"], e.get("reason", "")) for e in status["events"] if e["kind"] == "config"]


def pids(status: dict[str, Any]) -> dict[str, int]:
    return {member["name"]: member["pid"] for member in status["members"]}


async def value_of(gateway: Gateway, **options: Any) -> str:
    reply = await gateway.call("env", **options)
    return str(reply.result["structuredContent"]["TOKEN"])


async def test_a_new_value_replaces_a_process_under_load_and_fails_no_call(tmp_path: Path) -> None:
    secrets, flags = volume(tmp_path, OLD)
    async with Gateway(members=[shy("a"), faulty("b")], flags=flags) as gateway:
        before = await gateway.all_ready()
        stop = asyncio.Event()
        errors: list[dict[str, Any]] = []
        done = 0

        async def caller() -> None:
            nonlocal done
            session = await gateway.open_session()
            while not stop.is_set():
                reply = await gateway.call("sleep_unsafe", {"seconds": 0.02}, session=session)
                if "error" in reply.message:
                    errors.append(reply.message)
                done += 1

        callers = [asyncio.create_task(caller()) for _ in range(4)]
        await until(lambda: done > 8)
        secrets.swap({"token": NEW})
        old, other = member_of(before, "a")["pid"], member_of(before, "b")["pid"]
        status = await gateway.wait_for(lambda s: len(changes(s)) == 1, 20)
        await until(lambda now=done: done > now + 8)  # type: ignore[misc]
        stop.set()
        await asyncio.gather(*callers)
        assert errors == []
        status = await gateway.wait_for(lambda s: len(s["members"]) == 2)
        assert member_of(status, "a")["pid"] != old
        assert member_of(status, "b")["pid"] == other
        assert status["config"] == before["config"]
        assert changes(status) == [("applied", "new values of Secrets for a")]
        text = gateway.log
        assert OLD not in text
        assert NEW not in text


async def test_a_value_with_which_nothing_starts_leaves_the_old_process_until_a_good_one(
    tmp_path: Path,
) -> None:
    secrets, flags = volume(tmp_path, OLD)
    spec: dict[str, Any] = {"health": {"startupTimeoutSeconds": 1}}
    async with Gateway(members=[shy("a")], flags=flags, **spec) as gateway:
        before = await gateway.all_ready()
        secrets.swap({"token": BAD})
        status = await gateway.wait_for(lambda s: len(changes(s)) == 1, 20)
        assert changes(status)[0][0] == "failed"
        assert "with which not all become ready" in changes(status)[0][1]
        assert member_of(status, "a")["pid"] == member_of(before, "a")["pid"]
        assert status["config"]["rejected"] is None
        assert await value_of(gateway) == OLD
        secrets.swap({"token": NEW})
        await gateway.wait_for(lambda s: changes(s)[-1][0] == "applied", 20)
        assert await value_of(gateway) == NEW
        assert BAD not in gateway.log


async def test_members_that_start_with_a_new_value_do_not_wait_for_those_that_do_not(
    tmp_path: Path,
) -> None:
    secrets, flags = volume(tmp_path, OLD)
    easy = faulty("b", env=[entry("TOKEN")])
    spec: dict[str, Any] = {"health": {"startupTimeoutSeconds": 1}}
    async with Gateway(members=[shy("a"), easy], flags=flags, **spec) as gateway:
        before = pids(await gateway.all_ready())
        secrets.swap({"token": BAD})
        await gateway.wait_for(lambda s: [to for to, _ in changes(s)] == ["failed"], 20)
        status = await gateway.wait_for(lambda s: len(s["members"]) == 2)
        assert pids(status)["a"] == before["a"]
        assert pids(status)["b"] != before["b"]
        # What is wrong with a Secret does not hold up the file.
        status = await gateway.reload(description="other")
        assert status["config"]["rejected"] is None
        assert pids(status)["a"] == before["a"]


async def test_sessions_over_http_send_the_new_value(tmp_path: Path) -> None:
    secrets, flags = volume(tmp_path, OLD)

    async def told(**options: Any) -> str:
        reply = await gateway.call("headers", **options)
        headers: dict[str, str] = reply.result["structuredContent"]
        return {name.lower(): value for name, value in headers.items()}["x-key"]

    async with FaultyHttp("a") as server:
        member = server.spec()
        member["http"]["headers"] = [entry("X-Key")]
        async with Gateway(members=[member], flags=flags) as gateway:
            await gateway.all_ready()
            session = await gateway.open_session()
            assert await told(session=session) == await told() == OLD
            secrets.swap({"token": NEW})
            await gateway.wait_for(lambda s: changes(s)[-1:] != [], 20)
            assert await told(session=session) == await told() == NEW


async def test_a_secret_that_goes_takes_nothing_down_and_one_like_before_changes_nothing(
    tmp_path: Path,
) -> None:
    secrets, flags = volume(tmp_path, OLD)
    async with Gateway(members=[shy("a")], flags=flags) as gateway:
        before = await gateway.all_ready()
        secrets.swap({})
        status = await gateway.wait_for(lambda s: s["config"]["missingSecrets"] != [])
        # Nor does a change of the file while it is away.
        status = await gateway.reload(description="other")
        assert status["config"]["rejected"] is None
        secrets.swap({"token": OLD})
        status = await gateway.wait_for(lambda s: s["config"]["missingSecrets"] == [])
        await asyncio.sleep(1.2)  # nothing is to happen: two looks
        status = await gateway.status()
        assert member_of(status, "a")["pid"] == member_of(before, "a")["pid"]
        assert [to for to, _ in changes(status)] == ["applied"]
        secrets.swap({"token": NEW})
        await gateway.wait_for(lambda s: len(changes(s)) == 2, 20)
        assert await value_of(gateway) == NEW


async def test_a_member_that_is_cold_reads_the_value_of_its_start(tmp_path: Path) -> None:
    secrets, flags = volume(tmp_path, OLD)
    async with Gateway(members=[shy("a")], flags=flags, startMembers=False) as gateway:
        secrets.swap({"token": NEW})
        await asyncio.sleep(1.2)  # nothing is to happen: two looks
        assert await value_of(gateway) == NEW
        await asyncio.sleep(1.2)  # nothing is to happen: two looks
        assert changes(await gateway.status()) == []
