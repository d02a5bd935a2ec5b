"""The proxy passes on what it is not told to break, and breaks what it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.controlplane import kinds
from tests.controlplane.api import Api, ApiError
from tests.controlplane.faults import Answer, Asked, Cut, Delay, ErrorEvent, Hang, Silence
from tests.controlplane.proxy import FaultyApi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.controlplane.cluster import Cluster

RULES = [{"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["*"]}]


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture
async def faulty(cluster: Cluster) -> AsyncIterator[FaultyApi]:
    async with FaultyApi(cluster.access) as faulty:
        yield faulty


@pytest.fixture
async def client(cluster: Cluster, namespace: str, faulty: FaultyApi) -> AsyncIterator[Api]:
    """Comes through the proxy."""
    await cluster.grant("tester", namespace, RULES)
    access = faulty.via(await cluster.service_account("tester", namespace))
    async with Api(access, namespace) as client:
        yield client


@contextlib.asynccontextmanager
async def watching(client: Api) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The events of the namespace's config maps from now on."""
    path = kinds.path("configmaps", client.namespace)
    version = (await client.request("GET", path))["metadata"]["resourceVersion"]
    async with contextlib.aclosing(client.events(path, version)) as events:
        yield events


@pytest.mark.parametrize(
    ("method", "path", "query", "asked"),
    [
        ("GET", "/readyz", {}, ("get", "", "", "", "")),
        ("GET", "/api/v1/namespaces", {}, ("list", "namespaces", "", "", "")),
        ("GET", "/api/v1/namespaces/a", {}, ("get", "namespaces", "", "", "a")),
        ("POST", "/api/v1/namespaces/a/pods", {}, ("create", "pods", "", "a", "")),
        ("PATCH", "/api/v1/namespaces/a/pods/b/status", {}, ("patch", "pods", "status", "a", "b")),
        ("DELETE", "/apis/apps/v1/namespaces/a/deployments", {},
         ("deletecollection", "deployments", "", "a", "")),
        ("GET", "/apis/apps/v1/deployments", {"watch": "true"},
         ("watch", "deployments", "", "", "")),
    ],
)  # fmt: skip
def test_a_path_tells_what_was_asked(
    method: str, path: str, query: dict[str, str], asked: tuple[str, ...]
) -> None:
    found = Asked.of(method, path, query)
    assert asked == (
        found.verb,
        found.resource,
        found.subresource,
        found.namespace,
        found.name,
    )


async def test_what_is_not_broken_passes(client: Api, faulty: FaultyApi) -> None:
    await client.create("configmaps", config_map("a", step="1"))
    await client.apply("configmaps", config_map("a", other="1"))
    await client.patch("configmaps", "a", {"data": {"step": "2"}})
    await client.wait_for("configmaps", "a", lambda found: found["data"]["step"] == "2")
    await client.delete("configmaps", "a")
    await client.wait_gone("configmaps", "a")
    with pytest.raises(ApiError, match="NotFound"):
        await client.get("configmaps", "a")
    assert faulty.count("patch", "configmaps", 200) == 2
    assert faulty.count("get", "configmaps", 404) == 1


async def test_a_watch_tells_changes_as_they_happen(client: Api, api: Api) -> None:
    async with watching(client) as events:
        for step in ("1", "2"):
            await api.apply("configmaps", config_map("a", step=step), force=True)
            async with asyncio.timeout(5):
                event = await anext(events)
                while event["object"]["metadata"]["name"] != "a":
                    event = await anext(events)
            assert event["object"]["data"] == {"step": step}


async def test_a_large_object_passes(client: Api) -> None:
    body = config_map("a", large="x" * 900_000)
    async with watching(client) as events:
        created = await client.create("configmaps", body)
        async with asyncio.timeout(5):
            event = await anext(events)
            while event["object"]["metadata"]["name"] != "a":
                event = await anext(events)
    assert created["data"] == event["object"]["data"] == body["data"]


@pytest.mark.parametrize("code", [403, 409, 410, 429, 500, 503])
async def test_the_proxy_answers_as_an_api_server(
    client: Api, faulty: FaultyApi, code: int
) -> None:
    fault = await faulty.inject(Answer(code), verb="create", resource="configmaps", times=1)
    with pytest.raises(ApiError) as refused:
        await client.create("configmaps", config_map("a"))
    assert refused.value.code == code
    assert refused.value.reason
    assert fault.hits == 1
    await client.create("configmaps", config_map("a"))


async def test_too_many_requests_says_when_to_come_back(client: Api, faulty: FaultyApi) -> None:
    await faulty.inject(Answer(429, retry_after=7), resource="configmaps")
    with pytest.raises(ApiError) as refused:
        await client.list("configmaps")
    assert refused.value.details["retryAfterSeconds"] == 7


async def test_one_kind_is_refused_until_that_is_lifted(client: Api, faulty: FaultyApi) -> None:
    fault = await faulty.inject(Answer(403), resource="configmaps")
    for _ in range(3):
        with pytest.raises(ApiError, match="Forbidden"):
            await client.list("configmaps")
    await client.list("pods")
    fault.lift()
    await client.list("configmaps")


@pytest.mark.parametrize("reached", [True, False])
async def test_a_connection_is_cut_before_or_after_the_server_acted(
    client: Api, api: Api, faulty: FaultyApi, reached: bool
) -> None:
    await faulty.inject(Cut(reached=reached), verb="create", times=1)
    with pytest.raises(aiohttp.ClientError):
        await client.create("configmaps", config_map("a"))
    assert (await api.find("configmaps", "a") is not None) is reached
    assert faulty.answered[-1].asked.verb == "create"


async def test_an_answer_is_late(client: Api, faulty: FaultyApi) -> None:
    await faulty.inject(Delay(0.3), verb="list", times=1)
    begin = time.monotonic()
    await client.list("configmaps")
    assert time.monotonic() - begin >= 0.3


async def test_an_answer_never_comes(client: Api, faulty: FaultyApi) -> None:
    fault = await faulty.inject(Hang(), verb="list", times=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await client.list("configmaps")
    assert fault.hits == 1


async def test_a_watch_goes_silent_and_stays_open(client: Api, api: Api, faulty: FaultyApi) -> None:
    await api.wait_for("configmaps", "kube-root-ca.crt", lambda _: True)
    async with watching(client) as events:
        nothing = asyncio.ensure_future(anext(events))
        await faulty.watched("configmaps")
        fault = await faulty.inject(Silence(), resource="configmaps")
        await api.create("configmaps", config_map("a"))
        done, _ = await asyncio.wait({nothing}, timeout=0.3)
        assert not done
        assert faulty.open_watches("configmaps") == 1
        fault.lift()
        nothing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await nothing
    await client.wait_for("configmaps", "a", lambda _: True)


@pytest.mark.parametrize("code", [410, 500])
async def test_an_error_event_ends_a_watch(
    client: Api, api: Api, faulty: FaultyApi, code: int
) -> None:
    await api.wait_for("configmaps", "kube-root-ca.crt", lambda _: True)
    await faulty.inject(ErrorEvent(code), resource="configmaps", times=1)
    async with watching(client) as events:
        async with asyncio.timeout(5):
            seen = [event async for event in events]
    assert [(e["type"], e["object"]["code"]) for e in seen] == [("ERROR", code)]
    await api.create("configmaps", config_map("a"))
    await client.wait_for("configmaps", "a", lambda _: True)


async def test_open_watches_are_cut(client: Api, api: Api, faulty: FaultyApi) -> None:
    await api.wait_for("configmaps", "kube-root-ca.crt", lambda _: True)
    async with watching(client) as events:
        cut = asyncio.ensure_future(anext(events))
        await faulty.watched("configmaps")
        assert await faulty.cut_watches("configmaps") == 1
        with pytest.raises(aiohttp.ClientError):
            await cut
