"""What a change of the manifest means for what runs: settings, names, lists, changes in a row."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from tests.harness.gateway import Gateway, member_of
from tests.harness.members import faulty
from tests.harness.processes import alive, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.members import CallLog, Control


def pids(status: dict[str, Any]) -> dict[str, int]:
    return {member["name"]: member["pid"] for member in status["members"]}


def below(gateway: Gateway) -> list[int]:
    return [process.pid for process in gateway.descendants()]


async def names(gateway: Gateway) -> set[str]:
    reply = await gateway.request("tools/list")
    return {tool["name"] for tool in reply.result["tools"]}


async def test_settings_count_at_once_and_processes_stay(
    control: Control, call_log: CallLog
) -> None:
    member = faulty("a", *control.flags, *call_log.flags)
    async with Gateway(members=[member], description="old") as gateway:
        before = pids(await gateway.all_ready())
        session = await gateway.open_session()
        foreign = {"Host": "mcp.example.com"}
        assert (await gateway.call("echo", {"n": 1}, headers=foreign)).status == 403
        status = await gateway.reload(
            members=[{**member, "callTimeoutSeconds": 1, "maxConcurrentRequests": 1}],
            description="new",
            allowedHosts=["mcp.example.com"],
            limits={"requestBytes": 1024, "queueMilliseconds": 200},
            health={"intervalSeconds": 1, "timeoutSeconds": 1, "unhealthyThreshold": 1},
            tools={"deny": ["progress"]},
        )
        assert pids(status) == before
        assert (await gateway.call("echo", {"n": 1}, headers=foreign)).status == 200
        initialized = await gateway.request(
            "initialize",
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        )
        assert initialized.result["serverInfo"]["description"] == "new"
        assert (await gateway.call("echo", {"text": "x" * 2000})).status == 413
        assert "progress" not in await names(gateway)
        # The limit of concurrent calls, the deadline of a call, on a session from before.
        slow = asyncio.create_task(
            gateway.call("sleep_unsafe", {"seconds": 30}, session=session, request_id="2")
        )
        await call_log.until(1, tool="sleep_unsafe")
        full = await gateway.call("echo", {"n": 2}, session=session)
        assert full.error["code"] == -31004
        async with asyncio.timeout(5):
            assert "1 s" in json.dumps((await slow).error)
        # And the probes, which were not due for another ten seconds.
        control.set(silent=True)
        await gateway.wait_for(lambda s: not member_of(s, "a")["inRotation"], 5)
        assert pids(await gateway.status()) == before


async def test_an_idle_time_that_is_new_stops_a_process_that_runs() -> None:
    member = faulty("a")
    async with Gateway(members=[member]) as gateway:
        pid = pids(await gateway.all_ready())["a"]
        short = {**member, "stdio": {**member["stdio"], "idleSeconds": 1}}
        status = await gateway.reload(members=[short])
        assert status["config"]["rejected"] is None
        await gateway.wait_state("a", "Cold", 5)
        await until(lambda: not alive([pid]))
        assert (await gateway.call("whoami")).text == "a"


async def test_lists_follow_a_replacement_and_a_new_name(tmp_path: Path) -> None:
    tool = {"name": "only_here", "inputSchema": {"type": "object"}}
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([tool]))
    members = [faulty("a"), faulty("b")]
    async with Gateway(members=members, names={"prefix": "Always"}) as gateway:
        await gateway.all_ready()
        assert {"a__echo", "b__echo"} <= await names(gateway)
        session = await gateway.open_session()
        async with gateway.stream(session) as stream:
            renamed = [members[0], {**members[1], "name": "c"}]
            await gateway.reload(members=renamed)
            listed = await names(gateway)
            assert "c__echo" in listed
            assert "b__echo" not in listed
            assert (await gateway.call("c__whoami")).text == "b"
            replaced = [members[0], faulty("c", "--tools-file", str(file))]
            await gateway.reload(members=replaced)
            listed = await names(gateway)
            assert {name for name in listed if name.startswith("c__")} == {"c__only_here"}
            assert "a__echo" in listed
            told = b""
            async with asyncio.timeout(5):
                while told.count(b"notifications/tools/list_changed") < 2:
                    told += await stream.content.readany()


async def test_two_members_that_swap_their_names_keep_their_processes_and_lists(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([{"name": "special", "inputSchema": {"type": "object"}}]))
    plain, special = faulty("x"), faulty("y", "--tools-file", str(file))
    first = [{**plain, "name": "a"}, {**special, "name": "b"}]
    async with Gateway(members=first) as gateway:
        before = pids(await gateway.all_ready())
        await gateway.wait_for(lambda s: member_of(s, "b")["tools"] == 1)
        status = await gateway.reload(members=[{**plain, "name": "b"}, {**special, "name": "a"}])
        assert pids(status) == {"a": before["b"], "b": before["a"]}
        assert member_of(status, "a")["tools"] == 1
        assert (await gateway.explain(tool="special"))["choice"]["member"] == "a"
        assert (await gateway.explain(tool="echo"))["choice"]["member"] == "b"


async def test_a_file_that_is_missing_for_a_moment_changes_nothing() -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        before = pids(await gateway.all_ready())
        text = gateway.path.read_text()
        gateway.path.unlink()
        status = await gateway.wait_for(lambda s: s["config"]["rejected"] is not None)
        assert "cannot be read" in status["config"]["rejected"]
        assert (await gateway.call("whoami")).text == "a"
        gateway.path.write_text(text)
        status = await gateway.wait_for(lambda s: s["config"]["rejected"] is None)
        assert pids(status) == before


async def test_a_change_gives_up_the_one_that_is_still_under_way() -> None:
    members = [faulty("a"), faulty("b")]
    async with Gateway(members=members, strategy="WeightedRoundRobin") as gateway:
        before = pids(await gateway.all_ready())
        served = below(gateway)
        slow = [faulty(name, "--start-delay", "60") for name in ("a", "b")]
        gateway.write({**gateway.spec, "members": slow})
        await until(lambda: len(below(gateway)) == 4)
        assert pids(await gateway.status()) == before
        heavy = [{**members[0], "weight": 3}, members[1]]
        status = await gateway.reload(members=heavy)
        assert status["config"]["rejected"] is None
        assert pids(status) == before
        await until(lambda: sorted(below(gateway)) == sorted(served))
        texts = [(await gateway.call("whoami")).text for _ in range(8)]
        assert texts.count("a") == 6


async def test_an_invalid_file_does_not_give_up_what_is_under_way(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with Gateway(members=[faulty("a")], health={"startupTimeoutSeconds": 1}) as gateway:
        before = await gateway.all_ready()
        gated = [faulty("a", "--fail-start-until-file", str(gate))]
        pending = {**gateway.spec, "members": gated}
        gateway.write(pending)
        status = await gateway.wait_for(lambda s: s["config"]["rejected"] is not None)
        assert "none of the new members" in status["config"]["rejected"]
        gateway.write(text="members: [")
        await gateway.wait_for(lambda s: "none of" not in str(s["config"]["rejected"]))
        gate.touch()  # now the replacement can start
        status = await gateway.wait_for(
            lambda s: s["config"]["hash"] != before["config"]["hash"], 15
        )
        assert status["config"]["rejected"] is not None  # the file is still invalid
        assert await gateway.metric("mcpgroup_config_last_reload_successful") == 0
        after = await gateway.wait_for(lambda s: len(s["members"]) == 1)
        gateway.write(pending)
        status = await gateway.wait_for(lambda s: s["config"]["rejected"] is None)
        assert pids(status) == pids(after)


async def test_replacements_start_unless_what_they_replace_is_cold() -> None:
    members = [faulty("a"), faulty("b", provides={"tools": ["echo"]})]
    async with Gateway(members=members, startMembers=False) as gateway:
        assert below(gateway) == []
        # Both are cold: so are their replacements, and the change is there at once.
        members = [faulty("a", "--page-size", "9"), faulty("b", "--page-size", "9")]
        await gateway.reload(members=members)
        await gateway.wait_for(lambda s: [m["state"] for m in s["members"]] == ["Cold", "Cold"], 2)
        assert below(gateway) == []
        await gateway.act("members/a/start")
        old = (await gateway.wait_state("a"))["pid"]
        # One runs: its replacement runs before it goes, the other one stays cold.
        members = [faulty("a", "--page-size", "8"), faulty("b", "--page-size", "8")]
        await gateway.reload(members=members)
        status = await gateway.wait_for(lambda s: len(s["members"]) == 2)
        assert [m["state"] for m in status["members"]] == ["Ready", "Cold"]
        assert status["members"][0]["pid"] != old
        await until(lambda: not alive([old]))
        assert (await gateway.call("whoami")).text in ("a", "b")
