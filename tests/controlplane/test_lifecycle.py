"""What becomes of a group's children when it is applied, edited and deleted, and when others
touch them."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.controlplane.groups import NAME, children, condition, group, member, places, says

if TYPE_CHECKING:
    from tests.controlplane.api import Api
    from tests.controlplane.operating import Operator

GROUPS = "mcpservergroups"

pytestmark = pytest.mark.usefixtures("operator")


async def pods_of(api: Api, count: int = 2) -> dict[str, str]:
    """Name and uid of each pod, once there are so many."""
    found = await api.wait_until("pods", lambda pods: len(pods) == count)
    return {name: pod["metadata"]["uid"] for name, pod in found.items()}


async def test_applying_a_group_yields_its_children_within_a_second(api: Api) -> None:
    await api.create(GROUPS, group("warm"))
    await api.wait_for("deployments", "warm", lambda _: True)
    began = time.monotonic()
    created = await api.create(GROUPS, group())
    found = await children(api)
    took = time.monotonic() - began
    print(f"all {len(found)} children {took:.2f} s after the group was applied")
    assert took < 5
    for child in found.values():
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (created["metadata"]["uid"], True)


async def test_the_first_status_says_what_is_known(api: Api) -> None:
    await api.create(GROUPS, group())
    found = await api.wait_for(GROUPS, NAME, says("Accepted", "True"))
    assert condition(found, "Ready")["status"] == "False"
    assert found["status"]["state"] == "Inactive"
    assert found["status"]["members"] == "0/0"
    assert found["status"]["endpoint"] == f"http://{NAME}.{api.namespace}.svc/mcp"


async def test_a_renamed_member_changes_the_file_and_no_pod(api: Api) -> None:
    await api.create(GROUPS, group())
    before = await children(api)
    pods = await pods_of(api)
    await api.patch(GROUPS, NAME, {"spec": {"members": [member("other")]}})
    changed = await api.wait_for(
        "configmaps", NAME, lambda found: "other.invalid" in found["data"]["group.yaml"]
    )
    assert "one" not in changed["data"]["group.yaml"]
    assert yaml.safe_load(changed["data"]["group.yaml"])["metadata"]["generation"] == 2
    await api.wait_for(GROUPS, NAME, says("Accepted", "True"))
    deployment = await api.get("deployments", NAME)
    assert deployment["spec"] == before["deployments", NAME]["spec"]
    assert await pods_of(api) == pods


async def test_an_edit_of_the_pods_rolls_them(api: Api) -> None:
    await api.create(GROUPS, group(gateway={"image": "gateway:1"}))
    await children(api)
    await api.patch(GROUPS, NAME, {"spec": {"gateway": {"image": "gateway:2"}}})
    found = await api.wait_for("deployments", NAME, lambda d: d["metadata"]["generation"] == 2)
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "gateway:2"


async def test_what_is_no_longer_asked_for_goes(api: Api) -> None:
    await api.create(GROUPS, group(networkPolicy={"enabled": True}))
    await api.wait_for("networkpolicies", NAME, lambda _: True)
    await api.wait_for("serviceaccounts", NAME, lambda _: True)
    spec = {"networkPolicy": None, "gateway": {"serviceAccountName": "default"}}
    await api.patch(GROUPS, NAME, {"spec": spec})
    await api.wait_gone("networkpolicies", NAME)
    await api.wait_gone("serviceaccounts", NAME)
    deployment = await api.get("deployments", NAME)
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == "default"


async def test_a_deleted_group_takes_everything_with_it(api: Api) -> None:
    await api.create(GROUPS, group())
    await children(api)
    await pods_of(api)
    await api.delete(GROUPS, NAME)
    for plural, name in places():
        await api.wait_gone(plural, name, within=60)
    await api.wait_until("pods", lambda pods: not pods, within=20)


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_a_group_made_anew_at_once_gets_children_of_its_own(
    api: Api, propagation: str
) -> None:
    await api.create(GROUPS, group())
    before = await children(api)
    await api.delete(GROUPS, NAME, propagation=propagation)
    await api.wait_gone(GROUPS, NAME)
    again = await api.create(GROUPS, group())
    owner = again["metadata"]["uid"]

    def is_its(child: dict[str, Any]) -> bool:
        return "deletionTimestamp" not in child["metadata"] and [
            reference["uid"] for reference in child["metadata"]["ownerReferences"]
        ] == [owner]

    for plural, name in places():
        await api.wait_for(plural, name, is_its, within=20)
    # The garbage collector has looked at all of them by now, or will: none of them may go.
    found = await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=20)
    assert found["metadata"]["uid"] == owner
    assert before


async def test_orphans_are_taken_back_and_no_pod_restarts(api: Api) -> None:
    await api.create(GROUPS, group())
    before = await children(api)
    pods = await pods_of(api)
    await api.delete(GROUPS, NAME, propagation="Orphan")
    await api.wait_gone(GROUPS, NAME)
    for plural, name in places():
        orphan = await api.get(plural, name)
        assert not orphan["metadata"].get("ownerReferences")
    again = await api.create(GROUPS, group())
    for plural, name in places():
        back = await api.wait_for(
            plural, name, lambda child: child["metadata"].get("ownerReferences")
        )
        (owner,) = back["metadata"]["ownerReferences"]
        assert owner["uid"] == again["metadata"]["uid"]
        assert back["metadata"]["uid"] == before[plural, name]["metadata"]["uid"]
    assert await pods_of(api) == pods
    deployment = await api.get("deployments", NAME)
    assert deployment["spec"] == before["deployments", NAME]["spec"]
    assert len(await api.list("replicasets")) == 1


async def test_a_secret_removed_by_hand_is_back_at_the_next_reconcile(api: Api) -> None:
    await api.create(GROUPS, group())
    before = (await children(api))["secrets", f"{NAME}-keys"]
    await api.delete("secrets", f"{NAME}-keys")
    await api.wait_gone("secrets", f"{NAME}-keys")
    await api.patch(GROUPS, NAME, {"metadata": {"annotations": {"look": "again"}}})
    back = await api.wait_for("secrets", f"{NAME}-keys", lambda _: True)
    token = base64.b64decode(back["data"]["admin-token"])
    assert len(token) >= 32
    assert back["data"] != before["data"]


async def test_another_text_in_an_annotation_makes_new_keys(api: Api) -> None:
    await api.create(GROUPS, group())
    before = (await children(api))["secrets", f"{NAME}-keys"]
    annotations = {"mcpgroup.dev/rotate-keys": "monday"}
    await api.patch(GROUPS, NAME, {"metadata": {"annotations": annotations}})
    after = await api.wait_for(
        "secrets", f"{NAME}-keys", lambda secret: secret["data"] != before["data"]
    )
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    # Somebody takes the annotation away again: the keys stay.
    await api.patch(GROUPS, NAME, {"metadata": {"annotations": {"mcpgroup.dev/rotate-keys": None}}})
    await api.patch(GROUPS, NAME, {"spec": {"replicas": 1}})
    await api.wait_for(GROUPS, NAME, says("Accepted", "True"))
    assert (await api.get("secrets", f"{NAME}-keys"))["data"] == after["data"]


FOREIGN: dict[str, dict[str, Any]] = {
    "configmaps": {"data": {"group.yaml": "mine"}},
    "secrets": {"data": {"admin-token": base64.b64encode(b"mine").decode()}},
    "services": {"spec": {"ports": [{"port": 1}]}},
    "serviceaccounts": {},
    "poddisruptionbudgets": {"spec": {"minAvailable": 1}},
    "deployments": {
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "mine"}},
            "template": {
                "metadata": {"labels": {"app": "mine"}},
                "spec": {"containers": [{"name": "c", "image": "mine"}]},
            },
        }
    },
}


async def test_an_object_of_somebody_else_with_a_childs_name_stays_untouched(api: Api) -> None:
    """One group for each child that is not theirs; all the others of the group are made."""
    taken: dict[str, tuple[str, str]] = {}
    theirs: dict[str, dict[str, Any]] = {}
    for number, place in enumerate(places("x")):
        name = f"g{number}"
        plural, child = taken[name] = places(name)[number]
        assert plural == place[0]
        theirs[name] = await api.create(plural, {"metadata": {"name": child}, **FOREIGN[plural]})
        await api.create(GROUPS, group(name))
    for name, (plural, child) in taken.items():
        refused = await api.wait_for(GROUPS, name, says("Accepted", "False", "NotOwned"), within=20)
        assert f" {child} is there already" in condition(refused, "Accepted")["message"]
        await children(api, name)
        after = await api.get(plural, child)
        assert after["metadata"]["uid"] == theirs[name]["metadata"]["uid"]
        assert "ownerReferences" not in after["metadata"]
        assert "mcpgroup.dev/group" not in after["metadata"].get("labels", {})
        for part in ("spec", "data"):
            assert after.get(part) == theirs[name].get(part)


async def test_a_childs_name_that_becomes_free_is_taken(api: Api) -> None:
    await api.create("services", {"metadata": {"name": NAME}, "spec": {"ports": [{"port": 1}]}})
    await api.create(GROUPS, group())
    await api.wait_for(GROUPS, NAME, says("Accepted", "False", "NotOwned"))
    await api.delete("services", NAME)
    await api.wait_for(GROUPS, NAME, says("Accepted", "True"), within=60)
    assert (await children(api))["services", NAME]["metadata"]["ownerReferences"]


async def test_labels_of_a_child_on_somebody_elses_object_change_nothing(api: Api) -> None:
    """Whoever copies a manifest copies its labels and annotations, too."""
    await api.create(GROUPS, group("source"))
    copied = await api.wait_for("configmaps", "source", lambda _: True)
    metadata = copied["metadata"]
    labels = {**metadata["labels"], "mcpgroup.dev/group": NAME}
    theirs = await api.create(
        "configmaps",
        {
            "metadata": {
                "name": NAME,
                "labels": labels,
                "annotations": metadata["annotations"],
            },
            "data": {"group.yaml": "mine"},
        },
    )
    await api.create(GROUPS, group())
    await api.wait_for(GROUPS, NAME, says("Accepted", "False", "NotOwned"))
    after = await api.get("configmaps", NAME)
    assert after["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]


async def test_a_group_with_the_name_of_another_ones_service_does_not_take_it(api: Api) -> None:
    await api.create(GROUPS, group())
    before = await children(api)
    await api.create(GROUPS, group(f"{NAME}-peers"))
    await api.wait_for(GROUPS, f"{NAME}-peers", says("Accepted", "False", "NotOwned"))
    await api.patch(GROUPS, NAME, {"spec": {"replicas": 1}})
    await api.wait_for("deployments", NAME, lambda d: d["spec"]["replicas"] == 1)
    after = await api.get("services", f"{NAME}-peers")
    known = before["services", f"{NAME}-peers"]["metadata"]
    assert after["metadata"]["resourceVersion"] == known["resourceVersion"]
    await api.delete(GROUPS, NAME)
    await api.wait_for(GROUPS, f"{NAME}-peers", says("Accepted", "True"), within=60)


async def test_a_group_that_somebody_else_holds_back_is_left_alone(api: Api) -> None:
    held = group()
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await api.create(GROUPS, held)
    await children(api)
    await api.create(GROUPS, group("other"))
    await children(api, "other")
    await api.delete(GROUPS, NAME)
    await api.patch("services", NAME, {"spec": {"sessionAffinity": "ClientIP"}})
    await api.delete("poddisruptionbudgets", NAME)
    # As an event of another group is worked on after that of this one.
    await api.delete("poddisruptionbudgets", "other")
    await api.wait_for("poddisruptionbudgets", "other", lambda _: True)
    assert (await api.get("services", NAME))["spec"]["sessionAffinity"] == "ClientIP"
    assert await api.find("poddisruptionbudgets", NAME) is None
    await api.patch(GROUPS, NAME, {"metadata": {"finalizers": None}})
    await api.wait_gone(GROUPS, NAME)
    for place in places():
        await api.wait_gone(*place, within=60)


async def test_what_changed_while_no_operator_ran_is_caught_up_with(
    operator: Operator, api: Api
) -> None:
    for name in ("kept", "gone", "edited", NAME):
        await api.create(GROUPS, group(name))
        await api.wait_for(GROUPS, name, says("Accepted", "True"))
    pods = await pods_of(api, 8)
    await operator.kill()
    await api.delete(GROUPS, "gone")
    await api.create(GROUPS, group("new"))
    await api.patch(GROUPS, "edited", {"spec": {"members": [member("changed")]}})
    await api.delete("services", NAME)
    await api.wait_gone("deployments", "gone", within=60)
    await operator.start()
    await api.wait_for("deployments", "new", lambda _: True, within=40)
    await api.wait_for("services", NAME, lambda _: True)
    await api.wait_for(
        "configmaps", "edited", lambda found: "changed.invalid" in found["data"]["group.yaml"]
    )
    await api.wait_for(GROUPS, "new", says("Accepted", "True"))
    assert await api.find("configmaps", "gone") is None
    left = {n: u for n, u in pods.items() if not n.startswith("gone-")}
    assert left.items() <= (await pods_of(api, 8)).items()


async def test_many_edits_end_in_the_last_one(api: Api) -> None:
    await api.create(GROUPS, group())
    await children(api)
    for number in range(30):
        await api.patch(GROUPS, NAME, {"spec": {"service": {"port": 1000 + number}}})
    await api.wait_for("services", NAME, lambda s: s["spec"]["ports"][0]["port"] == 1029)
    found = await api.wait_for(GROUPS, NAME, says("Accepted", "True"))
    assert found["status"]["endpoint"].endswith(":1029/mcp")
