"""Rows of the table about what the operator acts on: pods, Service, NetworkPolicy, monitoring."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.api.case import Case, gateway, network, rejected

G = "spec.gateway"
TMP = "/tmp"  # noqa: S108 - a name in a manifest
FROM = "spec.networkPolicy.from[0]"
EVERYWHERE: dict[str, Any] = {"podSelector": {}}

ACCEPTED: list[Case] = [
    Case("no replicas at all", {"replicas": 0}),
    Case("a hundred replicas", {"replicas": 100}),
    Case(
        "sections without anything in them", {k: {} for k in ("service", "gateway", "monitoring")}
    ),
    Case(
        "every field that the operator acts on",
        {
            "replicas": 3,
            "service": {
                "type": "LoadBalancer",
                "port": 8080,
                "annotations": {"cloud.example.com/internal": "true", "Team": ""},
                "sessionAffinity": "ClientIP",
            },
            "gateway": {
                "image": "registry.example.com:5000/mcpgroup/gateway:1.0@sha256:" + "0" * 64,
                "resources": {
                    "requests": {"cpu": "250m", "memory": "256Mi", "ephemeral-storage": "1e6"},
                    "limits": {"cpu": 2, "memory": "0.5Gi"},
                },
                "nodeSelector": {"kubernetes.io/arch": "amd64", "pool": ""},
                "tolerations": [
                    {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},
                    {"key": "team.dev/x", "operator": "Equal", "value": "a", "effect": "NoExecute"},
                    {"key": "slow", "effect": "NoExecute", "tolerationSeconds": 0},
                    {"operator": "Exists"},
                    {"operator": "Exists", "value": ""},
                ],
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"a": [1]}},
                    "podAffinity": {},
                    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
                },
                "podAnnotations": {"sidecar.example.com/inject": "true\n"},
                "podLabels": {"team": "search", "kubernetes.io/part-of": "x"},
                "serviceAccountName": "search.gateway",
                "imagePullSecrets": [{"name": "registry"}, {"name": "other"}],
                "env": [{"name": "HTTPS_PROXY", "value": "http://$(HOST)"}, {"name": "_a0"}],
                "logLevel": "Debug",
                "requestLog": {
                    "sampleRatio": 0.25,
                    "file": f"{TMP}/requests.log",
                    "maxMegabytes": 10,
                },
            },
            "networkPolicy": {
                "enabled": True,
                "egress": True,
                "from": [
                    {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "agent"}}},
                    {"namespaceSelector": {}},
                    {
                        "podSelector": {},
                        "namespaceSelector": {
                            "matchExpressions": [
                                {"key": "tier", "operator": "In", "values": ["a", ""]},
                                {"key": "x.dev/y", "operator": "NotIn", "values": ["b"]},
                                {"key": "z", "operator": "Exists"},
                                {"key": "z", "operator": "DoesNotExist", "values": []},
                            ]
                        },
                    },
                    {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
                    {"ipBlock": {"cidr": "2001:db8::/32"}},
                ],
                "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
            },
            "monitoring": {"podMonitor": True},
        },
    ),
    *[
        Case(f"the Service type {kind}", {"service": {"type": kind}})
        for kind in ("ClusterIP", "NodePort")
    ],
    Case("a Service without affinity", {"service": {"sessionAffinity": "None"}}),
    *[
        Case(f"a share of {share} of the requests", gateway(requestLog={"sampleRatio": share}))
        for share in (0, 1, 0.0, 1.0, 0.001)
    ],
    *[
        Case(f"the quantity {text!r}", gateway(resources={"limits": {"memory": text}}))
        for text in ("0", 0, 1, "1.", ".5", "1E", "1e3", "1E-2", "12Ki", "3P", "7m", "1n", 2**62)
    ],
    *[
        Case(f"{less!r} requested of {more!r}", gateway(resources=_resources))
        for less, more, _resources in [
            (less, more, {"requests": {"cpu": less}, "limits": {"cpu": more}})
            for less, more in [
                ("1", "1"),
                ("1000m", 1),
                ("1Ki", "1.024k"),
                ("1e3", "1k"),
                (0, "1n"),
            ]
        ]
    ],
    Case("a request without a limit", gateway(resources={"requests": {"cpu": 1}, "limits": {}})),
    *[
        Case(f"the addresses {cidr}", network({"ipBlock": {"cidr": cidr}}))
        for cidr in (
            "0.0.0.0/0",
            "10.1.2.3/32",
            "::/0",
            "fe80::1/128",
            "1:2:3:4:5:6:7:8/64",
            "1::/9",
        )
    ],
    Case("a label as long as labels are", gateway(podLabels={"a" * 63: "b" * 63})),
    Case("a key with a long domain", gateway(podLabels={f"{'a.' * 94}b/{'c' * 63}": ""})),
    Case(
        "keys that begin like ours",
        gateway(podLabels={"mcpgroup.dev": "", "my-mcpgroup.dev/x": ""}),
    ),
]

_KEYS: list[tuple[str, str]] = [
    ("", "an empty key"),
    ("a b", "a key with a space"),
    ("-a", "a key that begins with a dash"),
    ("a/", "a key without a name"),
    ("/a", "a key without its domain"),
    ("a/b/c", "a key with two slashes"),
    ("A.dev/b", "a key with a domain in capitals"),
    ("a" * 64, "a key of 64 characters"),
    ("a\n", "a key that ends a line"),
]

_FIELDS_WITH_KEYS = ["gateway.podLabels", "gateway.podAnnotations", "service.annotations"]


def _inside(key: str) -> str:
    return f".{key}" if key.isalnum() else f"[{json.dumps(key)}]"


def _at(path: str, value: Any) -> dict[str, Any]:
    section, name = path.split(".")
    return {section: {name: value}}


REJECTED: list[Case] = [
    *[
        rejected(f"{count!r} replicas", {"replicas": count}, ("spec.replicas", "from 0 to 100"))
        for count in (-1, 101, "2", True)
    ],
    rejected(
        "a Service of another type",
        {"service": {"type": "ExternalName"}},
        ("spec.service.type", "one of ClusterIP, NodePort, LoadBalancer"),
    ),
    *[
        rejected(
            f"the Service port {port}",
            {"service": {"port": port}},
            ("spec.service.port", "from 1 to 65535"),
        )
        for port in (0, 65536)
    ],
    rejected(
        "an affinity to cookies",
        {"service": {"sessionAffinity": "Cookie"}},
        ("spec.service.sessionAffinity", "one of None, ClientIP"),
    ),
    *[
        rejected(
            f"{what} in {path}",
            _at(path, {key: "x"}),
            (f"spec.{path}{_inside(key)}", "key must be letters, digits"),
        )
        for path in [*_FIELDS_WITH_KEYS, "gateway.nodeSelector"]
        for key, what in _KEYS
    ],
    *[
        rejected(
            f"{prefix}x in {path}",
            _at(path, {"ok": "x", f"{prefix}x": "x"}),
            (f'spec.{path}["{prefix}x"]', "what the operator sets: mcpgroup.dev/ and app.kub"),
        )
        for path in _FIELDS_WITH_KEYS
        for prefix in ("mcpgroup.dev/", "app.kubernetes.io/")
    ],
    *[
        rejected(
            f"the label value {value!r}"[:40],
            gateway(podLabels={"a": value}),
            (f"{G}.podLabels.a", "value of a label"),
        )
        for value in ("a b", "-a", "a-", "é", "a" * 64, "a\n")
    ],
    rejected(
        "a number as a label",
        gateway(podLabels={"a": 1}),
        (f"{G}.podLabels.a", "put it in quotes"),
    ),
    rejected(
        "seventeen labels",
        gateway(podLabels={f"a{n}": "" for n in range(17)}),
        (f"{G}.podLabels", "at most 16"),
    ),
    rejected(
        "an endless annotation",
        gateway(podAnnotations={"a": "x" * 8193}),
        (f"{G}.podAnnotations.a", "at most 8192"),
    ),
    *[
        rejected(f"the image {image!r}", gateway(image=image), (f"{G}.image", "an image, as in"))
        for image in ("", " a", "a b", "a\n", "-a", "é")
    ],
    *[
        rejected(
            f"the bad quantity {text!r}",
            gateway(resources={"limits": {"cpu": text}}),
            (f"{G}.resources.limits.cpu", "a quantity, as in 500m, 2 or 256Mi"),
        )
        for text in (
            "",
            "1 Mi",
            "-1",
            "+1",
            "1mi",
            "1KB",
            "1e",
            "e3",
            ".",
            "1e100",
            "1_000",
            "1" * 33,
        )
    ],
    *[
        rejected(
            f"the number {number} as a quantity",
            gateway(resources={"limits": {"cpu": number}}),
            (f"{G}.resources.limits.cpu", "a quantity"),
        )
        for number in (0.5, -1, True)
    ],
    rejected(
        "a resource that a gateway has no use for",
        gateway(resources={"limits": {"nvidia.com/gpu": 1}}),
        (f'{G}.resources.limits["nvidia.com/gpu"]', "key must be one of cpu, memory, ephemeral"),
    ),
    *[
        rejected(
            f"{less!r} requested of only {more!r}",
            gateway(resources={"requests": {name: less}, "limits": {name: more}}),
            (f"{G}.resources.requests.{name}", f"at most the limit of {name}"),
        )
        for name, less, more in [
            ("cpu", "1001m", 1),
            ("memory", "1Gi", "1G"),
            ("cpu", "1", "0.9999"),
            ("memory", "1e9", "1M"),
            ("cpu", "1u", "1n"),
        ]
    ],
    rejected(
        "resources of a claim",
        gateway(resources={"claims": []}),
        (f"{G}.resources.claims", "allowed: requests, limits"),
    ),
    rejected(
        "a toleration of nothing",
        gateway(tolerations=[{}]),
        (f"{G}.tolerations[0]", "without key needs operator: Exists"),
    ),
    rejected(
        "a toleration of any key with a value",
        gateway(tolerations=[{"operator": "Exists", "value": "a"}]),
        (f"{G}.tolerations[0].value", "operator: Equal only"),
    ),
    rejected(
        "a toleration for a while of what evicts nobody",
        gateway(tolerations=[{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}]),
        (f"{G}.tolerations[0].tolerationSeconds", "effect: NoExecute only"),
    ),
    rejected(
        "a toleration for a while of any effect",
        gateway(tolerations=[{"key": "a", "tolerationSeconds": 1}]),
        (f"{G}.tolerations[0].tolerationSeconds", "effect: NoExecute only"),
    ),
    rejected(
        "a toleration that compares",
        gateway(tolerations=[{"key": "a", "operator": "Gt", "value": "1"}]),
        (f"{G}.tolerations[0].operator", "one of Exists, Equal"),
    ),
    rejected(
        "a toleration of a bad key",
        gateway(tolerations=[{"key": "a b", "operator": "Exists"}]),
        (f"{G}.tolerations[0].key", "with or without a domain"),
    ),
    rejected(
        "an affinity to volumes",
        gateway(affinity={"volumeAffinity": {}}),
        (f"{G}.affinity.volumeAffinity", "allowed: nodeAffinity, podAffinity"),
    ),
    rejected(
        "an affinity that is a list",
        gateway(affinity={"nodeAffinity": []}),
        (f"{G}.affinity.nodeAffinity", "a mapping"),
    ),
    rejected(
        "a bad name of a ServiceAccount",
        gateway(serviceAccountName="A"),
        (f"{G}.serviceAccountName", "lower-case letters"),
    ),
    rejected(
        "one pull secret twice",
        gateway(imagePullSecrets=[{"name": "a"}, {"name": "a"}]),
        (f"{G}.imagePullSecrets[1].name", "must be unique: imagePullSecrets[0]"),
    ),
    rejected(
        "a pull secret without a name",
        gateway(imagePullSecrets=[{}]),
        (f"{G}.imagePullSecrets[0].name", "is required"),
    ),
    *[
        rejected(
            f"the variable {name!r}",
            gateway(env=[{"name": name, "value": "x"}]),
            (f"{G}.env[0].name", text),
        )
        for name, text in [
            ("POD_NAME", "none that the operator sets: POD_NAME and POD_NAMESPACE"),
            ("POD_NAMESPACE", "none that the operator sets"),
            ("", "not starting with a digit"),
            ("0A", "not starting with a digit"),
            ("A-B", "letters, digits and '_'"),
            ("A=B", "letters, digits and '_'"),
            ("..", "letters, digits and '_'"),
        ]
    ],
    rejected(
        "one variable of the gateway twice",
        gateway(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
        (f"{G}.env[1].name", "must be unique: env[0]"),
    ),
    rejected(
        "a variable from the downward API",
        gateway(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        (f"{G}.env[0].valueFrom", "unknown field"),
    ),
    rejected(
        "a log level in capitals",
        gateway(logLevel="DEBUG"),
        (f"{G}.logLevel", "did you mean Debug?"),
    ),
    *[
        rejected(
            f"a share of {share!r} of the requests, which is none",
            gateway(requestLog={"sampleRatio": share}),
            (f"{G}.requestLog.sampleRatio", "a number from 0 to 1"),
        )
        for share in (-0.1, 1.1, "0.5", True)
    ],
    *[
        rejected(
            f"requests logged to {file!r}",
            gateway(requestLog={"file": file}),
            (f"{G}.requestLog.file", "'-' or a file in /tmp"),
        )
        for file in (
            "",
            "a.log",
            "/var/log/x",
            "/a",
            *(f"{TMP}/{n}" for n in ("", "../a", "a/b", ".a")),
        )
    ],
    *[
        rejected(
            f"a request log of {size} MiB",
            gateway(requestLog={"maxMegabytes": size}),
            (f"{G}.requestLog.maxMegabytes", "from 1 to 1024"),
        )
        for size in (0, 1025)
    ],
    rejected(
        "a peer of no kind",
        network({}),
        (FROM, "must have either ipBlock, or podSelector and namespaceSelector"),
    ),
    rejected(
        "a peer of two kinds",
        network({**EVERYWHERE, "ipBlock": {"cidr": "10.0.0.0/8"}}),
        (FROM, "must have either ipBlock"),
    ),
    *[
        rejected(
            f"the bad addresses {cidr!r}",
            network({"ipBlock": {"cidr": cidr}}),
            (f"{FROM}.ipBlock.cidr", "a range of addresses"),
        )
        for cidr in (
            *("", "10.0.0.0", "10.0.0.0/33", "10.0.0/8", "10.0.0.256/8", "010.0.0.0/8", "a/8"),
            *(
                "10.0.0.0/8 ",
                "::/129",
                ":::/8",
                "1::2::3/8",
                "1:2:3:4:5:6:7/8",
                "::1.2.3.4/8",
                "/8",
            ),
        )
    ],
    rejected(
        "addresses except something else",
        network({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["x"]}}),
        (f"{FROM}.ipBlock.except[0]", "a range of addresses"),
    ),
    rejected(
        "a comparison with nothing",
        network({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
        (f"{FROM}.podSelector.matchExpressions[0]", "needs values with operator: In"),
    ),
    rejected(
        "existence with values",
        network(
            {
                "podSelector": {
                    "matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]
                }
            }
        ),
        (f"{FROM}.podSelector.matchExpressions[0].values", "operator: In and NotIn only"),
    ),
    rejected(
        "an expression without an operator",
        network({"podSelector": {"matchExpressions": [{"key": "a"}]}}),
        (f"{FROM}.podSelector.matchExpressions[0].operator", "is required: one of In, NotIn"),
    ),
    rejected(
        "labels to match with a bad key",
        network({"podSelector": {"matchLabels": {"a b": ""}}}),
        (f'{FROM}.podSelector.matchLabels["a b"]', "key must be"),
    ),
    rejected(
        "seventeen peers",
        network(*[EVERYWHERE] * 17),
        ("spec.networkPolicy.from", "at most 16"),
    ),
    rejected(
        "a NetworkPolicy that is said in words",
        {"networkPolicy": {"enabled": "yes"}},
        ("spec.networkPolicy.enabled", "true or false"),
    ),
    rejected(
        "a monitor of another kind",
        {"monitoring": {"serviceMonitor": True}},
        ("spec.monitoring.serviceMonitor", "allowed: podMonitor"),
    ),
]
