"""Groups as an API server hands them to the operator, for the tests of what is made of them."""

from __future__ import annotations

from typing import Any

from mcpgroup_api import McpServerGroup
from mcpgroup_operator.children import ChildSettings

SETTINGS = ChildSettings(
    operator_mark="mcpgroup-system.mcpgroup",
    operator_namespace="mcpgroup-system",
    gateway_image="registry.example.com/mcpgroup/gateway:1.2.3",
)
TOKEN = "the-token-of-the-golden-manifests"  # noqa: S105 - of a test

SMALLEST: dict[str, Any] = {
    "members": [{"name": "search", "http": {"url": "https://search.example.com/mcp"}}]
}

SECRETS: dict[str, Any] = {
    "replicas": 1,
    "members": [
        {
            "name": "search",
            "http": {
                "url": "https://search.example.com/mcp",
                "headers": [
                    {
                        "name": "Authorization",
                        "valueFrom": {"secretKeyRef": {"name": "search", "key": "header"}},
                    }
                ],
                "tls": {"caSecretRef": {"name": "ca.of.the.company", "key": "ca.crt"}},
            },
        },
        {
            "name": "files",
            "stdio": {
                "command": ["npx", "-y", "server-filesystem"],
                "env": [
                    {"name": "MODE", "value": "plain"},
                    {
                        "name": "TOKEN",
                        "valueFrom": {"secretKeyRef": {"name": "files", "key": "token"}},
                    },
                    {
                        "name": "OTHER",
                        "valueFrom": {"secretKeyRef": {"name": "files", "key": "other"}},
                    },
                ],
            },
        },
    ],
}

EVERYTHING: dict[str, Any] = {
    "description": "Überall zu Hause: 检索 und\nDateien",
    "replicas": 3,
    "strategy": "WeightedRoundRobin",
    "minHealthy": 2,
    "members": [
        {
            "name": "inside",
            "weight": 80,
            "http": {
                "url": "http://inside.tools.svc:8080/mcp",
                "fallbackUrls": ["http://10.1.2.3:9000/mcp", "https://[2001:db8::1]/mcp"],
            },
        },
        {"name": "beside", "weight": 15, "http": {"url": "http://beside/mcp"}},
        {"name": "outside", "weight": 5, "http": {"url": "https://example.com/mcp"}},
        {"name": "time", "stdio": {"command": ["mcp-server-time"]}},
    ],
    "routes": [{"match": {"tools": ["read_*"]}, "members": ["inside", "outside"], "retries": 2}],
    "canary": {"member": "time", "splitPercent": 10, "pinnedTenants": {"on": "time"}},
    "tenant": {"header": "X-Tenant-ID"},
    "drain": {"timeoutSeconds": 45},
    "service": {
        "type": "NodePort",
        "port": 8443,
        "annotations": {"example.com/load-balancer": "internal"},
        "sessionAffinity": "ClientIP",
    },
    "gateway": {
        "image": "registry.example.com/own/gateway:2",
        "resources": {
            "requests": {"cpu": "1500m", "ephemeral-storage": "1Gi"},
            "limits": {"memory": "1024Mi", "ephemeral-storage": "2Gi"},
        },
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [
            {"key": "dedicated", "value": "mcp", "effect": "NoSchedule"},
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
        ],
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 10,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": {"example.com/noisy": "true"}},
                            "namespaceSelector": {},
                        },
                    }
                ]
            }
        },
        "podAnnotations": {"example.com/scrape": "true"},
        "podLabels": {"example.com/team": "search"},
        "serviceAccountName": "of-the-team",
        "imagePullSecrets": [{"name": "registry"}],
        "env": [
            {"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"},
            {"name": "HOME", "value": "/tmp/home"},  # noqa: S108  # noqa: S108
            {"name": "EMPTY"},
        ],
        "logLevel": "Debug",
        "requestLog": {
            "sampleRatio": 0.25,
            "file": "/tmp/requests.jsonl",  # noqa: S108
            "maxMegabytes": 50,
        },
    },
    "networkPolicy": {
        "enabled": True,
        "egress": True,
        "from": [
            {"namespaceSelector": {}, "podSelector": {"matchLabels": {"client": "mcp"}}},
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.9.0.0/16"]}},
        ],
        "metricsFrom": [
            {
                "namespaceSelector": {
                    "matchExpressions": [
                        {
                            "key": "kubernetes.io/metadata.name",
                            "operator": "In",
                            "values": ["monitoring"],
                        }
                    ]
                }
            }
        ],
    },
    "monitoring": {"podMonitor": True},
}

SPECS = {"smallest": SMALLEST, "secrets": SECRETS, "everything": EVERYTHING}
"""By name, also of the group."""


def group_of(
    spec: dict[str, Any],
    *,
    name: str = "search",
    namespace: str = "tools",
    uid: str = "11111111-2222-4333-8444-555555555555",
    generation: int = 1,
    annotations: dict[str, str] | None = None,
) -> McpServerGroup:
    """The group that an API server would have."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "generation": generation,
    }
    if annotations is not None:
        metadata["annotations"] = annotations
    return McpServerGroup.model_validate(
        {
            "apiVersion": "mcpgroup.dev/v1alpha1",
            "kind": "McpServerGroup",
            "metadata": metadata,
            "spec": spec,
        }
    )
