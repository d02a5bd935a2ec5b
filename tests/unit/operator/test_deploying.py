"""The children of one group when something keeps one of them from being there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from tests.unit.operator.groups import SETTINGS, SMALLEST

from mcpgroup_operator import errors
from mcpgroup_operator.conditions import Reason
from mcpgroup_operator.deploying import Deployed, Deployer
from mcpgroup_operator.kinds import GROUP, POD_MONITOR, SECRET, SERVICE_ACCOUNT
from mcpgroup_operator.metrics import Metrics
from mcpgroup_operator.names import FIELD_MANAGER
from mcpgroup_operator.store import Key, Store

if TYPE_CHECKING:
    from mcpgroup_operator.client import Client
    from mcpgroup_operator.kinds import Kind

KEY = Key("tools", "search")


class Api:
    """Keeps what is applied; `forbidden` kinds may not be read."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.forbidden: set[str] = set()
        self.deleted: list[tuple[str, str]] = []

    async def find(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        if kind.name in self.forbidden:
            raise errors.ForbiddenError(f"get {kind.plural}", 403, f"cannot get {kind.plural}")
        return self.objects.get((kind.name, name))

    async def apply(self, manifest: dict[str, Any], *, force: bool) -> dict[str, Any]:
        uid = f"uid-{manifest['kind']}"
        version = str(len(self.objects) + 10)
        managed = [{"manager": FIELD_MANAGER}]
        metadata = {**manifest["metadata"], "uid": uid, "resourceVersion": version}
        live = {**manifest, "metadata": {**metadata, "managedFields": managed}}
        self.objects[manifest["kind"], manifest["metadata"]["name"]] = live
        return live

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        self.deleted.append((kind.name, name))


def deployed(api: Api, *, pod_monitors: bool = False, **gateway: Any) -> Deployed:
    store = Store()
    group = {
        "apiVersion": GROUP.api_version,
        "kind": GROUP.name,
        "metadata": {
            "namespace": KEY.namespace,
            "name": KEY.name,
            "uid": "uid-of-group",
            "resourceVersion": "1",
            "generation": 1,
        },
        "spec": {**SMALLEST, "gateway": gateway},
    }
    api.objects[GROUP.name, KEY.name] = group
    for (kind, _), item in api.objects.items():
        if kind == SERVICE_ACCOUNT.name:
            store.put(SERVICE_ACCOUNT, item)
    deployer = Deployer(cast("Client", api), store, Metrics("1"), SETTINGS, lambda: 0.0)
    deployer.serves_pod_monitors = pod_monitors
    return asyncio.run(deployer.deploy(KEY, group))


def test_without_the_right_to_read_the_keys_all_other_children_are_there() -> None:
    api = Api()
    api.forbidden = {SECRET.name}
    result = deployed(api)
    assert (result.accepted.status, result.accepted.reason) == ("False", Reason.FORBIDDEN)
    assert "cannot get secrets" in result.accepted.message
    assert result.blocked
    kinds = {kind for kind, _ in api.objects}
    assert {"Deployment", "ConfigMap", "Service"} <= kinds
    assert "Secret" not in kinds


def test_without_the_right_to_read_what_is_not_wanted_the_status_says_so() -> None:
    api = Api()
    api.forbidden = {POD_MONITOR.name}
    result = deployed(api, pod_monitors=True)
    assert (result.accepted.status, result.accepted.reason) == ("False", Reason.FORBIDDEN)
    assert ("Deployment", KEY.name) in api.objects


def test_an_account_that_is_no_longer_asked_for_is_deleted() -> None:
    api = Api()
    deployed(api)
    deployed(api, serviceAccountName="of-the-team")
    assert api.deleted == [("ServiceAccount", KEY.name)]


def test_an_account_of_the_operators_that_a_spec_names_stays() -> None:
    """Pods could not be made any more: the account that they are to run under would be gone."""
    api = Api()
    deployed(api)
    result = deployed(api, serviceAccountName=KEY.name)
    assert result.accepted.status == "True"
    assert api.deleted == []
