"""The API server and the models agree on every manifest, and kubectl shows what people look for."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest
from pydantic import ValidationError
from tests.controlplane.api import ApiError
from tests.controlplane.mutations import mutations
from tests.unit.api.cases import ACCEPTED, REFUSED_IN_FILES, REJECTED, Case
from tests.unit.api.structural import schemas

from mcpgroup_api import McpServerGroup, warnings
from mcpgroup_api.crd import definition
from mcpgroup_gateway.manifest import load

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tests.controlplane.api import Api
    from tests.controlplane.cluster import Cluster

GROUPS: Final = "mcpservergroups"
EVERY_FIELD: Final = next(case for case in ACCEPTED if case.name == "every field of the spec")
AT_ONCE: Final = 8
TIME: Final = "2026-11-30T12:00:00Z"

_T = TypeVar("_T")


async def tried(api: Api, manifest: dict[str, Any]) -> dict[str, Any]:
    """What the API server would make of it; raises `ApiError` when it refuses."""
    return await api.create(GROUPS, manifest, dryRun="All", fieldValidation="Strict")


async def applied(api: Api, manifest: dict[str, Any]) -> dict[str, Any]:
    """The same by server-side apply, which merges lists by their keys."""
    params = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "test"}
    name = manifest["metadata"]["name"]
    return await api.patch(GROUPS, name, manifest, kind="apply", **params)


async def each(things: Iterable[_T], act: Callable[[_T], Awaitable[str | None]]) -> list[str]:
    """What `act` has to say, some of it at once."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(thing: _T) -> str | None:
        async with limit:
            return await act(thing)

    return [said for said in await asyncio.gather(*map(one, things)) if said]


def in_models(manifest: dict[str, Any]) -> McpServerGroup | None:
    try:
        return McpServerGroup.model_validate(manifest)
    except ValidationError:
        return None


@pytest.mark.parametrize("write", [tried, applied])
async def test_what_the_models_accept_the_api_server_stores_as_the_same_group(
    api: Api, write: Callable[[Api, dict[str, Any]], Awaitable[dict[str, Any]]]
) -> None:
    async def act(case: Case) -> str | None:
        try:
            stored = await write(api, case.data())
        except ApiError as error:
            return f"{case.name}: {error}"
        written, kept = (McpServerGroup.model_validate(each) for each in (case.data(), stored))
        if kept.spec != written.spec:
            return f"{case.name}: is stored as another group"
        told = warnings(kept) == warnings(written)
        return None if told else f"{case.name}: has other warnings once it was stored"

    assert await each(ACCEPTED, act) == []


async def test_what_the_models_reject_the_api_server_rejects(api: Api) -> None:
    async def act(case: Case) -> str | None:
        try:
            await tried(api, case.data())
        except ApiError as error:
            return None if error.code in (400, 422) else f"{case.name}: {error}"
        return case.name

    assert len(ACCEPTED + REJECTED) > 300
    assert await each(REJECTED, act) == []


async def test_server_side_apply_rejects_it_too(api: Api) -> None:
    """Names in paths are another matter."""

    async def act(case: Case) -> str | None:
        try:
            await applied(api, case.data())
        except ApiError as error:
            return None if error.code in (400, 422, 500) else f"{case.name}: {error}"
        return case.name

    assert await each([case for case in REJECTED if not case.manifest], act) == []


async def test_every_rule_is_met_by_an_accepted_row_and_named_by_a_rejected_one(api: Api) -> None:
    rules: dict[str, set[str]] = {}
    for place, schema in schemas(_schema()):
        for rule in schema.get("x-kubernetes-validations", []):
            rules.setdefault(rule["message"], set()).add(place)
    met = {place for case in ACCEPTED for place in _places(case.data(), "")}
    named: set[str] = set()

    async def act(case: Case) -> None:
        try:
            await tried(api, case.data())
        except ApiError as error:
            for cause in error.details.get("causes", []):
                named.update(rule for rule in rules if cause["message"].endswith(rule))

    await each(REJECTED, act)
    assert len(rules) > 30
    assert [rule for rule in rules if rule not in named] == []
    assert [rule for rule, places in rules.items() if not places & met] == []


def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _places(value: Any, place: str) -> set[str]:
    """The places of all schemas that a value meets."""
    found = {place}
    if isinstance(value, dict):
        for key, inner in value.items():
            found |= _places(inner, f"{place}.{key}")
    if isinstance(value, list):
        for inner in value:
            found |= _places(inner, f"{place}[]")
    return found


async def test_what_is_wrong_is_named_by_its_place(api: Api) -> None:
    """A few of those that people meet first."""
    for name, field, text in [
        ("a member without a source", "spec.members[0]", "exactly one source"),
        ("minHealthy over the members", "spec.minHealthy", "at most the number of members"),
        ("a canary that is no member", "spec.canary.member", "the name of a member"),
        ("URL 'example.com/mcp'", "spec.members[0].http.url", "must be an http or https URL"),
        ("group name 'a.b'", "<nil>", "metadata.name must be a lower-case letter"),
    ]:
        case = next(case for case in REJECTED if case.name == name)
        with pytest.raises(ApiError) as caught:
            await tried(api, case.data())
        causes = [(c["field"], c["message"]) for c in caught.value.details["causes"]]
        assert any(field == at and text in said for at, said in causes), causes


async def test_what_only_files_refuse_becomes_a_group_that_the_models_accept(api: Api) -> None:
    for case in REFUSED_IN_FILES:
        assert in_models(case.data()) is None or None in case.spec.values()
        assert in_models(await tried(api, case.data())) is not None


@pytest.mark.parametrize("seed", range(4))
async def test_both_agree_on_manifests_that_nobody_thought_of(api: Api, seed: int) -> None:
    """Not on numbers such as 1.0, which an API server reads as whole."""
    good = [case.data() for case in ACCEPTED if "longest" not in case.name]

    async def act(manifest: dict[str, Any]) -> str | None:
        group = in_models(manifest)
        try:
            stored = await tried(api, manifest)
        except ApiError as error:
            return None if group is None else f"only the models take {manifest['spec']}: {error}"
        if group is None:
            return f"only the API server takes {json.dumps(manifest['spec'])}"
        again = in_models(stored)
        return None if again and again.spec == group.spec else f"differs: {manifest['spec']}"

    assert await each(mutations(good, 250, seed), act) == []


async def test_what_kubectl_gets_is_a_manifest(cluster: Cluster, api: Api, namespace: str) -> None:
    await api.create(GROUPS, EVERY_FIELD.data())
    await api.patch(GROUPS, "time", {"status": status(2)}, subresource="status")

    got = await cluster.kubectl("get", "mcpsg", "time", "-o", "yaml", namespace=namespace)

    group = load(got.out.encode(), name="time.yaml").group
    assert group.spec == McpServerGroup.model_validate(EVERY_FIELD.data()).spec


async def test_a_group_whose_name_was_made_is_a_manifest_too(api: Api) -> None:
    made = await api.create(GROUPS, {**Case("").data(), "metadata": {"generateName": "time-"}})

    assert McpServerGroup.model_validate(made).metadata.name.startswith("time-")


async def test_a_group_without_replicas_has_two_and_can_be_scaled(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    await api.apply(GROUPS, Case("").data(), manager="author")
    await api.patch(GROUPS, "time", {"status": status(2)}, subresource="status")

    scale = await api.get(f"{GROUPS}", "time/scale")
    assert (scale["spec"], scale["status"]) == (
        {"replicas": 2},
        {"replicas": 2, "selector": "app.kubernetes.io/instance=time"},
    )

    await cluster.kubectl("scale", "mcpsg/time", "--replicas=5", namespace=namespace)
    await api.apply(GROUPS, Case("", {"description": "changed"}).data(), manager="author")
    assert (await api.get(GROUPS, "time"))["spec"]["replicas"] == 5


async def test_two_authors_each_own_the_members_that_they_wrote(api: Api) -> None:
    group = Case("").data()
    other = {"members": [{"name": "theirs", "stdio": {"command": ["server"]}}]}

    await api.apply(GROUPS, group, manager="one")
    await api.apply(GROUPS, {**group, "spec": other}, manager="two")
    fewer = {**group["spec"], "members": group["spec"]["members"][:1]}
    await api.apply(GROUPS, {**group, "spec": fewer}, manager="one")

    members = (await api.get(GROUPS, "time"))["spec"]["members"]
    assert [member["name"] for member in members] == ["a", "theirs"]


async def test_the_columns_say_how_a_group_is(cluster: Cluster, api: Api, namespace: str) -> None:
    await api.create(GROUPS, Case("").data())
    await api.patch(GROUPS, "time", {"status": status(1)}, subresource="status")

    shown = await cluster.kubectl("get", "mcpgroup", namespace=namespace)

    head, row = (re.split(r"\s{2,}", line.strip()) for line in shown.out.strip().splitlines())
    assert head == ["NAME", "READY", "STATE", "MEMBERS", "REPLICAS", "AGREE", "ENDPOINT", "AGE"]
    assert row[:-1] == [
        "time",
        "True",
        "Partial",
        "2/3",
        "1",
        "Unknown",
        "http://time.tools.svc/mcp",
    ]


def status(replicas: int, conditions: int = 2) -> dict[str, Any]:
    kinds = ["Ready", "ReplicasAgree", *(f"Other{n}" for n in range(conditions - 2))]
    return {
        "observedGeneration": 3,
        "replicas": replicas,
        "selector": "app.kubernetes.io/instance=time",
        "endpoint": "http://time.tools.svc/mcp",
        "configHash": "sha256:" + "0" * 64,
        "state": "Partial",
        "members": "2/3",
        "gateways": [
            {
                "pod": f"time-{n}",
                "ready": True,
                "configHash": "",
                "state": "Unknown",
                "circuitOpen": False,
                "inRotation": 2,
                "healthy": 2,
                "selectable": 1,
                "since": TIME,
            }
            for n in range(replicas)
        ],
        "conditions": [
            {
                "type": kind,
                "status": "True" if kind == "Ready" else "Unknown",
                "observedGeneration": 3,
                "lastTransitionTime": TIME,
                "reason": "AsExpected",
                "message": "x" * 1000,
            }
            for kind in kinds
        ],
    }


async def test_a_status_of_many_rows_is_taken_and_reads_as_it_was_written(api: Api) -> None:
    written = status(128, 16)
    await api.create(GROUPS, Case("").data())

    stored = await api.patch(
        GROUPS, "time", {"status": written}, subresource="status", fieldValidation="Strict"
    )

    assert stored["status"] == written


@pytest.mark.parametrize(
    "fault",
    [
        {"gateways": [{"ready": True}]},
        {"gateways": [{"pod": "a"}, {"pod": "a"}]},
        {"conditions": [{"type": "Ready"}]},
        {"conditions": status(0, 17)["conditions"]},
        {"state": "Broken"},
        {"members": "two"},
        {"configHash": "abc"},
        {"unknown": 1},
    ],
    ids=lambda fault: next(iter(fault)),
)
async def test_a_status_that_means_nothing_is_refused(api: Api, fault: dict[str, Any]) -> None:
    await api.create(GROUPS, Case("").data())

    with pytest.raises(ApiError) as caught:
        await api.patch(
            GROUPS, "time", {"status": fault}, subresource="status", fieldValidation="Strict"
        )
    assert caught.value.code in (400, 422)
