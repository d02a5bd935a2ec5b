"""A new operator rolls no pods and loses no objects of an earlier one.

golden/previous holds what each released version made of the golden groups. A pod template that
differs from the recorded one restarts every gateway of every user when they upgrade the operator,
and ends the sessions of their clients. So these files are never written anew to please a failing
test: the builder must make the old template again for a spec that asks for nothing new. When a
difference cannot be helped, CHANGELOG.md says that this version restarts gateways, and why, and
the files of the versions before are deleted in the same commit.

At a release, the golden files are copied to golden/previous/<version>-<group>.yaml once; those of
0.1.0 may be copied again until it is released.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.operator.groups import SPECS
from tests.unit.operator.recorded import PREVIOUS, children_of, read

RECORDED = sorted(PREVIOUS.glob("*.yaml"))
EVERY_RECORD = pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)

Manifests = dict[tuple[str, str], dict[str, Any]]


def by_place(manifests: list[dict[str, Any]]) -> Manifests:
    return {(m["kind"], m["metadata"]["name"]): m for m in manifests}


def now_and_then(path: Any) -> tuple[Manifests, Manifests]:
    name = path.stem.rpartition("-")[2]
    return by_place([c.manifest for c in children_of(name).desired]), by_place(read(path))


def test_every_golden_group_has_a_record() -> None:
    assert {path.stem.rpartition("-")[2] for path in RECORDED} == set(SPECS)


@EVERY_RECORD
def test_pods_are_what_they_were(path: Any) -> None:
    now, then = now_and_then(path)
    for place, manifest in then.items():
        if place[0] == "Deployment":
            assert now[place]["spec"]["template"] == manifest["spec"]["template"]


@EVERY_RECORD
def test_selectors_are_what_they_were(path: Any) -> None:
    now, then = now_and_then(path)
    for place, manifest in then.items():
        spec = manifest.get("spec", {})
        for field in ("selector", "podSelector"):
            if field in spec:
                assert now[place]["spec"][field] == spec[field], place


@EVERY_RECORD
def test_children_have_the_names_they_had_and_can_be_found_and_owned(path: Any) -> None:
    now, then = now_and_then(path)
    assert then.keys() <= now.keys()
    for place, manifest in then.items():
        metadata, before = now[place]["metadata"], manifest["metadata"]
        assert before["labels"].items() <= metadata["labels"].items()
        assert metadata["ownerReferences"] == before["ownerReferences"]
        mark = "mcpgroup.dev/operator"
        assert metadata["annotations"][mark] == before["annotations"][mark]


@EVERY_RECORD
def test_the_file_of_gateways_is_what_it_was(path: Any) -> None:
    now, then = now_and_then(path)
    for place, manifest in then.items():
        if place[0] == "ConfigMap":
            assert now[place]["data"] == manifest["data"]
