"""The store, when events, lists and answers to our own writes overtake each other."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpgroup_operator.kinds import CONFIG_MAP, GROUP, POD, Kind
from mcpgroup_operator.names import GROUP_LABEL
from mcpgroup_operator.store import Key, Store

A = Key("tools", "a")


def item(kind: Kind, name: str, version: int, *, group: str = "a", **more: Any) -> dict[str, Any]:
    labels = {} if kind is GROUP else {GROUP_LABEL: group}
    metadata = {
        "namespace": "tools",
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "labels": labels,
    }
    return {"metadata": metadata, **more}


def listed(store: Store, kind: Kind, *items: dict[str, Any]) -> set[Key]:
    listing = store.begin_list(kind, None)
    listing.add(items)
    return store.finish_list(listing)


def test_an_event_of_a_child_concerns_its_group() -> None:
    store = Store()

    assert store.put(CONFIG_MAP, item(CONFIG_MAP, "a", 1)) == {A}
    assert [child["metadata"]["name"] for child in store.children(A)] == ["a"]


def test_what_is_older_than_what_is_known_is_no_news() -> None:
    store = Store()
    store.put(CONFIG_MAP, item(CONFIG_MAP, "a", 7, data={"k": "new"}))

    assert store.put(CONFIG_MAP, item(CONFIG_MAP, "a", 6, data={"k": "old"})) == set()
    child = store.child(CONFIG_MAP, "tools", "a")
    assert child is not None
    assert child["data"] == {"k": "new"}


def test_a_late_answer_to_a_write_does_not_bring_back_what_was_deleted() -> None:
    store = Store()
    store.put(CONFIG_MAP, item(CONFIG_MAP, "a", 5))
    store.remove(CONFIG_MAP, item(CONFIG_MAP, "a", 6))

    assert store.put(CONFIG_MAP, item(CONFIG_MAP, "a", 5)) == set()
    assert store.child(CONFIG_MAP, "tools", "a") is None
    assert store.put(CONFIG_MAP, item(CONFIG_MAP, "a", 8)) == {A}


def test_the_deletion_of_an_earlier_object_of_that_name_deletes_nothing() -> None:
    store = Store()
    store.put(CONFIG_MAP, item(CONFIG_MAP, "a", 9))

    assert store.remove(CONFIG_MAP, item(CONFIG_MAP, "a", 4)) == set()
    assert store.child(CONFIG_MAP, "tools", "a") is not None


def test_what_a_list_does_not_hold_was_deleted() -> None:
    store = Store()
    store.put(CONFIG_MAP, item(CONFIG_MAP, "a", 1))
    store.put(CONFIG_MAP, item(CONFIG_MAP, "b", 2, group="b"))

    assert listed(store, CONFIG_MAP, item(CONFIG_MAP, "b", 2, group="b")) == {A}
    assert store.child(CONFIG_MAP, "tools", "a") is None


def test_what_events_say_while_a_list_is_read_is_newer_than_the_list() -> None:
    store = Store()
    store.put(CONFIG_MAP, item(CONFIG_MAP, "gone", 1))
    listing = store.begin_list(CONFIG_MAP, None)
    listing.add([item(CONFIG_MAP, "gone", 1)])
    store.remove(CONFIG_MAP, item(CONFIG_MAP, "gone", 3))
    store.put(CONFIG_MAP, item(CONFIG_MAP, "new", 4))

    store.finish_list(listing)

    assert store.child(CONFIG_MAP, "tools", "gone") is None
    assert store.child(CONFIG_MAP, "tools", "new") is not None


def test_a_late_event_while_a_list_is_read_does_not_hide_what_the_list_holds() -> None:
    """The watch was down and goes on after the list: nothing else tells of version 8."""
    store = Store()
    store.put(CONFIG_MAP, item(CONFIG_MAP, "a", 4))
    listing = store.begin_list(CONFIG_MAP, None)
    store.put(CONFIG_MAP, item(CONFIG_MAP, "a", 5))
    listing.add([item(CONFIG_MAP, "a", 8, data={"k": "newest"})], version=9)

    assert store.finish_list(listing) == {A}
    child = store.child(CONFIG_MAP, "tools", "a")
    assert child is not None
    assert child["data"] == {"k": "newest"}


def test_a_late_deletion_while_a_list_is_read_does_not_hide_what_was_made_since() -> None:
    store = Store()
    store.put(CONFIG_MAP, item(CONFIG_MAP, "a", 4))
    listing = store.begin_list(CONFIG_MAP, None)
    store.remove(CONFIG_MAP, item(CONFIG_MAP, "a", 5))
    listing.add([item(CONFIG_MAP, "a", 8)], version=9)

    assert store.finish_list(listing) == {A}
    assert store.child(CONFIG_MAP, "tools", "a") is not None


def test_a_late_event_while_a_list_is_read_does_not_keep_what_was_deleted_since() -> None:
    store = Store()
    store.put(CONFIG_MAP, item(CONFIG_MAP, "a", 4))
    listing = store.begin_list(CONFIG_MAP, None)
    store.put(CONFIG_MAP, item(CONFIG_MAP, "a", 5))
    listing.add([], version=9)

    assert store.finish_list(listing) == {A}
    assert store.child(CONFIG_MAP, "tools", "a") is None
    assert store.put(CONFIG_MAP, item(CONFIG_MAP, "a", 7)) == set()


def test_a_list_that_moves_a_child_to_another_group_concerns_both() -> None:
    store = Store()
    store.put(CONFIG_MAP, item(CONFIG_MAP, "x", 1, group="a"))

    assert listed(store, CONFIG_MAP, item(CONFIG_MAP, "x", 2, group="b")) == {A, Key("tools", "b")}


def test_a_list_of_one_namespace_says_nothing_of_another() -> None:
    store = Store()
    store.put(GROUP, item(GROUP, "a", 1))
    listing = store.begin_list(GROUP, "other")

    assert store.finish_list(listing) == set()
    assert store.group(A) is not None


def test_a_list_that_failed_deletes_nothing() -> None:
    store = Store()
    store.put(GROUP, item(GROUP, "a", 1))
    store.abandon_list(store.begin_list(GROUP, None))

    assert store.group(A) is not None


def test_a_child_that_changes_its_group_concerns_both() -> None:
    store = Store()
    store.put(CONFIG_MAP, item(CONFIG_MAP, "x", 1, group="a"))

    assert store.put(CONFIG_MAP, item(CONFIG_MAP, "x", 2, group="b")) == {A, Key("tools", "b")}
    assert list(store.children(A)) == []


def test_of_a_pod_only_little_is_kept() -> None:
    store = Store()
    status = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled"}],
        "containerStatuses": [{"name": "gateway"}],
    }
    store.put(POD, item(POD, "p", 1, spec={"containers": []}, status=status))

    (pod,) = store.children(A, POD)
    assert "spec" not in pod
    assert pod["status"] == {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
    }


def test_of_managed_fields_the_names_of_the_managers_are_kept() -> None:
    store = Store()
    managed = item(CONFIG_MAP, "a", 1)
    managed["metadata"]["managedFields"] = [
        {"manager": "kubectl", "fieldsV1": {"f:data": {}}},
        {"manager": "mcpgroup-operator", "fieldsV1": {"f:data": {}}},
        {"manager": "kubectl", "operation": "Update"},
    ]
    store.put(CONFIG_MAP, managed)

    (child,) = store.children(A)
    managers = [entry["manager"] for entry in child["metadata"]["managedFields"]]
    assert managers == ["kubectl", "mcpgroup-operator"]


NAMES = st.sampled_from(["p", "q"])
STEPS = st.lists(st.tuples(st.sampled_from(["put", "remove", "list"]), NAMES), max_size=30)


@given(steps=STEPS, order=st.randoms(use_true_random=False))
def test_after_all_events_in_any_order_the_store_is_as_the_cluster(
    steps: list[tuple[str, str]], order: Any
) -> None:
    """A cluster changes step by step; its events reach the store shuffled, lists in between."""
    cluster: dict[str, int] = {}
    told: list[tuple[str, str, int]] = []
    store = Store()
    for version, (step, name) in enumerate(steps, start=1):
        if step == "put":
            cluster[name] = version
            told.append(("put", name, version))
        elif step == "remove" and name in cluster:
            del cluster[name]
            told.append(("remove", name, version))
        elif step == "list":
            listed(store, POD, *(item(POD, n, v) for n, v in cluster.items()))
    order.shuffle(told)
    for step, name, version in told:
        (store.put if step == "put" else store.remove)(POD, item(POD, name, version))

    versions = {
        pod["metadata"]["name"]: int(pod["metadata"]["resourceVersion"])
        for pod in store.children(A, POD)
    }
    assert versions == cluster


RACES = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "tell", "answer", "begin list", "read list", "end list"]),
        NAMES,
    ),
    max_size=60,
)


@given(steps=RACES)
def test_events_answers_and_lists_that_overtake_each_other_end_in_the_truth(
    steps: list[tuple[str, str]],
) -> None:
    """Events come late but in order; an answer to a write of ours comes before or after the event;
    a list shows one moment between its begin and its end, and events arrive meanwhile."""
    cluster: dict[str, int] = {}
    events: list[tuple[str, str, int]] = []
    store, lists = Store(), []
    for version, (step, name) in enumerate(steps, start=1):
        match step:
            case "put":
                cluster[name] = version
                events.append(("put", name, version))
            case "answer" if name in cluster:
                store.put(POD, item(POD, name, cluster[name]))
            case "remove" if name in cluster:
                del cluster[name]
                events.append(("remove", name, version))
            case "tell" if events:
                kind, told, at = events.pop(0)
                (store.put if kind == "put" else store.remove)(POD, item(POD, told, at))
            case "begin list":
                lists.append(store.begin_list(POD, None))
            case "read list" if lists and not lists[-1].items:
                lists[-1].add([item(POD, n, v) for n, v in cluster.items()])
            case "end list" if lists and lists[0].items:
                store.finish_list(lists.pop(0))
    for listing in lists:
        store.abandon_list(listing)
    for kind, told, at in events:
        (store.put if kind == "put" else store.remove)(POD, item(POD, told, at))
    versions = {
        pod["metadata"]["name"]: int(pod["metadata"]["resourceVersion"])
        for pod in store.children(A, POD)
    }
    assert versions == cluster
    assert store._lists == []


@pytest.mark.parametrize("count", [1, 3])
def test_a_group_without_children_leaves_nothing_behind(count: int) -> None:
    store = Store()
    for number in range(count):
        store.put(POD, item(POD, f"p{number}", number + 1))
    for number in range(count):
        store.remove(POD, item(POD, f"p{number}", number + 10))

    assert list(store.children(A)) == []
    assert store.count(POD) == 0
