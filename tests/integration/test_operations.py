"""What an operator does and sees on the admin port of a running gateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.harness.gateway import Gateway, member_of
from tests.harness.members import faulty

if TYPE_CHECKING:
    from tests.harness.members import CallLog

QUICK = {"intervalSeconds": 1, "timeoutSeconds": 1}


async def served(gateway: Gateway, number: int = 6) -> set[str]:
    return {(await gateway.call("whoami")).text for _ in range(number)}


async def test_actions_need_the_token_and_a_member_that_exists() -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        await gateway.all_ready()
        for path in ("rebalance", "members/a/drain", "members/a/stop"):
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                async with gateway.http.post(
                    f"{gateway.admin_url}/{path}", headers=headers
                ) as answer:
                    assert answer.status == 401
        assert (await gateway.member("a"))["state"] == "Ready"
        assert await gateway.act("members/nobody/drain") == 404
        assert await gateway.act("members/a/resume") == 409  # it is not draining
        assert await gateway.act("members/a/start") == 409  # it runs


async def test_a_drained_member_finishes_its_calls_and_takes_no_new_ones_until_resumed(
    call_log: CallLog,
) -> None:
    async with Gateway(members=[faulty(name, *call_log.flags) for name in "ab"]) as gateway:
        await gateway.all_ready()
        call = asyncio.create_task(gateway.call("sleep_unsafe", {"seconds": 1}))
        name = (await call_log.until(1, tool="sleep_unsafe"))[0]["name"]
        other = {"a": "b", "b": "a"}[name]
        pid = (await gateway.member(name))["pid"]
        assert await gateway.act(f"members/{name}/drain") == 200
        assert (await gateway.member(name))["state"] == "Draining"
        assert await served(gateway) == {other}
        assert (await call).text == f"{name} slept 1 s"
        assert await served(gateway) == {other}
        assert await gateway.act(f"members/{name}/resume") == 200
        assert await served(gateway) == {"a", "b"}
        assert (await gateway.member(name))["pid"] == pid


async def test_a_stopped_member_stays_stopped_until_started() -> None:
    async with Gateway(members=[faulty("a"), faulty("b")], health=QUICK) as gateway:
        await gateway.all_ready()
        assert await gateway.act("members/a/stop") == 200
        assert (await gateway.wait_state("a", "Stopped"))["state"] == "Stopped"
        assert len(gateway.descendants()) == 1
        assert await served(gateway) == {"b"}
        # Neither a probe's turn nor a rebalance nor a call for it alone brings it back.
        assert await gateway.act("rebalance") == 200
        await asyncio.sleep(1.5)
        error = (await gateway.call("only_a")).error
        assert error["code"] == -31001
        assert (await gateway.member("a"))["state"] == "Stopped"
        assert await gateway.act("members/a/start") == 200
        await gateway.wait_state("a")
        assert await served(gateway) == {"a", "b"}


async def test_the_last_member_stopped_makes_the_group_unavailable_at_once() -> None:
    async with Gateway(members=[faulty("a")]) as gateway:
        await gateway.all_ready()
        assert await gateway.act("members/a/stop") == 200
        status = await gateway.status()
        assert status["available"] is False
        assert status["state"] == "Inactive"
        error = (await gateway.call("whoami")).error
        assert error["code"] == -31001
        assert error["data"]["mayHaveRun"] is False
        assert await gateway.act("members/a/start") == 200
        await gateway.wait_for(lambda s: bool(s["available"]) and s["state"] == "Healthy")
        assert (await gateway.call("whoami")).text == "a"


async def test_rebalance_brings_evicted_members_back_and_closes_the_circuit(tmp_path: Any) -> None:
    up = tmp_path / "up"
    spec: dict[str, Any] = {
        "health": {**QUICK, "unhealthyThreshold": 1},
        "circuitBreaker": {"failureThreshold": 2},
        "recovery": {"initialBackoffSeconds": 1, "maxBackoffSeconds": 60},
    }
    member = faulty("a", "--fail-start-until-file", str(up))
    async with Gateway(members=[member], wait_ready=False, **spec) as gateway:
        await gateway.wait_for(lambda s: s["circuit"]["open"] and not s["available"], 20)
        up.touch()
        assert await gateway.act("rebalance") == 200
        status = await gateway.wait_for(lambda s: bool(s["available"]), 5)
        assert status["circuit"]["open"] is False
        await gateway.wait_for(lambda s: member_of(s, "a")["state"] == "Ready")
        assert await served(gateway) == {"a"}


async def test_explain_tells_each_step_and_chooses_nobody() -> None:
    members = [
        faulty("a"),
        faulty("b", "--schema-variant", "odd"),
        faulty("c", tools={"deny": ["echo"]}),
        faulty("d"),
    ]
    async with Gateway(members=members) as gateway:
        await gateway.all_ready()
        await gateway.wait_for(lambda s: all(m["tools"] is not None for m in s["members"]))
        assert await gateway.act("members/d/drain") == 200
        before = [m["selections"] for m in (await gateway.status())["members"]]
        explanation = await gateway.explain(tool="variant")
        steps = {step["step"]: step for step in explanation["steps"]}
        assert "draining" in steps["state"]["dropped"]["d"]
        assert "definition" in steps["capability"]["dropped"]["b"]
        assert steps["strategy"]["left"] == [explanation["choice"]["member"]]
        assert (
            "filter"
            in {step["step"]: step for step in (await gateway.explain(tool="echo"))["steps"]}[
                "capability"
            ]["dropped"]["c"]
        )
        choices = [(await gateway.explain(tool="whoami"))["choice"]["member"] for _ in range(5)]
        assert len(set(choices)) == 1  # a look moves no cursor
        assert (await gateway.call("whoami")).text == choices[0]
        after = [m["selections"] for m in (await gateway.status())["members"]]
        assert sum(after) == sum(before) + 1
        prompt = await gateway.explain(prompt="greet")
        assert prompt["choice"] is not None
        resource = await gateway.explain(resource="test://a/own")
        assert resource["choice"]["member"] == "a"
        nothing = await gateway.explain(tool="no_such_tool")
        assert nothing.get("choice") is None
