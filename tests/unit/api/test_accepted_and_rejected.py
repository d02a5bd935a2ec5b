"""Every case of the shared table, through the models and through the loader of files."""

import json

import pytest
from pydantic import ValidationError
from tests.unit.api.cases import ACCEPTED, REFUSED_IN_FILES, REJECTED, TAKEN_IN_FILES, Case

from mcpgroup_api import McpServerGroup
from mcpgroup_gateway.manifest import ManifestError, load


def by_name(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", ACCEPTED + TAKEN_IN_FILES, ids=by_name)
def test_a_good_manifest_is_accepted(case: Case) -> None:
    group = McpServerGroup.model_validate(case.data())

    assert load(json.dumps(case.data()).encode(), name="group.json").group == group


@pytest.mark.parametrize("case", ACCEPTED, ids=by_name)
def test_a_group_written_out_reads_as_the_same_group(case: Case) -> None:
    group = McpServerGroup.model_validate(case.data())

    assert McpServerGroup.model_validate(group.model_dump(exclude_none=True)) == group


@pytest.mark.parametrize("case", REJECTED + REFUSED_IN_FILES, ids=by_name)
def test_a_bad_manifest_is_rejected_with_its_field_and_what_is_allowed(case: Case) -> None:
    with pytest.raises(ManifestError) as caught:
        load(json.dumps(case.data()).encode(), name="group.json")

    found = [(fault.path, fault.text) for fault in caught.value.faults]
    assert len(found) == len(case.faults), found
    for path, text in case.faults:
        assert any(path == at and text in said for at, said in found), found


def test_no_two_cases_share_a_name() -> None:
    names = [case.name for case in ACCEPTED + TAKEN_IN_FILES + REJECTED + REFUSED_IN_FILES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("case", REJECTED, ids=by_name)
def test_the_models_alone_reject_what_the_loader_rejects(case: Case) -> None:
    with pytest.raises(ValidationError):
        McpServerGroup.model_validate(case.data())
