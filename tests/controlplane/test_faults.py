"""An API server that fails in every way: the operator recovers by itself and says so in metrics."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.controlplane.faults import Answer, Cut, Delay, ErrorEvent, Silence
from tests.controlplane.operating import Operator
from tests.controlplane.proxy import FaultyApi
from tests.controlplane.test_operating import group, is_true

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster
    from tests.controlplane.faults import Fault

GROUPS = "mcpservergroups"
INACTIVITY = 1.5
SOON = 30.0


@pytest.fixture
async def faulty(cluster: Cluster) -> AsyncIterator[FaultyApi]:
    async with FaultyApi(cluster.access) as faulty:
        yield faulty


@pytest.fixture
async def operator(cluster: Cluster, namespace: str, faulty: FaultyApi) -> AsyncIterator[Operator]:
    """Leads, and reaches the API server by way of the proxy."""
    async with Operator(cluster, namespace, through=faulty) as operator:
        await operator.metric_reaches("leader", 1)
        yield operator


async def settled(api: Api, name: str, within: float = SOON) -> None:
    """Everything of a group was applied and its status says so."""
    await api.wait_for(
        GROUPS,
        name,
        lambda g: (
            is_true(g, "Accepted")
            and g["status"]["observedGeneration"] == g["metadata"]["generation"]
        ),
        within=within,
    )
    for plural in ("configmaps", "deployments", "services", "poddisruptionbudgets"):
        assert await api.find(plural, name) is not None


WRITES: dict[str, tuple[Answer | Cut, dict[str, str], str]] = {
    "409": (Answer(409), {"code": "409"}, "conflict"),
    "429": (Answer(429, retry_after=1), {"code": "429"}, "busy"),
    "500": (Answer(500), {"code": "500"}, "server_error"),
    "503": (Answer(503), {"code": "503"}, "busy"),
    "cut": (Cut(), {"code": "error"}, "unreachable"),
    "cut-late": (Cut(reached=True), {"code": "error"}, "unreachable"),
}


async def test_a_write_that_fails_is_made_again(
    api: Api, faulty: FaultyApi, operator: Operator
) -> None:
    for kind, (action, labels, reason) in WRITES.items():
        name = f"after-{kind}"
        codes = await operator.metric("api_requests_total", **labels)
        errors = await operator.metric("reconcile_errors_total", reason=reason)
        fault = await faulty.inject(action, verb="patch", resource="services", times=2)
        await api.create(GROUPS, group(name))
        await settled(api, name)
        assert fault.hits == 2
        assert await operator.metric("api_requests_total", **labels) >= codes + 2
        assert await operator.metric("reconcile_errors_total", reason=reason) >= errors + 1


async def test_retry_after_is_obeyed(api: Api, faulty: FaultyApi, operator: Operator) -> None:
    fault = await faulty.inject(
        Answer(429, retry_after=2), verb="patch", resource="configmaps", times=1
    )
    await api.create(GROUPS, group("a"))
    await fault.happened()
    refused = time.monotonic()
    await settled(api, "a")
    assert time.monotonic() - refused >= 1.9


async def test_a_bad_group_delays_no_good_one(
    api: Api, faulty: FaultyApi, operator: Operator
) -> None:
    for number in range(20):
        # Neither an answer in time nor a good one: each takes its time and fails.
        await faulty.inject(Delay(5), verb="patch", name=f"slow-{number}")
        await faulty.inject(Answer(500), verb="patch", name=f"bad-{number}")
    for number in range(20):
        await api.create(GROUPS, group(f"bad-{number}"))
    for number in range(8):
        await api.create(GROUPS, group(f"slow-{number}"))
    await operator.metric_reaches("reconcile_errors_total", 30, reason="server_error")
    began = time.monotonic()
    await api.create(GROUPS, group("good"))
    await settled(api, "good")
    took = time.monotonic() - began
    print(f"a good group among 28 bad ones took {took:.2f} s")
    assert took < 5


class Watches:
    """What happens behind the back of broken watches is found all the same."""

    def __init__(self, api: Api, faulty: FaultyApi, operator: Operator) -> None:
        self.api = api
        self.faulty = faulty
        self.operator = operator

    async def restarts(self, kind: str) -> float:
        return await self.operator.metric("watch_restarts_total", kind=kind)

    async def prepare(self) -> None:
        for name in ("kept", "gone"):
            await self.api.create(GROUPS, group(name))
            await settled(self.api, name)

    async def change(self) -> None:
        """A child and a group go, a group is edited."""
        await self.api.delete("configmaps", "kept")
        await self.api.delete(GROUPS, "gone")

    async def recovered(self, within: float = SOON) -> float:
        began = time.monotonic()
        await self.api.wait_for("configmaps", "kept", lambda _: True, within=within)
        async with asyncio.timeout(within):
            while await self.operator.metric("group_desired_replicas", group="gone"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        took = time.monotonic() - began
        await self.api.create(GROUPS, group("gone"))
        await settled(self.api, "gone")
        return took


@pytest.fixture
async def watches(api: Api, faulty: FaultyApi, operator: Operator) -> Watches:
    watches = Watches(api, faulty, operator)
    await watches.prepare()
    return watches


@pytest.fixture
async def impatient(
    cluster: Cluster, api: Api, namespace: str, faulty: FaultyApi
) -> AsyncIterator[Watches]:
    """Opens a watch anew when it was silent for `INACTIVITY` seconds."""
    flags = [f"--watch-inactivity-seconds={INACTIVITY}"]
    async with Operator(cluster, namespace, through=faulty, flags=flags) as operator:
        await operator.metric_reaches("leader", 1)
        watches = Watches(api, faulty, operator)
        await watches.prepare()
        yield watches


@contextlib.asynccontextmanager
async def down(watches: Watches, action: Answer) -> AsyncIterator[list[Fault]]:
    """No watch can be opened, and those that are open end."""
    faults = [
        await watches.faulty.inject(action, verb="watch", resource=resource)
        for resource in ("configmaps", GROUPS)
    ]
    for resource in ("configmaps", GROUPS):
        await watches.faulty.cut_watches(resource)
    for fault in faults:
        await fault.happened()
    yield faults
    for fault in faults:
        fault.lift()


async def test_what_goes_while_watches_are_down_is_found(watches: Watches) -> None:
    for code in (410, 500, 503, 429, 403, 404):
        before = await watches.restarts("configmaps")
        failed = await watches.operator.metric("watch_operations_failed_total", kind="configmaps")
        async with down(watches, Answer(code)):
            await watches.change()
        took = await watches.recovered()
        print(f"watches answered {code}: recovered in {took:.2f} s")
        assert await watches.restarts("configmaps") > before
        assert (
            await watches.operator.metric("watch_operations_failed_total", kind="configmaps")
            > failed
        )


async def test_an_error_in_a_stream_costs_no_watch(watches: Watches) -> None:
    for code in (410, 500):
        before = {kind: await watches.restarts(kind) for kind in ("configmaps", GROUPS)}
        for resource in before:
            await watches.faulty.inject(ErrorEvent(code), resource=resource, times=1)
        await watches.change()
        took = await watches.recovered()
        print(f"ERROR {code} in the stream: recovered in {took:.2f} s")
        for kind, count in before.items():
            assert await watches.restarts(kind) > count
    assert "starts again" not in watches.operator.log


async def test_a_silent_watch_is_opened_anew(impatient: Watches) -> None:
    silent = await impatient.faulty.inject(Silence(), resource="configmaps", times=1)
    deaf = await impatient.faulty.inject(Silence(), resource=GROUPS, times=3)
    restarts = await impatient.restarts(GROUPS)
    await impatient.change()
    took = await impatient.recovered()
    print(f"watches silent for up to {3 * INACTIVITY} s: recovered in {took:.2f} s")
    assert (silent.hits, deaf.hits) == (1, 3)
    # The first may have been about to be opened anew.
    assert await impatient.restarts(GROUPS) >= restarts + 2
    assert "starts again" not in impatient.operator.log


async def test_connections_cut_again_and_again_cost_nothing(watches: Watches) -> None:
    process = psutil.Process(watches.operator.pid)
    before = (process.num_threads(), process.num_fds(), process.memory_info().rss)
    for _ in range(20):
        await watches.faulty.cut_watches()
        await asyncio.sleep(0.1)
    await watches.change()
    await watches.recovered()
    threads, files, memory = process.num_threads(), process.num_fds(), process.memory_info().rss
    assert threads <= before[0] + 1
    assert files <= before[1] + 10
    assert memory - before[2] < 20 * 2**20


async def test_a_kind_that_is_forbidden_for_a_while_holds_up_no_other(watches: Watches) -> None:
    resource = "poddisruptionbudgets"
    operator, api = watches.operator, watches.api
    forbidden = await watches.faulty.inject(Answer(403), verb="list|watch", resource=resource)
    assert await watches.faulty.cut_watches(resource) == 1
    await operator.metric_reaches("watch_operations_failed_total", 4, kind=resource)
    assert await operator.metric("watch_last_event_age_seconds", kind=resource) > 0.5
    # Everything else goes on, without its watches being opened anew.
    others = await operator.metric("watch_restarts_total") - await watches.restarts(resource)
    await watches.change()
    took = await watches.recovered()
    print(f"one kind forbidden: a deleted child of another kind is back in {took:.2f} s")
    assert (
        await operator.metric("watch_restarts_total") - await watches.restarts(resource) == others
    )
    old = (await api.get(resource, "kept"))["metadata"]["uid"]
    await api.delete(resource, "kept")
    forbidden.lift()
    await api.wait_for(resource, "kept", lambda b: b["metadata"]["uid"] != old, within=SOON)
    assert "poddisruptionbudgets" in operator.log


async def test_a_kind_that_is_forbidden_at_the_start_is_named_and_waited_for(
    cluster: Cluster, api: Api, namespace: str, faulty: FaultyApi
) -> None:
    message = 'User "operator" cannot list resource "services" in API group ""'
    forbidden = await faulty.inject(
        Answer(403, message=message), verb="list|watch", resource="services"
    )
    await api.create(GROUPS, group("a"))
    async with Operator(cluster, namespace, through=faulty, wait_ready=False) as operator:
        await operator.metric_reaches("list_operations_failed_total", 1, kind="services")
        assert await operator.probe("readyz") == (503, f"not listed yet: services in {namespace}")
        assert await operator.probe("livez") == (200, "ok")
        assert "cannot list resource" in operator.log
        assert await api.find("configmaps", "a") is None, "nothing is decided by halves"
        forbidden.lift()
        await settled(api, "a")


async def test_a_verb_that_is_missing_for_one_kind_is_named_in_the_status(
    api: Api, faulty: FaultyApi, operator: Operator
) -> None:
    message = 'User "operator" cannot patch resource "services" in API group ""'
    forbidden = await faulty.inject(
        Answer(403, message=message), verb="patch|create", resource="services"
    )
    await api.create(GROUPS, group("a"))
    found = await api.wait_for(GROUPS, "a", lambda g: condition(g, "Accepted") is not None)
    accepted = condition(found, "Accepted")
    assert accepted is not None
    assert (accepted["status"], accepted["reason"]) == ("False", "Forbidden")
    assert "cannot patch" in accepted["message"]
    assert await api.find("deployments", "a") is not None, "the others are made all the same"
    forbidden.lift()


def condition(found: dict[str, Any], kind: str) -> dict[str, Any] | None:
    conditions = found.get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == kind), None)
