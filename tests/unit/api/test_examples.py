"""The manifests in examples/ are what a user tries first."""

from pathlib import Path

import pytest

from mcpgroup_gateway.manifest import read

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid_and_without_warnings(path: Path) -> None:
    assert read(str(path)).warnings == ()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_begins_with_what_it_shows(path: Path) -> None:
    assert path.read_text().startswith("# ")


def test_the_members_of_the_first_example_are_equal_but_for_their_names() -> None:
    """Else their tools would have different definitions, and only some members would serve."""
    members = read(str(EXAMPLES[[path.stem for path in EXAMPLES].index("time")])).group.spec.members

    assert len(members) == 3
    assert len({member.model_dump_json(exclude={"name"}) for member in members}) == 1
