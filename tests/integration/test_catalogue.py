"""One catalogue out of several members: what is listed, what may be called, and when."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from tests.harness.gateway import Gateway, Reply, member_of
from tests.harness.members import faulty
from tests.harness.processes import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.members import CallLog, Control

SAFE = {"readOnlyHint": True}


def tools_file(path: Path, *names: str, **definition: Any) -> list[str]:
    tools = [
        {"name": name, "inputSchema": {"type": "object"}, "annotations": SAFE, **definition}
        for name in names
    ]
    path.write_text(json.dumps(tools))
    return ["--tools-file", str(path)]


async def listed(gateway: Gateway, kind: str = "tools", **options: Any) -> list[str]:
    key = "uri" if kind == "resources" else "name"
    return [entry[key] for entry in (await gateway.request(f"{kind}/list", **options)).result[kind]]


def is_unknown(reply: Reply) -> bool:
    return bool(reply.status == 200 and reply.error["code"] == -32602)


async def test_a_tool_that_one_member_has_is_always_routed_there(call_log: CallLog) -> None:
    async with Gateway(members=[faulty(name, *call_log.flags) for name in "abc"]) as gateway:
        await gateway.all_ready()
        for _ in range(9):
            assert (await gateway.call("only_b")).text == "only_b on b"
        assert {entry["name"] for entry in call_log.entries(tool="only_b")} == {"b"}
        explanation = await gateway.explain(tool="only_b")
        assert explanation["choice"]["member"] == "b"


async def test_of_two_definitions_the_common_one_is_served_and_the_other_reported(
    call_log: CallLog,
) -> None:
    members = [
        faulty("a", "--schema-variant", "odd", *call_log.flags),
        faulty("b", *call_log.flags),
        faulty("c", *call_log.flags),
    ]
    async with Gateway(members=members) as gateway:
        status = await gateway.all_ready()
        assert member_of(status, "b")["shadowed"] == []
        assert "variant" in str(member_of(status, "a")["shadowed"])
        tools = (await gateway.request("tools/list")).result["tools"]
        (variant,) = [tool for tool in tools if tool["name"] == "variant"]
        assert list(variant["inputSchema"]["properties"]) == ["key_a"]
        served = {(await gateway.call("variant")).text for _ in range(8)}
        assert served == {"variant on b", "variant on c"}
        # The shadowed one stays within reach.
        assert (await gateway.call("a__variant")).text == "variant on a"


async def test_prefixes_on_conflict_list_the_winner_bare_and_the_others_prefixed() -> None:
    members = [faulty("a"), faulty("b", "--schema-variant", "odd"), faulty("c")]
    async with Gateway(members=members, names={"prefix": "OnConflict"}) as gateway:
        await gateway.all_ready()
        names = await listed(gateway)
        assert {name for name in names if "variant" in name} == {"variant", "b__variant"}
        assert {name for name in names if "__" in name} == {"b__variant"}
        assert (await gateway.call("b__variant")).text == "variant on b"
        # A prefix pins the member also where no conflict is.
        assert {(await gateway.call("c__whoami")).text for _ in range(6)} == {"c"}
        assert is_unknown(await gateway.call("c__no_such_tool"))
        assert is_unknown(await gateway.call("z__whoami"))


async def test_prefixes_always_list_every_tool_and_prompt_of_every_member() -> None:
    names = {"prefix": "Always", "separator": "."}
    async with Gateway(members=[faulty("a"), faulty("b")], names=names) as gateway:
        await gateway.all_ready()
        tools = await listed(gateway)
        assert all(name.startswith(("a.", "b.")) for name in tools)
        assert {"a.echo", "b.echo", "a.only_a", "b.only_b"} <= set(tools)
        assert await listed(gateway, "prompts") == ["a.greet", "b.greet"]
        assert "test://shared/readme" in await listed(gateway, "resources")
        assert {(await gateway.call("b.whoami")).text for _ in range(4)} == {"b"}
        prompt = await gateway.request("prompts/get", {"name": "b.greet", "arguments": {}})
        assert prompt.result["messages"][0]["content"]["text"] == "Hello you, this is b"


async def test_what_a_filter_hides_is_unknown_and_no_member_hears_of_it(
    call_log: CallLog,
) -> None:
    members = [
        faulty("a", *call_log.flags, tools={"deny": ["count"]}),
        faulty("b", *call_log.flags, tools={"allow": ["who*", "count", "log", "only_*"]}),
    ]
    spec: dict[str, Any] = {
        "tools": {"deny": ["log", "only_a"]},
        "prompts": {"deny": ["*"]},
        "resources": {"allow": ["test://shared/*"]},
    }
    async with Gateway(members=members, **spec) as gateway:
        await gateway.all_ready()
        names = set(await listed(gateway))
        assert {"whoami", "count", "echo", "only_b"} <= names
        assert not names & {"log", "only_a"}
        for hidden in ("log", "only_a", "a__log", "a__count", "b__echo", "b__log"):
            assert is_unknown(await gateway.call(hidden)), hidden
        assert call_log.count() == 0
        assert {(await gateway.call("whoami")).text for _ in range(4)} == {"a", "b"}
        for _ in range(3):
            await gateway.call("count")
            await gateway.call("echo")
        assert {entry["name"] for entry in call_log.entries(tool="count")} == {"b"}
        assert {entry["name"] for entry in call_log.entries(tool="echo")} == {"a"}
        assert await listed(gateway, "prompts") == []
        assert is_unknown(await gateway.request("prompts/get", {"name": "greet"}))
        assert await listed(gateway, "resources") == ["test://shared/readme"]
        unseen = await gateway.request("resources/read", {"uri": "test://a/own"})
        assert unseen.error["code"] == -32002
        seen = await gateway.request("resources/read", {"uri": "test://shared/readme"})
        assert seen.result["contents"][0]["uri"] == "test://shared/readme"


async def test_members_of_several_pages_are_read_to_their_end(tmp_path: Path) -> None:
    many = tools_file(tmp_path / "many.json", *[f"tool_{n:04}" for n in range(1203)])
    members = [
        faulty("a", "--page-size", "100", *many),
        faulty("b", "--page-size", "2"),
        faulty("c", "--page-size", "3", "--repeat-cursor"),
        faulty("d", "--bad-entries"),
    ]
    async with Gateway(members=members) as gateway:
        await gateway.all_ready()
        first = (await gateway.request("tools/list")).result
        assert len(first["tools"]) == 1000
        second = (await gateway.request("tools/list", {"cursor": first["nextCursor"]})).result
        assert "nextCursor" not in second
        names = [tool["name"] for tool in [*first["tools"], *second["tools"]]]
        assert len(names) == len(set(names))
        assert {f"tool_{n:04}" for n in range(1203)} <= set(names)
        assert {"whoami", "only_b", "only_d"} <= set(names)
        assert (await gateway.call("tool_1202")).text == "tool_1202 on a"
        assert (await gateway.request("tools/list", {"cursor": first["nextCursor"]})).result == (
            second
        )
        await gateway.running.printed("cursor")  # the member whose pages have no end is reported


async def test_a_cursor_that_the_gateway_did_not_give_is_refused() -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        await gateway.all_ready()
        for cursor in ('""', '"x"', '"bm9wZQ"', "7", "{}", '"' + "A" * 5000 + '"'):
            reply = await gateway.request("tools/list", f'{{"cursor":{cursor}}}')
            assert is_unknown(reply), cursor
        assert await listed(gateway, params={"cursor": None})


async def test_requests_in_the_first_second_of_a_cold_gateway_are_answered() -> None:
    members = [faulty("a", "--start-delay", "1.5"), faulty("b", "--start-delay", "2")]
    async with Gateway(members=members, wait_ready=False) as gateway:
        early = asyncio.gather(
            listed(gateway),
            listed(gateway, "prompts"),
            gateway.call("only_b", request_id="2"),
            gateway.call("whoami", request_id="3"),
            gateway.call("no_such_tool", request_id="4"),
            gateway.open_session(),
        )
        names, prompts, only_b, whoami, unknown, session = await early
        assert {"only_a", "only_b", "whoami"} <= set(names)
        assert prompts == ["greet"]
        assert only_b.text == "only_b on b"
        assert whoami.text in ("a", "b")
        assert is_unknown(unknown)
        assert set(await listed(gateway, session=session)) == set(names)


async def test_a_member_that_does_not_start_keeps_nobody_waiting_for_lists_long() -> None:
    members = [faulty("a"), faulty("b", "--start-delay", "60")]
    health = {"startupTimeoutSeconds": 3}
    async with Gateway(members=members, health=health, wait_ready=False) as gateway:
        await gateway.wait_state("a")
        began = time.monotonic()
        assert "only_a" in await listed(gateway)
        assert time.monotonic() - began < 4
        # A name that the other may have: the answer is not "unknown" but "try again".
        error = (await gateway.call("only_b")).error
        assert error["code"] == -31001
        assert error["data"]["retryable"] is True


async def test_calls_start_a_cold_member_once_however_many_wait(call_log: CallLog) -> None:
    members = [faulty("a", "--start-delay", "1", *call_log.flags)]
    async with Gateway(members=members, startMembers=False) as gateway:
        assert (await gateway.member("a"))["state"] == "Cold"
        replies = await asyncio.gather(*[gateway.call("echo", {"n": n}) for n in range(10)])
        assert [json.loads(reply.text)["n"] for reply in replies] == list(range(10))
        assert call_log.count("echo") == 10
        assert await gateway.metric("mcpgroup_member_starts_total", member="a") == 1
        assert len(gateway.descendants()) == 1


async def test_a_cold_member_whose_tools_are_promised_starts_only_when_called() -> None:
    members = [
        faulty("a", provides={"tools": ["only_a", "whoami"]}),
        faulty("b", provides={"tools": ["only_b", "whoami"]}),
    ]
    async with Gateway(members=members, startMembers=False) as gateway:
        assert (await gateway.call("only_b")).text == "only_b on b"
        status = await gateway.status()
        assert member_of(status, "a")["state"] == "Cold"
        assert member_of(status, "b")["state"] == "Ready"
        assert status["counts"]["inRotation"] == 2


async def test_an_idle_member_is_stopped_and_the_next_call_starts_it() -> None:
    member = faulty("a")
    member["stdio"]["idleSeconds"] = 1
    async with Gateway(members=[member]) as gateway:
        await gateway.wait_state("a")
        assert (await gateway.call("whoami")).text == "a"
        long = await gateway.call("sleep", {"seconds": 2})
        assert "slept" in long.text  # a running call is not idle
        await gateway.wait_state("a", "Cold")
        await until(lambda: gateway.descendants() == [])
        assert "only_a" in await listed(gateway)  # what is known needs no process
        assert (await gateway.member("a"))["state"] == "Cold"
        assert (await gateway.call("whoami")).text == "a"
        status = await gateway.status()
        assert member_of(status, "a")["inRotation"]
        assert status["circuit"]["consecutiveFailures"] == 0


async def test_a_tool_that_runs_only_as_a_task_is_not_listed_and_others_run_without(
    tmp_path: Path,
) -> None:
    needs = {"execution": {"taskSupport": "required"}}
    flags = tools_file(tmp_path / "tools.json", "slow", **needs)
    async with Gateway(members=[faulty("a", *flags), faulty("b")]) as gateway:
        await gateway.all_ready()
        assert "slow" not in await listed(gateway)
        assert is_unknown(await gateway.call("slow"))
        params = {"name": "echo", "arguments": {"n": 1}, "task": {"ttl": 1000}}
        result = (await gateway.request("tools/call", params)).result
        assert result["structuredContent"] == {"n": 1}


class Told:
    """The notifications that arrive on a client's GET stream."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.arrived = asyncio.Event()
        self.open = asyncio.Event()

    async def listen(self, gateway: Gateway, session: str) -> None:
        async with gateway.stream(session) as stream:
            assert stream.status == 200
            self.open.set()
            async for line in stream.content:
                if line.startswith(b"data:") and line[5:].strip():
                    self.methods.append(json.loads(line[5:])["method"])
                    self.arrived.set()


async def test_clients_are_told_once_that_the_tools_changed() -> None:
    async with Gateway(members=[faulty("a"), faulty("b")]) as gateway:
        await gateway.all_ready()
        told = [Told(), Told()]
        sessions = [await gateway.open_session() for _ in told]
        listeners = [
            asyncio.create_task(one.listen(gateway, session))
            for one, session in zip(told, sessions, strict=True)
        ]
        for one in told:
            await one.open.wait()
        # Three changes within the second in which they are gathered.
        for name in ("late_1", "late_2", "late_3"):
            assert (await gateway.call("a__change_tools", {"name": name})).text == "changed"
        for one in told:
            await asyncio.wait_for(one.arrived.wait(), 5)
        assert {"late_1", "late_2", "late_3"} <= set(await listed(gateway, session=sessions[0]))
        assert (await gateway.call("late_2")).text == "late_2 on a"
        # The other member gets a tool that is listed already: nobody sees a difference.
        assert (await gateway.call("b__change_tools", {"name": "late_1"})).text == "changed"
        await gateway.wait_for(
            lambda s: member_of(s, "b")["tools"] == member_of(s, "a")["tools"] - 2, timeout=5
        )
        assert [one.methods for one in told] == [["notifications/tools/list_changed"]] * 2
        for one in told:
            one.arrived.clear()
        assert (await gateway.call("a__change_tools", {"name": "late_2", "remove": True})).text
        for one in told:
            await asyncio.wait_for(one.arrived.wait(), 5)
        assert "late_2" not in await listed(gateway)
        assert [len(one.methods) for one in told] == [2, 2]
        for listener in listeners:
            listener.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)


async def test_a_call_waits_for_the_lists_of_the_only_member_that_is_up(
    tmp_path: Path, control: Control
) -> None:
    permit = tmp_path / "may-start"
    permit.touch()
    control.set(silent=True)  # b shakes hands, and answers nothing else yet
    members = [
        faulty("a", "--fail-start-until-file", str(permit)),
        faulty("b", *control.flags),
    ]
    async with Gateway(members=members, health={"startupTimeoutSeconds": 2}) as gateway:
        a = await gateway.wait_for(lambda s: member_of(s, "a")["tools"] is not None)
        await gateway.wait_state("b")
        permit.unlink()
        os.kill(member_of(a, "a")["pid"], signal.SIGKILL)
        await gateway.wait_state("a", "Failed")
        call = asyncio.create_task(gateway.call("whoami"))
        await gateway.wait_for(lambda s: member_of(s, "b")["tools"] is None)
        control.set(silent=False)
        assert (await call).text == "b"
