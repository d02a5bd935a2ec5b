"""What is allowed in a manifest and still probably not what its author meant."""

from __future__ import annotations

import posixpath
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mcpgroup_api.group import McpServerGroup, McpServerGroupSpec
    from mcpgroup_api.network import NetworkPeer

    _Found = Iterator[tuple[tuple[str | int, ...], str]]

_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ash", "ksh", "fish"})


class Advice(NamedTuple):
    """`path` has names on the wire and list indices, from the top of the manifest."""

    path: tuple[str | int, ...]
    text: str


def warnings(group: McpServerGroup) -> list[Advice]:
    """Everything worth telling about a valid group, in the order of the manifest."""
    spec = group.spec
    found = [*_ignored_by_strategy(spec), *_isolation(spec), *_times(spec), *_variables(spec)]
    found += _network_policy(spec)
    return [Advice(("spec", *path), text) for path, text in found]


def _ignored_by_strategy(spec: McpServerGroupSpec) -> _Found:
    weighted = spec.strategy in ("WeightedRoundRobin", "Random")
    prioritised = spec.strategy == "Priority"
    for index, member in enumerate(spec.members):
        if "weight" in member.model_fields_set and not weighted:
            yield (
                ("members", index, "weight"),
                f"has no effect: strategy {spec.strategy} ignores weights"
                " (WeightedRoundRobin and Random use them)",
            )
        if "priority" in member.model_fields_set and not prioritised:
            yield (
                ("members", index, "priority"),
                f"has no effect: strategy {spec.strategy} ignores priorities (Priority uses them)",
            )
    if "consistent_hash" in spec.model_fields_set and spec.strategy != "ConsistentHash":
        yield ("consistentHash",), f"has no effect with strategy {spec.strategy}"


def _network_policy(spec: McpServerGroupSpec) -> _Found:
    policy = spec.network_policy
    if policy.enabled:
        yield from _addresses("from", policy.from_)
        yield from _addresses("metricsFrom", policy.metrics_from)
        return
    for name, said in [
        ("egress", policy.egress),
        ("from", policy.from_),
        ("metricsFrom", policy.metrics_from),
    ]:
        if said:
            yield ("networkPolicy", name), "has no effect without networkPolicy.enabled: true"


def _addresses(field: str, peers: Sequence[NetworkPeer]) -> _Found:
    """Kubernetes refuses such a policy, and no rule in CEL can tell before version 1.31."""
    for index, peer in enumerate(peers):
        if peer.ip_block is None:
            continue
        block = ip_network(peer.ip_block.cidr, strict=False)
        for number, cidr in enumerate(peer.ip_block.except_):
            if not _is_part(ip_network(cidr, strict=False), block):
                path = ("networkPolicy", field, index, "ipBlock", "except", number)
                yield path, "is no part of cidr: Kubernetes refuses the NetworkPolicy"


def _is_part(inner: IPv4Network | IPv6Network, outer: IPv4Network | IPv6Network) -> bool:
    return (
        inner.version == outer.version
        and inner.prefixlen > outer.prefixlen
        and inner.network_address in outer
    )


def _isolation(spec: McpServerGroupSpec) -> _Found:
    """One such member is fine; with several, what a client built in one is not in the others."""
    written = [i for i, member in enumerate(spec.members) if member.isolation == "PerSession"]
    if len(written) > 1:
        names = ", ".join(spec.members[i].name for i in written)
        for index in written:
            yield (
                ("members", index, "isolation"),
                "PerSession on several members spreads one client session over them"
                f" ({names}): what it keeps in one is not in the others",
            )


def _times(spec: McpServerGroupSpec) -> _Found:
    health = spec.health
    if health.timeout_seconds > health.interval_seconds:
        yield (
            ("health", "timeoutSeconds"),
            f"is longer than intervalSeconds ({health.interval_seconds}): probes of one member do"
            f" not overlap, so a hanging one is noticed after"
            f" {health.unhealthy_threshold * health.timeout_seconds} s or more",
        )
    drain_written = "timeout_seconds" in spec.drain.model_fields_set
    for member in spec.members:
        call_written = "call_timeout_seconds" in member.model_fields_set
        shorter = spec.drain.timeout_seconds < member.call_timeout_seconds
        if drain_written and call_written and shorter:
            yield (
                ("drain", "timeoutSeconds"),
                f"is shorter than callTimeoutSeconds of member {member.name}"
                f" ({member.call_timeout_seconds}): a call may be cut off when a replica ends",
            )
            break
    for index, member in enumerate(spec.members):
        if member.call_timeout_seconds > member.max_call_seconds:
            yield (
                ("members", index, "maxCallSeconds"),
                f"ends a call before callTimeoutSeconds ({member.call_timeout_seconds}) can",
            )


def _variables(spec: McpServerGroupSpec) -> _Found:
    text = "is passed on as it is: variables such as ${NAME} are not expanded"
    for index, member in enumerate(spec.members):
        if member.http is not None:
            for number, header in enumerate(member.http.headers):
                if "${" in (header.value or ""):
                    yield ("members", index, "http", "headers", number, "value"), text
        if member.stdio is not None:
            for number, variable in enumerate(member.stdio.env):
                if "${" in (variable.value or ""):
                    yield ("members", index, "stdio", "env", number, "value"), text
            if posixpath.basename(member.stdio.command[0]) in _SHELLS:
                continue
            for number, argument in enumerate(member.stdio.command):
                if "${" in argument:
                    yield ("members", index, "stdio", "command", number), text
