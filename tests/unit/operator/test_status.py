"""The status of a group, condition by condition, and the laws that hold for all of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.observations import (
    HASH,
    LONG_AGO,
    NOW,
    OLD_HASH,
    condition,
    deployment,
    member,
    missed,
    never,
    observed,
    pod,
    report,
    status_of,
)

from mcpgroup_api import Advice
from mcpgroup_api.status import McpServerGroupStatus
from mcpgroup_operator.acceptance import accepted
from mcpgroup_operator.conditions import MAX_MESSAGE, TYPES, Reason, no
from mcpgroup_operator.observation import Observed, ObservedPod
from mcpgroup_operator.reports import Poll

GOOD = observed(pod("search-1"), pod("search-2"))


def test_a_healthy_group_in_full() -> None:
    row = {
        "ready": True,
        "state": "Healthy",
        "configHash": HASH,
        "circuitOpen": False,
        "inRotation": 2,
        "healthy": 2,
        "selectable": 2,
        "since": "2027-01-15T08:00:00Z",
    }
    shown = {
        "Ready": ("True", "Ready", ""),
        "Accepted": ("True", "Accepted", ""),
        "ConfigApplied": ("True", "ConfigApplied", ""),
        "Available": ("True", "ReplicaAvailable", "2 of 2 ready replicas are available"),
        "ReplicasAgree": ("True", "ReplicasAgree", ""),
        "MembersConsistent": ("True", "MembersConsistent", ""),
        "Progressing": ("False", "Settled", ""),
        "Healthy": ("True", "Healthy", ""),
    }
    assert status_of(GOOD) == {
        "observedGeneration": 7,
        "replicas": 2,
        "selector": (
            "app.kubernetes.io/name=mcpgroup-gateway,app.kubernetes.io/instance=search,"
            "mcpgroup.dev/component=gateway"
        ),
        "endpoint": "http://search.tools.svc/mcp",
        "configHash": HASH,
        "state": "Healthy",
        "members": "2/2",
        "gateways": [{"pod": "search-1", **row}, {"pod": "search-2", **row}],
        "conditions": [
            {
                "type": name,
                "status": status,
                "observedGeneration": 7,
                "lastTransitionTime": "2027-01-15T08:00:00Z",
                "reason": reason,
                "message": message,
            }
            for name, (status, reason, message) in shown.items()
        ],
    }


# --- Accepted


def test_a_verdict_against_the_group_stands_and_the_rest_tells_of_what_runs() -> None:
    status = status_of(replace(GOOD, accepted=no(Reason.INVALID_SPEC, "spec.members: empty")))
    assert condition(status, "Accepted") == ("False", "InvalidSpec", "spec.members: empty")
    assert condition(status, "Available")[0] == "True"
    assert condition(status, "Ready") == (
        "False",
        "InvalidSpec",
        "Accepted is False: spec.members: empty",
    )


def test_warnings_stand_in_the_message_of_an_accepted_group() -> None:
    advice = [Advice(("spec", "members", 0, "weight"), "has no effect")]
    status = status_of(replace(GOOD, accepted=accepted(advice)))
    assert condition(status, "Accepted") == (
        "True",
        "Accepted",
        "with warnings: spec.members[0].weight has no effect",
    )


def test_a_missing_secret_is_named_and_heals_when_the_replicas_have_it() -> None:
    lacking = observed(pod("search-1", missing_secrets=("token/key",)), pod("search-2"))
    status = status_of(lacking)
    assert condition(status, "Accepted") == (
        "False",
        "SecretNotFound",
        "missing or unusable: Secret token, key key",
    )
    assert condition(status, "Ready")[0] == "False"
    assert condition(status_of(GOOD, previous=status), "Accepted")[0] == "True"


def test_a_secret_that_only_an_older_file_refers_to_is_nobodys_fault() -> None:
    old = pod("search-1", config_hash=OLD_HASH, missing_secrets=("token/key",))
    assert condition(status_of(observed(old, pod("search-2"))), "Accepted")[0] == "True"


# --- ConfigApplied


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        (
            [pod("search-1", config_hash=OLD_HASH), pod("search-2")],
            ("False", "ConfigOutdated", "search-1 still has that of generation 3"),
        ),
        (
            [pod("search-1", config_hash=OLD_HASH, generation=None), pod("search-2")],
            ("False", "ConfigOutdated", "search-1 still has an older one"),
        ),
        (
            [
                pod("search-1", config_hash=OLD_HASH),
                pod("search-2", config_hash=OLD_HASH, rejected="spec.members: none"),
            ],
            (
                "False",
                "ConfigRejected",
                "search-2 refuses it and keeps that of generation 3: spec.members: none; "
                "search-1 still has that of generation 3",
            ),
        ),
        (
            [pod("search-1", poll=missed("search-1")), pod("search-2")],
            (
                "Unknown",
                "ReplicaUnreachable",
                "search-1 does not answer (no answer within 2 s)",
            ),
        ),
        (  # what is known to be wrong counts more than what is not known
            [pod("search-1", poll=missed()), pod("search-2", config_hash=OLD_HASH)],
            ("False", "ConfigOutdated", "search-2 still has that of generation 3"),
        ),
        (  # one or two lost answers are no news
            [pod("search-1", poll=missed("search-1", 2)), pod("search-2")],
            ("True", "ConfigApplied", ""),
        ),
        (  # not ready, or going: does not count
            [
                pod("search-1", ready=False, config_hash=OLD_HASH),
                pod("search-2", terminating=True, config_hash=OLD_HASH),
                pod("search-3"),
            ],
            ("True", "ConfigApplied", ""),
        ),
        (  # ready a moment ago, and still being asked
            [pod("search-1", since=NOW - 5, poll=never(2)), pod("search-2")],
            ("True", "ConfigApplied", ""),
        ),
        (  # however young
            [pod("search-1", since=NOW - 5, poll=never()), pod("search-2")],
            (
                "Unknown",
                "ReplicaUnreachable",
                "search-1 does not answer (no answer within 2 s)",
            ),
        ),
        (
            [pod("search-1", since=NOW - 5, poll=never(1))],
            ("Unknown", "NotAskedYet", "the ready replicas were not asked yet"),
        ),
        (
            [pod("search-1", ip=None, poll=never(0)), pod("search-2")],
            ("Unknown", "ReplicaUnreachable", "search-1 does not answer (it has no address)"),
        ),
        (
            [pod("search-1", ready=False)],
            ("Unknown", "NoReadyReplicas", "no replica is ready"),
        ),
        (
            [pod("search-1", ignored=("spec.b", "spec.a"))],
            ("True", "ConfigApplied", "search-1 ignores what it does not know: spec.b, spec.a"),
        ),
    ],
)
def test_config_applied(pods: list[ObservedPod], expected: tuple[str, str, str]) -> None:
    assert condition(status_of(observed(*pods)), "ConfigApplied") == expected


def test_without_a_file_nothing_can_be_said_of_it() -> None:
    status = status_of(observed(config_hash=None, deployment=None))
    assert condition(status, "ConfigApplied")[:2] == ("Unknown", "NoConfig")
    assert "configHash" not in status


# --- Available


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        (
            [pod("search-1", available=False, circuit_open=True, state="Degraded"), pod("s-2")],
            ("True", "ReplicaAvailable", "1 of 2 ready replicas are available"),
        ),
        (  # whatever the hash
            [pod("search-1", config_hash=OLD_HASH)],
            ("True", "ReplicaAvailable", "1 of 1 ready replicas are available"),
        ),
        (
            [
                pod("search-1", available=False, circuit_open=True, state="Degraded"),
                pod("search-2", available=False, state="Inactive", rotation=()),
            ],
            (
                "False",
                "NoMemberAvailable",
                "search-1: circuit open; search-2: no member that works is in rotation",
            ),
        ),
        (
            [pod("search-1", available=False), pod("search-2", poll=missed("search-2"))],
            (
                "Unknown",
                "ReplicaUnreachable",
                "search-2 does not answer (no answer within 2 s)",
            ),
        ),
        (
            [pod("search-1", since=NOW, poll=never(0))],
            ("Unknown", "NotAskedYet", "not all ready replicas were asked yet"),
        ),
        (
            [pod("search-1", ready=False), pod("search-2", terminating=True)],
            ("False", "NoReadyReplicas", "no replica is ready"),
        ),
        ([], ("False", "NoReadyReplicas", "no replica is ready")),
    ],
)
def test_available(pods: list[ObservedPod], expected: tuple[str, str, str]) -> None:
    assert condition(status_of(observed(*pods)), "Available") == expected


def test_scaled_to_zero_is_not_available_and_nothing_is_wrong() -> None:
    status = status_of(observed(deployment=deployment(0)), replicas=0)
    assert condition(status, "Available") == ("False", "ScaledToZero", "no replica is wanted")
    assert condition(status, "Ready")[:2] == ("False", "ScaledToZero")
    assert condition(status, "Healthy")[:2] == ("False", "ScaledToZero")
    assert condition(status, "ConfigApplied")[:2] == ("True", "ScaledToZero")
    assert condition(status, "ReplicasAgree")[0] == "True"
    assert condition(status, "Progressing")[0] == "False"
    assert (status["state"], status["members"], status["replicas"]) == ("Inactive", "0/0", 0)


# --- ReplicasAgree

OPEN: dict[str, Any] = {"circuit_open": True, "state": "Degraded", "available": False}


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        (
            [pod("search-1"), pod("search-2", **OPEN)],
            (
                "False",
                "CircuitsDiffer",
                "search-2: circuit open, Degraded; "
                "1 other: circuit closed, Healthy, a, b in rotation",
            ),
        ),
        (
            [pod("search-1", rotation=("a",)), pod("search-2"), pod("search-3")],
            (
                "False",
                "RotationsDiffer",
                "search-1: without b in rotation; "
                "2 others: circuit closed, Healthy, a, b in rotation",
            ),
        ),
        (  # the view of most is the yardstick, even where it is the worse one
            [pod("search-1", **OPEN), pod("search-2", **OPEN), pod("search-3")],
            (
                "False",
                "CircuitsDiffer",
                "search-3: circuit closed, Healthy; "
                "2 others: circuit open, Degraded, a, b in rotation",
            ),
        ),
        (
            [pod("search-1", state="Partial"), pod("search-2"), pod("search-3")],
            (
                "False",
                "StatesDiffer",
                "search-1: Partial; 2 others: circuit closed, Healthy, a, b in rotation",
            ),
        ),
        (
            [pod("search-1", poll=missed("search-1")), pod("search-2")],
            (
                "Unknown",
                "ReplicaUnreachable",
                "search-1 does not answer (no answer within 2 s)",
            ),
        ),
        (  # ready for less than 30 s
            [pod("search-1", since=NOW - 29, poll=never()), pod("search-2"), pod("search-3")],
            ("True", "ReplicasAgree", ""),
        ),
        (
            [pod("search-1", since=NOW - 30, poll=never()), pod("search-2"), pod("search-3")],
            (
                "Unknown",
                "ReplicaUnreachable",
                "search-1 does not answer (no answer within 2 s)",
            ),
        ),
        (  # missed only twice: what it said last still counts
            [pod("search-1", poll=missed("search-1", 2, **OPEN)), pod("search-2")],
            (
                "False",
                "CircuitsDiffer",
                "search-1: circuit open, Degraded; "
                "1 other: circuit closed, Healthy, a, b in rotation",
            ),
        ),
        (  # another file may be the reason
            [pod("search-1", config_hash=OLD_HASH, **OPEN), pod("search-2")],
            ("True", "NothingToCompare", "fewer than two replicas can be compared"),
        ),
        (
            [pod("search-1", **OPEN)],
            ("True", "NothingToCompare", "fewer than two replicas can be compared"),
        ),
        (
            [pod("search-1", ready=False, **OPEN), pod("search-2"), pod("search-3")],
            ("True", "ReplicasAgree", ""),
        ),
        (
            [pod("search-1", terminating=True, **OPEN), pod("search-2"), pod("search-3")],
            ("True", "ReplicasAgree", ""),
        ),
    ],
)
def test_replicas_agree(pods: list[ObservedPod], expected: tuple[str, str, str]) -> None:
    assert condition(status_of(observed(*pods)), "ReplicasAgree") == expected


def test_only_the_first_dissenters_are_named() -> None:
    pods = [pod(f"search-{number:02}", **OPEN) for number in range(20)]
    pods += [pod(f"sane-{number:02}") for number in range(30)]
    message = condition(status_of(observed(*pods)), "ReplicasAgree")[2]
    assert "search-04: circuit open, Degraded and 15 more" in message
    assert "search-05" not in message


# --- MembersConsistent


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        (
            [
                pod("search-1", members=(member("a", catalogue_hash="less", tools=11),)),
                pod("search-2", members=(member("a"),)),
            ],
            (
                "False",
                "CataloguesDiffer",
                "a: search-1 sees 11 tools where most replicas see 12",
            ),
        ),
        (
            [
                pod("search-1", members=(member("a", catalogue_hash="other"),)),
                pod("search-2", members=(member("a"),)),
                pod("search-3", members=(member("a"),)),
            ],
            (
                "False",
                "CataloguesDiffer",
                "a: search-1 sees another catalogue than most replicas",
            ),
        ),
        (
            [pod("search-1", members=(member("a"), member("b", shadowed=("read", "write"))))],
            (
                "False",
                "NameConflict",
                "b defines read, write in another way than is served",
            ),
        ),
        (  # a replica that has not reached a member yet sees no other catalogue
            [
                pod("search-1", members=(member("a", catalogue_hash=None, tools=None),)),
                pod("search-2", members=(member("a"),)),
            ],
            ("True", "MembersConsistent", ""),
        ),
        (
            [
                pod("search-1", config_hash=OLD_HASH, members=(member("a", catalogue_hash="x"),)),
                pod("search-2"),
            ],
            ("True", "MembersConsistent", ""),
        ),
        (
            [pod("search-1", poll=missed("search-1")), pod("search-2")],
            (
                "Unknown",
                "ReplicaUnreachable",
                "search-1 does not answer (no answer within 2 s)",
            ),
        ),
        (  # a reload is no reason to doubt
            [pod("search-1", config_hash=OLD_HASH), pod("search-2", config_hash=OLD_HASH)],
            ("True", "NothingToCompare", "no replica has the newest configuration yet"),
        ),
        (
            [],
            ("Unknown", "NothingToCompare", "no replica tells what its members offer"),
        ),
    ],
)
def test_members_consistent(pods: list[ObservedPod], expected: tuple[str, str, str]) -> None:
    assert condition(status_of(observed(*pods)), "MembersConsistent") == expected


# --- Progressing


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"observedGeneration": 3}, ("True", "Deploying")),
        ({"updatedReplicas": 1}, ("True", "Deploying")),
        ({"replicas": 3}, ("True", "Deploying")),
        (
            {
                "availableReplicas": 1,
                "conditions": [{"type": "Progressing", "reason": "ReplicaSetUpdated"}],
            },
            ("True", "Deploying"),
        ),
        ({"availableReplicas": 1}, ("False", "Settled")),  # a pod fell over: no rollout
        (
            {
                "updatedReplicas": 1,
                "conditions": [
                    {
                        "type": "Progressing",
                        "status": "False",
                        "reason": "ProgressDeadlineExceeded",
                        "message": "ReplicaSet has timed out",
                    }
                ],
            },
            ("False", "ProgressDeadlineExceeded"),
        ),
        (
            {
                "updatedReplicas": 0,
                "replicas": 0,
                "conditions": [
                    {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: q"}
                ],
            },
            ("True", "ReplicaFailure"),
        ),
        ({}, ("False", "Settled")),
    ],
)
def test_progressing_follows_the_deployment(
    status: dict[str, Any], expected: tuple[str, str]
) -> None:
    what = observed(pod("search-1"), pod("search-2"), deployment=deployment(2, **status))
    assert condition(status_of(what), "Progressing")[:2] == expected


def test_a_deployment_that_nobody_looked_at_yet_is_a_rollout() -> None:
    what = observed(deployment={**deployment(), "status": {}})
    assert condition(status_of(what), "Progressing")[:2] == ("True", "Deploying")
    assert status_of(what)["replicas"] == 0


def test_why_pods_cannot_be_made_is_told() -> None:
    failing = [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: q"}]
    what = observed(deployment=deployment(2, replicas=0, updatedReplicas=0, conditions=failing))
    assert condition(status_of(what), "Progressing")[2] == (
        "0 of 2 replicas are of the new template: exceeded quota: q"
    )


@pytest.mark.parametrize(
    ("rejected", "expected"),
    [
        (None, ("True", "Reloading", "the new file is on its way to search-1")),
        ("spec.members: none", ("False", "Settled", "")),
    ],
)
def test_a_reload_is_under_way_until_it_is_done_or_refused(
    rejected: str | None, expected: tuple[str, str, str]
) -> None:
    what = observed(pod("search-1", config_hash=OLD_HASH, rejected=rejected), pod("search-2"))
    assert condition(status_of(what), "Progressing") == expected


# --- the first visit


def test_every_condition_is_there_from_the_first_visit() -> None:
    status = status_of(observed(deployment=None, config_hash=None))
    assert [entry["type"] for entry in status["conditions"]] == list(TYPES)
    assert {entry["type"]: entry["status"] for entry in status["conditions"]} == {
        "Ready": "Unknown",
        "Accepted": "True",
        "ConfigApplied": "Unknown",
        "Available": "Unknown",
        "ReplicasAgree": "True",
        "MembersConsistent": "Unknown",
        "Progressing": "True",
        "Healthy": "False",
    }


# --- the other fields


@pytest.mark.parametrize(
    ("pods", "state", "members"),
    [
        ([pod("search-1"), pod("search-2", state="Partial", rotation=("a",))], "Partial", "1/2"),
        ([pod("search-1", state="Partial"), pod("search-2", state="Degraded")], "Degraded", "2/2"),
        ([pod("search-1", state="Inactive", rotation=()), pod("search-2")], "Inactive", "0/2"),
        ([pod("search-1"), pod("search-2", total=3)], "Healthy", "2/3"),
        # what is not counted does not count
        ([pod("search-1"), pod("search-2", ready=False, state="Inactive")], "Healthy", "2/2"),
        ([pod("search-1"), pod("search-2", terminating=True, state="Inactive")], "Healthy", "2/2"),
        ([pod("search-1"), pod("search-2", poll=missed(state="Inactive"))], "Healthy", "2/2"),
        # whatever the hash
        ([pod("search-1", config_hash=OLD_HASH, state="Partial")], "Partial", "2/2"),
        ([], "Inactive", "0/0"),
        ([pod("search-1", ready=False)], "Inactive", "0/0"),
        ([pod("search-1", poll=missed())], "Unknown", "0/0"),
    ],
)
def test_state_and_members_are_the_worst_of_the_counted(
    pods: list[ObservedPod], state: str, members: str
) -> None:
    status = status_of(observed(*pods))
    assert (status["state"], status["members"]) == (state, members)
    healthy = {"Healthy": "True", "Unknown": "Unknown"}.get(state, "False")
    assert condition(status, "Healthy")[0] == healthy


@pytest.mark.parametrize(
    ("spec", "endpoint"),
    [
        ({}, "http://search.tools.svc/mcp"),
        ({"service": {"port": 8080}}, "http://search.tools.svc:8080/mcp"),
        ({"service": {}}, "http://search.tools.svc/mcp"),
    ],
)
def test_the_endpoint_names_the_port_unless_it_is_the_usual_one(
    spec: dict[str, Any], endpoint: str
) -> None:
    assert status_of(GOOD, **spec)["endpoint"] == endpoint


def test_without_pods_there_are_no_rows_at_all() -> None:
    assert "gateways" not in status_of(observed())


def test_a_pod_that_tells_nothing_has_a_row_that_says_so() -> None:
    what = observed(pod("search-1", poll=missed()), pod("search-2", ready=False, poll=never(0)))
    since = "2027-01-15T08:00:00Z"
    assert status_of(what)["gateways"] == [
        {"pod": "search-1", "ready": True, "state": "Unknown", "since": since},
        {"pod": "search-2", "ready": False, "state": "Unknown", "since": since},
    ]


def test_a_row_is_dated_by_its_own_last_change() -> None:
    first = status_of(GOOD)
    changed = observed(pod("search-1"), pod("search-2", rotation=("a",)))
    second = status_of(changed, previous=first, now=NOW + 60)
    assert [row["since"] for row in second["gateways"]] == [
        "2027-01-15T08:00:00Z",
        "2027-01-15T08:01:00Z",
    ]


def test_a_rollout_of_a_hundred_replicas_has_all_its_rows_and_there_is_a_bound() -> None:
    pods = [pod(f"search-{number:03}") for number in range(130, 0, -1)]
    rows = status_of(observed(*pods))["gateways"]
    assert [row["pod"] for row in rows] == [f"search-{number:03}" for number in range(1, 129)]


# --- laws

_REPORTS = st.builds(
    report,
    rotation=st.sampled_from([("a", "b"), ("a",), ()]),
    state=st.sampled_from(["Inactive", "Degraded", "Partial", "Healthy"]),
    available=st.booleans(),
    circuit_open=st.booleans(),
    config_hash=st.sampled_from([HASH, OLD_HASH]),
    rejected=st.none() | st.just("x" * 600),
    missing_secrets=st.sampled_from([(), ("token/key",)]),
)
_POLLS = st.builds(Poll, st.none() | _REPORTS, st.integers(0, 4), st.just("no answer within 2 s"))
_PODS = st.lists(
    st.builds(
        ObservedPod,
        name=st.integers(0, 9).map(lambda number: f"search-{number}"),
        uid=st.just("uid"),
        ip=st.sampled_from(["10.0.0.1", None]),
        ready_since=st.sampled_from([None, LONG_AGO, NOW - 10]),
        terminating=st.booleans(),
        poll=_POLLS,
    ),
    max_size=6,
    unique_by=lambda pod: pod.name,
)
_OBSERVATIONS = st.builds(
    Observed,
    accepted=st.sampled_from([accepted(), no(Reason.NOT_OWNED, "Service search")]),
    deployment=st.sampled_from([None, deployment(), deployment(2, updatedReplicas=1)]),
    config_hash=st.sampled_from([HASH, None]),
    pods=_PODS.map(tuple),
)


@given(_OBSERVATIONS, st.floats(0, 10_000))
def test_while_nothing_changes_nothing_moves(what: Observed, seconds: float) -> None:
    due = what.due_in(NOW)
    later = min(seconds, due - 0.01) if due is not None else seconds
    first = status_of(what)
    again = status_of(what, previous=first, now=NOW + later)
    assert json.dumps(again) == json.dumps(first)


@given(_OBSERVATIONS, st.randoms(use_true_random=False))
def test_the_order_in_which_pods_are_found_does_not_matter(what: Observed, random: Any) -> None:
    pods = list(what.pods)
    random.shuffle(pods)
    assert json.dumps(status_of(replace(what, pods=tuple(pods)))) == json.dumps(status_of(what))


@given(_OBSERVATIONS, _OBSERVATIONS)
def test_what_has_the_same_status_keeps_its_time_and_all_carry_the_generation(
    before: Observed, after: Observed
) -> None:
    first = status_of(before)
    second = status_of(after, previous=first, now=NOW + 60)
    for old, new in zip(first["conditions"], second["conditions"], strict=True):
        same = old["status"] == new["status"]
        assert (old["lastTransitionTime"] == new["lastTransitionTime"]) is same
        assert new["observedGeneration"] == 7
        assert len(new["message"]) <= MAX_MESSAGE
        assert new["reason"].isalpha()


@given(_OBSERVATIONS)
def test_the_api_server_takes_every_status(what: Observed) -> None:
    McpServerGroupStatus.model_validate_json(json.dumps(status_of(what)))


@given(_OBSERVATIONS)
def test_ready_is_accepted_and_config_applied_and_available(what: Observed) -> None:
    status = status_of(what)
    parts = {condition(status, name)[0] for name in ("Accepted", "ConfigApplied", "Available")}
    worst = next(word for word in ("False", "Unknown", "True") if word in parts)
    assert condition(status, "Ready")[0] == worst
