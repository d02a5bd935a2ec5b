"""The manifests that are checked in, and how they are written anew.

`python -m tests.unit.operator.recorded` writes golden/*.yaml from what the builders make now: look
at the difference before it is committed, it is what every user's objects will change by. The files
of golden/previous are never written by it; test_upgrades.py says why.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from tests.unit.operator.groups import SETTINGS, SPECS, TOKEN, group_of

from mcpgroup_operator.children import desired

if TYPE_CHECKING:
    from mcpgroup_operator.children import Children

GOLDEN = Path(__file__).parent / "golden"
PREVIOUS = GOLDEN / "previous"
LIVE = Path(__file__).parent / "live"


def children_of(name: str) -> Children:
    """All that is made for the golden group of this name, the first time."""
    group = group_of(SPECS[name], name=name)
    return desired(group, SETTINGS, config_map=None, keys=None, new_token=lambda: TOKEN)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such: one of them is the gateways' file."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def written(manifests: list[dict[str, Any]]) -> str:
    """As documents of YAML."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def read(path: Path) -> list[dict[str, Any]]:
    """The manifests of a file."""
    return list(yaml.safe_load_all(path.read_text()))


if __name__ == "__main__":
    for name in SPECS:
        manifests = [child.manifest for child in children_of(name).desired]
        (GOLDEN / f"{name}.yaml").write_text(written(manifests))
