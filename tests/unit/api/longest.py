"""A manifest in which every list and every mapping is as long as it may be, all at once."""

from __future__ import annotations

from typing import Any


def _names(count: int) -> list[str]:
    return [f"t{n}" for n in range(count)]


def _filter(count: int) -> dict[str, Any]:
    return {"allow": _names(count), "deny": _names(count)}


def _filters(count: int) -> dict[str, Any]:
    return {kind: _filter(count) for kind in ("tools", "resources", "prompts")}


def _of_every_kind(count: int) -> dict[str, Any]:
    return {kind: _names(count) for kind in ("tools", "resources", "prompts")}


def _map(count: int) -> dict[str, str]:
    return {f"k{n}": "v" for n in range(count)}


def _source(number: int) -> dict[str, Any]:
    """Half of the members are processes, half are at URLs."""
    if number % 2:
        variables = [{"name": f"V{n}", "value": "x"} for n in range(64)]
        return {"stdio": {"command": ["x"] * 128, "env": variables}}
    return {
        "http": {
            "url": "https://a.example.com/mcp",
            "fallbackUrls": [f"https://{n}.example.com/mcp" for n in range(8)],
            "headers": [{"name": _long("X", n, 128), "value": "x"} for n in range(32)],
            "forwardHeaders": [_long("F", n, 128) for n in range(16)],
        }
    }


def _long(word: str, number: int, length: int) -> str:
    return f"{word * (length - 3)}{number:03}"


def _member(number: int) -> dict[str, Any]:
    return {
        "name": _long("m", number, 20),
        **_source(number),
        "resourceTags": _names(32),
        "provides": _of_every_kind(64),
        **_filters(64),
    }


def _route(number: int) -> dict[str, Any]:
    """Its members are the last ones, which are found last."""
    return {
        "match": {**_of_every_kind(64), "methods": _names(32)},
        "members": [_long("m", 63 - n, 20) for n in range(16)],
        "requires": _names(32),
    }


def _peer(number: int) -> dict[str, Any]:
    if number % 2:
        return {"ipBlock": {"cidr": "10.0.0.0/8", "except": [f"10.{n}.0.0/16" for n in range(16)]}}
    expression = {"key": "k", "operator": "In", "values": _names(8)}
    selector = {"matchLabels": _map(8), "matchExpressions": [expression] * 8}
    return {"podSelector": selector, "namespaceSelector": selector}


def longest() -> dict[str, Any]:
    """The spec. Texts that rules compare are long, others short: it must fit into a request."""
    return {
        "members": [_member(n) for n in range(64)],
        **_filters(256),
        "routes": [_route(n) for n in range(32)],
        "canary": {
            "member": _long("m", 63, 20),
            "pinnedTenants": {_long("t", n, 253): _long("m", 63, 20) for n in range(256)},
        },
        "tenant": {"header": "X-Tenant-ID"},
        "allowedHosts": [f"{n}.example.com" for n in range(64)],
        "allowedOrigins": [f"https://{n}.example.com" for n in range(64)],
        "service": {"annotations": _map(16)},
        "gateway": {
            "resources": {
                kind: dict.fromkeys(("cpu", "memory", "ephemeral-storage"), "1")
                for kind in ("requests", "limits")
            },
            "nodeSelector": _map(16),
            "tolerations": [{"operator": "Exists"}] * 16,
            "affinity": {
                kind: _map(16) for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity")
            },
            "podAnnotations": _map(16),
            "podLabels": _map(16),
            "imagePullSecrets": [{"name": f"s{n}"} for n in range(16)],
            "env": [{"name": f"V{n}", "value": "x"} for n in range(64)],
        },
        "networkPolicy": {
            "enabled": True,
            "from": [_peer(n) for n in range(16)],
            "metricsFrom": [_peer(n) for n in range(16)],
        },
    }
