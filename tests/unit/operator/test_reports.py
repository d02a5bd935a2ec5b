"""What a pod says is read with patience for what is new and none for what is wrong."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.observations import HASH, OLD_HASH, answer, encoded, report

from mcpgroup_operator.reports import (
    MAX_BYTES,
    MAX_MEMBERS,
    MAX_NAMES,
    UnreadableReportError,
    parse_report,
)


def changed(path: str, value: object) -> dict[str, Any]:
    """The answer with another value at a path such as `members.0.name`."""
    document = json.loads(encoded(answer()))
    *steps, last = path.split(".")
    place = document
    for step in steps:
        place = place[int(step) if step.isdigit() else step]
    place[last] = value
    return document  # type: ignore[no-any-return]


def test_it_keeps_what_a_status_needs() -> None:
    assert parse_report(encoded(answer())) == report()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("config.loadedAt", "2026-11-30T13:00:00.000Z"),
        ("circuit.consecutiveFailures", 7),
        ("sessions.open", 99),
        ("members.0.selections", 10_000),
        ("members.0.p95Seconds", 0.7),
        ("members.0.inFlight", 3),
        ("events", [{"time": "…", "kind": "rotation"}]),
        ("somethingNew", {"deep": [1, 2]}),
        ("members.0.somethingNew", True),
    ],
)
def test_what_moves_all_the_time_or_is_not_known_is_no_difference(path: str, value: object) -> None:
    assert parse_report(encoded(changed(path, value))) == report()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("pod", "search-2"),
        ("config.hash", OLD_HASH),
        ("config.generation", 4),
        ("config.rejected", "spec.members: none"),
        ("config.ignored", ["spec.new"]),
        ("config.missingSecrets", ["token/key"]),
        ("state", "Partial"),
        ("available", False),
        ("circuit.open", True),
        ("counts.selectable", 1),
        ("members.0.inRotation", False),
        ("members.0.catalogueHash", "other"),
        ("members.0.tools", 11),
        ("members.0.shadowed", ["read"]),
    ],
)
def test_what_a_status_shows_is_a_difference(path: str, value: object) -> None:
    assert parse_report(encoded(changed(path, value))) != report()


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("pod", 7, "pod is no text"),
        ("config", [], "config is no object"),
        ("config.hash", None, "config.hash is no hash of a configuration"),
        ("config.hash", "sha256:", "config.hash is no hash of a configuration"),
        ("config.hash", f"{HASH}\n", "config.hash is no hash of a configuration"),
        ("config.generation", "3", "config.generation is no count"),
        ("config.rejected", {"reason": "x"}, "config.rejected is no text"),
        ("config.missingSecrets", "token/key", "config.missingSecrets is no list"),
        ("config.ignored", [1], "an entry of config.ignored is no text"),
        ("state", "Splendid", "state is none of Inactive, Degraded, Partial, Healthy"),
        ("state", ["Healthy"], "state is none of Inactive, Degraded, Partial, Healthy"),
        ("available", 1, "available is neither true nor false"),
        ("circuit.open", "false", "circuit.open is neither true nor false"),
        ("counts.total", True, "counts.total is no count"),
        ("counts.inRotation", -1, "counts.inRotation is no count"),
        ("counts.healthy", 10**30, "counts.healthy is no count"),
        ("counts.selectable", 1.5, "counts.selectable is no count"),
        ("members", {}, "members is no list"),
        ("members.0", "a", "a member is no object"),
        ("members.0.name", None, "a member's name is no text"),
        ("members.0.inRotation", None, "a member's inRotation is neither true nor false"),
    ],
)
def test_a_wrong_type_is_refused_and_named(path: str, value: object, why: str) -> None:
    document = answer(members=[value]) if path == "members.0" else changed(path, value)
    with pytest.raises(UnreadableReportError, match=f"^{why}$"):
        parse_report(encoded(document))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the answer is no JSON"),
        (b"<html>404</html>", "the answer is no JSON"),
        (b"\xff\xfe", "the answer is no JSON"),
        (b"[" * 200_000, "the answer is no JSON"),
        (b"1" * 10_000, "the answer is no JSON"),
        (b"[]", "the answer is no object"),
        (b"{}", "config is no object"),
        (b" " * (MAX_BYTES + 1), f"the answer is longer than {MAX_BYTES} bytes"),
    ],
)
def test_what_is_no_report_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(UnreadableReportError, match=f"^{why}$"):
        parse_report(content)


def test_an_older_gateway_that_says_less_is_understood() -> None:
    document = answer()
    del document["config"]["missingSecrets"], document["config"]["ignored"]
    del document["members"][0]["shadowed"], document["members"][0]["catalogueHash"]
    found = parse_report(encoded(document))
    assert found.missing_secrets == ()
    assert found.members[0].catalogue_hash is None


def test_members_and_names_come_in_one_order_whatever_the_order_of_the_answer() -> None:
    document = answer()
    document["config"]["missingSecrets"] = ["z/k", "a/k"]
    turned = {**document, "members": document["members"][::-1]}
    turned["config"] = {**document["config"], "missingSecrets": ["a/k", "z/k"]}
    assert parse_report(encoded(turned)) == parse_report(encoded(document))


def test_two_endpoints_of_a_member_are_one_member_in_rotation_if_either_is() -> None:
    document = answer()
    twin = {**document["members"][0], "inRotation": False}
    found = parse_report(encoded(answer(members=[twin, *document["members"]])))
    assert [(m.name, m.in_rotation) for m in found.members] == [("a", True), ("b", True)]


def test_everything_that_is_kept_is_bounded_and_on_one_line() -> None:
    document = answer()
    first = document["members"][0]
    first["shadowed"] = [f"tool-{number:04}" for number in range(80)]
    document["members"] = [{**first, "name": f"m{number:04}"} for number in range(300)]
    document["config"]["rejected"] = "line\nline\x00" * 1000
    document["config"]["missingSecrets"] = ["x" * 1000]
    found = parse_report(encoded(document))
    assert len(found.members) == MAX_MEMBERS
    assert all(len(m.shadowed) == MAX_NAMES for m in found.members)
    assert found.rejected is not None
    assert len(found.rejected) <= 600
    assert found.rejected.isprintable()
    assert all(len(name) <= 253 for name in found.missing_secrets)


def test_lone_surrogates_do_not_survive() -> None:
    content = encoded(answer()).replace(b'"rejected": null', b'"rejected": "\\ud800 x"')
    rejected = parse_report(content).rejected
    assert rejected is not None
    rejected.encode()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(_JSON, st.sampled_from(["config", "circuit", "counts", "members", "state", "pod"]))
def test_a_report_is_read_or_refused_whatever_stands_in_it(value: object, key: str) -> None:
    content = encoded(answer(**{key: value}))
    with contextlib.suppress(UnreadableReportError):
        parse_report(content)


@given(st.binary())
def test_bytes_of_any_kind_are_a_report_or_refused(content: bytes) -> None:
    with pytest.raises(UnreadableReportError):
        parse_report(content)
