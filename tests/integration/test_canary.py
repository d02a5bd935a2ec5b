"""The canary, as tenants of a running gateway meet it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.harness.gateway import Gateway, Reply, member_of
from tests.harness.members import FaultyHttp, faulty

from mcpgroup_gateway.core.canary import sees_canary
from mcpgroup_gateway.core.policy import CanaryPolicy

if TYPE_CHECKING:
    from tests.harness.members import CallLog, Control

GROUP = "test"
SPEC: dict[str, Any] = {
    "tenant": {"header": "X-Tenant-ID"},
    "health": {"intervalSeconds": 1, "timeoutSeconds": 1},
}


def tenants(number: int, *, inside: bool, percent: int = 10) -> list[str]:
    """Tenants of the group `test` inside or outside its split."""
    policy = CanaryPolicy(member="new", split_percent=percent)
    found: list[str] = []
    candidate = 0
    while len(found) < number:
        candidate += 1
        if sees_canary(policy, GROUP, f"tenant-{candidate}") is inside:
            found.append(f"tenant-{candidate}")
    return found


async def as_tenant(gateway: Gateway, tenant: str | None, tool: str = "whoami") -> Reply:
    headers = {"X-Tenant-ID": tenant} if tenant is not None else {}
    return await gateway.call(tool, headers=headers)


async def test_only_tenants_of_the_split_and_pinned_ones_reach_the_canary(
    call_log: CallLog,
) -> None:
    members = [faulty(name, *call_log.flags) for name in ("a", "b", "new")]
    inside, outside = tenants(20, inside=True), tenants(200, inside=False)
    pinned = {outside[0]: "new", inside[0]: "a", inside[1]: "new"}
    canary = {"member": "new", "splitPercent": 10, "pinnedTenants": pinned}
    async with Gateway(members=members, canary=canary, name=GROUP, **SPEC) as gateway:
        status = await gateway.all_ready()
        assert status["counts"]["total"] == 2  # the canary counts in none
        for tenant in outside[1:]:
            assert (await as_tenant(gateway, tenant)).text in ("a", "b")
        assert (await as_tenant(gateway, None)).text in ("a", "b")
        for tenant in inside[2:]:
            assert (await as_tenant(gateway, tenant)).text == "new"
        # Pins win over the split, both ways.
        for tenant, member in pinned.items():
            assert {(await as_tenant(gateway, tenant)).text for _ in range(4)} == {member}
        # The canary's own tool is there for its tenants and nobody else.
        assert (await as_tenant(gateway, inside[2], "only_new")).text == "only_new on new"
        refused = await as_tenant(gateway, outside[1], "only_new")
        assert refused.error["code"] == -32602
        for tenant, choices in ((inside[2], "new"), (inside[0], "a"), (outside[1], "ab")):
            choice = (await gateway.explain(tool="whoami", tenant=tenant))["choice"]
            assert choice["member"] in choices
        assert await gateway.metric("mcpgroup_canary_split_ratio") == 0.1
        canaried = await gateway.metric("mcpgroup_selections_total", member="new", reason="canary")
        assert canaried == 18 + 1
        assert await gateway.metric("mcpgroup_selections_total", reason="pinned") == 12


async def test_a_failing_canary_falls_back_to_the_stable_members_and_both_are_recorded(
    control: Control,
) -> None:
    control.set(fail_calls=True)
    members = [faulty("a"), faulty("b"), faulty("new", *control.flags)]
    (tenant,) = tenants(1, inside=True)
    canary = {"member": "new", "splitPercent": 10}
    async with Gateway(members=members, canary=canary, name=GROUP, **SPEC) as gateway:
        await gateway.all_ready()
        assert (await as_tenant(gateway, tenant)).text in ("a", "b")
        assert await gateway.metric("mcpgroup_selections_total", reason="canary") == 1
        assert (
            await gateway.metric("mcpgroup_attempts_total", member="new", outcome="member_failed")
            == 1
        )
        assert await gateway.metric("mcpgroup_attempts_total", outcome="ok") == 1
        assert await gateway.metric("mcpgroup_requests_total", outcome="ok") == 1
        assert await gateway.metric("mcpgroup_failovers_total") == 1


async def test_while_the_canary_is_out_its_tenants_are_served_by_the_others() -> None:
    (tenant,) = tenants(1, inside=True)
    canary = {"member": "new", "splitPercent": 10}
    async with FaultyHttp("new") as new:
        members = [faulty("a"), faulty("b"), new.spec()]
        async with Gateway(members=members, canary=canary, name=GROUP, **SPEC) as gateway:
            await gateway.all_ready()
            assert (await as_tenant(gateway, tenant)).text == "new"
            await new.stop()
            await gateway.wait_for(lambda s: not member_of(s, "new")["inRotation"])
            served = Counter([(await as_tenant(gateway, tenant)).text for _ in range(6)])
            assert served == {"a": 3, "b": 3}
            assert await gateway.metric("mcpgroup_selections_total", reason="canary_fallback") == 6
            status = await gateway.status()
            assert status["state"] == "Healthy"
            assert status["available"]
            await new.start()
            await gateway.all_ready()
            assert (await as_tenant(gateway, tenant)).text == "new"


async def test_the_canary_serves_others_only_when_no_stable_member_is_left() -> None:
    (outside,) = tenants(1, inside=False)
    canary = {"member": "new", "splitPercent": 10}
    async with FaultyHttp("a") as stable:
        members = [stable.spec(), faulty("new")]
        async with Gateway(members=members, canary=canary, name=GROUP, **SPEC) as gateway:
            await gateway.all_ready()
            for _ in range(5):
                assert (await as_tenant(gateway, outside)).text == "a"
            await stable.stop()
            await gateway.wait_for(lambda s: not member_of(s, "a")["inRotation"])
            assert (await as_tenant(gateway, outside)).text == "new"
            await stable.start()
            await gateway.all_ready()
            calls = [as_tenant(gateway, outside) for _ in range(5)]
            assert {reply.text for reply in await asyncio.gather(*calls)} == {"a"}
