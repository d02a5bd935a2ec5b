"""What `/explain` tells: the selection funnel for a call, as if it came now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcpgroup_gateway.core.canary import sees_canary
from mcpgroup_gateway.core.selection import CallFacts, Selection
from mcpgroup_gateway.wire.protocol import READ_METHODS, Kind

if TYPE_CHECKING:
    from mcpgroup_gateway.core.catalogue import View
    from mcpgroup_gateway.serving.context import Context

_METHOD_OF: Final = {
    Kind.TOOL: "tools/call",
    Kind.PROMPT: "prompts/get",
    Kind.RESOURCE: "resources/read",
    Kind.TEMPLATE: "resources/read",
}
_SHADOWED: Final = "has another definition than the one that is served"


def explain(context: Context, kind: Kind, name: str, tenant: str | None) -> dict[str, object]:
    """See `admin.view.ReplicaView.explain`."""
    policy = context.policy
    view = context.catalogues.view(canary=sees_canary(policy.canary, policy.name, tenant))
    facts = _facts(context, view, kind, name, tenant)
    explanation = context.selector.explain(facts)
    outcome = explanation.outcome
    endpoints = context.group.endpoints.values()
    names = {endpoint.id: endpoint.member for endpoint in endpoints}
    bare = resolution.name if (resolution := view.resolve(kind, name)) is not None else name
    shadowed = {r.member for r in view.shadowed if r.kind is kind and r.name == bare}
    answer: dict[str, object] = {"kind": kind.value, "name": name, "tenant": tenant}
    answer["steps"] = [
        {
            "step": step.step,
            "left": [names[i] for i in step.left],
            "dropped": {
                names[i]: _SHADOWED if step.step == "capability" and names[i] in shadowed else why
                for i, why in step.dropped.items()
            },
        }
        for step in explanation.steps
    ]
    if isinstance(outcome, Selection):
        answer["choice"] = {"member": outcome.endpoint.member, "reason": outcome.reason}
        answer["refusal"] = None
    else:
        answer["choice"] = None
        answer["refusal"] = {"reason": outcome.reason, "retryAfterSeconds": outcome.retry_after}
    return answer


def _facts(context: Context, view: View, kind: Kind, name: str, tenant: str | None) -> CallFacts:
    resolution = view.resolve(kind, name)
    members = resolution.members if resolution is not None else ()
    if resolution is None and kind is Kind.RESOURCE:
        members = view.resource_fallback(name)
    bare = resolution.name if resolution is not None else name
    method = _METHOD_OF[kind]
    safe = resolution.safe_on if resolution is not None else frozenset(members)
    return CallFacts(
        members=members,
        safe_on=context.policy.members if method in READ_METHODS else safe,
        pinned=resolution.pinned if resolution is not None else None,
        tenant=tenant,
        route=context.routes.find(method, kind, bare),
    )
