"""Hundreds of groups at once, and what the operator costs with them."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.controlplane.api import Api
    from tests.controlplane.operating import Operator

GROUPS: Final = "mcpservergroups"
_AT_ONCE: Final = 16
_LOOK_SECONDS: Final = 0.3


def crowd_group(number: int, **spec: Any) -> dict[str, Any]:
    """One with three members, a header from a Secret, and some policy: an ordinary one."""
    header = {"valueFrom": {"secretKeyRef": {"name": "tokens", "key": "token"}}}
    members: list[dict[str, Any]] = [
        {"name": name, "http": {"url": f"http://{name}.invalid/mcp"}, "weight": 1}
        for name in ("one", "two", "three")
    ]
    members[0]["http"]["headers"] = [{"name": "X-Token", **header}]
    return {
        "apiVersion": "mcpgroup.dev/v1alpha1",
        "kind": "McpServerGroup",
        "metadata": {"name": name_of(number)},
        "spec": {"members": members, "replicas": 1, **spec},
    }


def name_of(number: int) -> str:
    return f"group-{number}"


async def create(api: Api, count: int) -> None:
    """Groups 0 to `count` - 1, some at a time."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        async with slots:
            await api.create(GROUPS, crowd_group(number))

    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(one(number))


async def is_settled(api: Api, count: int) -> bool:
    """Whether every group's status speaks of its newest generation."""
    groups = await api.list(GROUPS)
    return len(groups) == count and all(
        g.get("status", {}).get("observedGeneration") == g["metadata"]["generation"] for g in groups
    )


async def settled(api: Api, operator: Operator, count: int, within: float) -> float:
    """Wait until the operator has looked at all groups, every status is of the newest generation
    and nothing is left to do; the seconds that took from this call."""
    began = time.monotonic()
    async with asyncio.timeout(within):
        while True:
            at = time.monotonic()
            looked = await operator.metric("reconcile_operations_total") >= count
            if looked and await is_idle(operator) and await is_settled(api, count):
                return at - began
            await asyncio.sleep(_LOOK_SECONDS)


async def is_idle(operator: Operator) -> bool:
    """Whether nobody waits in its queue."""
    samples = await operator.metrics()
    queue = ("workqueue_depth", "workqueue_unfinished_work_seconds")
    return not any(sum(samples[f"mcpgroup_operator_{name}"].values()) for name in queue)


async def edit(api: Api, count: int, *, rate: float, seconds: float) -> set[str]:
    """Change the file of random groups, so many a second; the groups that were changed.

    Few edits are under way at once: an API server that is slow is edited more slowly.
    """
    changed: set[str] = set()
    begin = time.monotonic()
    choose = random.Random(1)  # noqa: S311 - no secret
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str, threshold: int) -> None:
        try:
            body = {"spec": {"circuitBreaker": {"failureThreshold": threshold}}}
            await api.patch(GROUPS, name, body)
        finally:
            slots.release()

    async with asyncio.TaskGroup() as tasks:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, begin + number / rate - time.monotonic()))
            name = name_of(choose.randrange(count))
            changed.add(name)
            await slots.acquire()
            tasks.create_task(one(name, number % 90 + 2))
    return changed


@dataclass(frozen=True)
class Figures:
    """What a process of the operator has cost so far."""

    requests: float
    """To the API server, of whatever kind."""
    megabytes: float
    processor_seconds: float

    @classmethod
    async def of(cls, operator: Operator) -> Figures:
        return cls(
            requests=await operator.metric("api_requests_total"),
            megabytes=operator.memory() / 2**20,
            processor_seconds=operator.processor_seconds(),
        )
