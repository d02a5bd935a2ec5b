"""`Accepted`: whether a group can be run as it is written, and what its author should know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcpgroup_operator.conditions import Finding, Reason, listed, no, yes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mcpgroup_api import Advice
    from mcpgroup_operator.agreement import Told

_BETWEEN: Final = "; "


def accepted(advice: Sequence[Advice] = ()) -> Finding:
    """A good group. Its warnings, from `mcpgroup_api.warnings`, stand in the message."""
    parts = [f"{path_text(entry.path)} {entry.text}" for entry in advice]
    return yes(Reason.ACCEPTED, f"with warnings: {listed(parts, _BETWEEN)}" if parts else "")


def with_secrets(verdict: Finding, reports: Iterable[Told], config_hash: str | None) -> Finding:
    """The verdict of the reconcile, unless replicas with the current file lack a Secret.

    The operator may not read Secrets of users, so the replicas say what is missing. Once they do
    not any more, the group is accepted again.
    """
    if verdict.status != "True":
        return verdict
    missing = sorted(
        {
            reference
            for each in reports
            if each.report.config_hash == config_hash
            for reference in each.report.missing_secrets
        }
    )
    if not missing:
        return verdict
    pairs = (reference.partition("/") for reference in missing)
    parts = [f"Secret {name}, key {key}" for name, _, key in pairs]
    return no(Reason.SECRET_NOT_FOUND, f"missing or unusable: {listed(parts, _BETWEEN)}")


def path_text(path: Iterable[str | int]) -> str:
    """`spec.members[0].weight`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")
