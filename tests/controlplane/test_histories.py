"""Whatever happened to some groups, in whatever order: what is there in the end is what they ask
for, and then it is quiet. Every history can be had again by the seed in the name of the test."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.controlplane.api import ApiError
from tests.controlplane.groups import condition, group, member, says

from mcpgroup_api import McpServerGroup
from mcpgroup_operator import names
from mcpgroup_operator.children import ChildSettings, desired
from mcpgroup_operator.kinds import OWNED_AND_WATCHED, POD, POD_MONITOR
from mcpgroup_operator.lacking import lacks

if TYPE_CHECKING:
    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster
    from tests.controlplane.operating import Operator

GROUPS = "mcpservergroups"
NAMES: Final = ("a", "a-peers", "b")
STEPS: Final = 40
_PLURALS: Final = tuple(kind.plural for kind in OWNED_AND_WATCHED if kind is not POD)
_EDITS: Final[dict[str, dict[str, Any]]] = {
    "configmaps": {"data": {"group.yaml": "spec: {}"}},
    "services": {"spec": {"sessionAffinity": "ClientIP"}},
    "serviceaccounts": {"metadata": {"ownerReferences": []}},
    "poddisruptionbudgets": {"spec": {"maxUnavailable": None, "minAvailable": 1}},
    "networkpolicies": {"metadata": {"labels": {"mcpgroup.dev/component": "x"}}},
    "deployments": {"spec": {"replicas": 9, "template": {"spec": {"hostname": "x"}}}},
}


class History:
    """Does something to groups, `seed` says what."""

    def __init__(self, cluster: Cluster, api: Api, operator: Operator, seed: int) -> None:
        self._cluster = cluster
        self._api = api
        self._operator = operator
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self.steps: list[str] = []

    async def run(self) -> None:
        steps = {
            self.apply: 10,
            self.delete: 4,
            self.delete_a_child: 4,
            self.edit_a_child: 4,
            self.restart: 1,
            self.rest: 3,
        }
        for _ in range(STEPS):
            (step,) = self._random.choices(list(steps), weights=list(steps.values()))
            name = self._random.choice(NAMES)
            self.steps.append(f"{step.__name__} {name}")
            try:
                await step(name)
            except ApiError as error:
                if error.code not in (404, 409):  # gone, or being deleted, or changed meanwhile
                    raise

    async def apply(self, name: str) -> None:
        chosen = self._random.choice
        spec: dict[str, Any] = {
            "members": [member(chosen(("one", "two", "three")))],
            "replicas": chosen((0, 1, 2)),
            "networkPolicy": {"enabled": chosen((True, False))},
            "service": {"port": chosen((80, 81))},
            "gateway": {"serviceAccountName": "default"} if chosen((True, False)) else {},
        }
        await self._api.apply(GROUPS, group(name, **spec), force=True)

    async def delete(self, name: str) -> None:
        # An orphan of `a-peers` would keep its name from `a` for ever, and should.
        ways = ("Background", "Foreground", "Orphan")[: 2 if name == "a-peers" else 3]
        how = self._random.choice(ways)
        await self._api.delete(GROUPS, name, propagation=how)

    async def delete_a_child(self, name: str) -> None:
        await self._api.delete(self._random.choice((*_PLURALS, "secrets")), self._child(name))

    async def edit_a_child(self, name: str) -> None:
        plural = self._random.choice(_PLURALS)
        await self._api.patch(plural, self._child(name), _EDITS[plural])

    async def restart(self, _: str) -> None:
        await self._operator.kill()
        await self._operator.start()

    async def rest(self, _: str) -> None:
        await asyncio.sleep(self._random.uniform(0, 0.3))

    def _child(self, name: str) -> str:
        return name + self._random.choice(("", "", "-peers", "-keys"))


async def differences(api: Api, settings: ChildSettings) -> list[str]:
    """Between what the groups ask for and what is there."""
    found = []
    for live in await api.list(GROUPS):
        if not says("Accepted", "True")(live):
            told = condition(live, "Accepted")
            found.append(f"{live['metadata']['name']} is not accepted: {told}")
            continue
        model = McpServerGroup.model_validate({k: v for k, v in live.items() if k != "status"})
        name = model.metadata.name
        config = await api.find("configmaps", name)
        keys = await api.find("secrets", names.keys_secret(name))
        wanted = desired(
            model, settings, config_map=config, keys=keys, new_token=lambda: "none" * 8
        )
        for child in wanted.desired:
            there = await api.find(child.kind.plural, child.name)
            missing = ["all"] if there is None else lacks(child.manifest, there)
            if child.kind is not POD_MONITOR and missing:
                found.append(f"{child.kind.plural} {child.name} lacks {missing}")
        for unwanted in wanted.unwanted:
            if unwanted.kind is POD_MONITOR:
                continue
            there = await api.find(unwanted.kind.plural, unwanted.name)
            if there is not None and there["metadata"].get("ownerReferences"):
                found.append(f"{unwanted.kind.plural} {unwanted.name} is there")
    return found


async def settled(api: Api, settings: ChildSettings, *, within: float) -> None:
    left: list[str] = []
    try:
        async with asyncio.timeout(within):
            while left := await differences(api, settings):  # noqa: ASYNC110 - of many kinds
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"after {within} s: {left}") from None


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_history_ends_in_what_the_groups_ask_for(
    cluster: Cluster, api: Api, namespace: str, operator: Operator, seed: int
) -> None:
    audit = cluster.audit_log()
    history = History(cluster, api, operator, seed)
    settings = ChildSettings(f"{namespace}.mcpgroup", namespace, "mcpgroup-gateway:0.1.0")
    await history.run()
    # `a-peers` has the name of a child of `a`: both cannot be.
    if await api.find(GROUPS, "a-peers") is not None:
        await api.delete(GROUPS, "a-peers")
        await api.wait_gone(GROUPS, "a-peers", within=60)
    for name in ("a", "b"):
        await history.apply(name)
        history.steps.append(f"apply {name}")
    print("\n".join(history.steps))
    await settled(api, settings, within=90)
    await operator.metric_reaches("leader", 1)
    position = await audit.now(api)
    await asyncio.sleep(2)
    entries = await audit.since(position, api, operator.user)
    quiet = [str(e) for e in entries if e.is_write and e.resource not in ("leases", "events")]
    assert [e for e in quiet if f"{GROUPS}/status" not in e] == []
