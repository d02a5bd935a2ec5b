"""What cannot be done for a group is told in its status, costs nobody else anything, and is done
once it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.controlplane.groups import NAME, children, condition, group, member, says

if TYPE_CHECKING:
    from tests.controlplane.api import Api

GROUPS = "mcpservergroups"

pytestmark = pytest.mark.usefixtures("operator")


def long_members(letters: int) -> list[dict[str, Any]]:
    """64 members with so many letters in a header of each."""
    found = []
    for number in range(64):
        one = member(f"m{number}")
        one["http"]["headers"] = [
            {"name": f"X-{part}", "value": "x" * (letters // 4)} for part in range(4)
        ]
        found.append(one)
    return found


async def test_with_a_file_that_is_too_large_the_last_good_one_stays(api: Api) -> None:
    await api.create(GROUPS, group())
    before = (await children(api))["configmaps", NAME]
    await api.patch(GROUPS, NAME, {"spec": {"replicas": 1, "members": long_members(15_000)}})
    refused = await api.wait_for(
        GROUPS, NAME, says("Accepted", "False", "ConfigTooLarge"), within=20
    )
    assert "921600 are allowed" in condition(refused, "Accepted")["message"]
    assert condition(refused, "Ready")["status"] == "False"
    after = await api.get("configmaps", NAME)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    await api.patch(GROUPS, NAME, {"spec": {"members": long_members(1_000)}})
    await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=20)
    await api.wait_for("configmaps", NAME, lambda found: "m63" in found["data"]["group.yaml"])


async def test_a_quota_that_is_full_is_told_until_there_is_room(api: Api) -> None:
    hard = {"hard": {"count/services": "1", "pods": "1"}}
    await api.create("resourcequotas", {"metadata": {"name": "q"}, "spec": hard})
    await api.wait_for("resourcequotas", "q", lambda q: q.get("status", {}).get("hard"))
    await api.create(GROUPS, group())
    refused = await api.wait_for(GROUPS, NAME, says("Accepted", "False"), within=20)
    assert "exceeded quota: q" in condition(refused, "Accepted")["message"]
    await api.wait_for("deployments", NAME, lambda _: True)
    hard = {"hard": {"count/services": "9", "pods": "9"}}
    await api.patch("resourcequotas", "q", {"spec": hard})
    await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=60)
    await children(api)


async def test_a_group_that_cannot_be_delays_no_other(api: Api) -> None:
    await api.create("services", {"metadata": {"name": "bad"}, "spec": {"ports": [{"port": 1}]}})
    await api.create(GROUPS, group("bad"))
    await api.wait_for(GROUPS, "bad", says("Accepted", "False"), within=20)
    await api.create(GROUPS, group())
    await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=10)
