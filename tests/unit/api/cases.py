"""Accepted and rejected manifests: one table for every place that validates a group.

The models (tests/unit/api) and the API server (tests/controlplane) must agree on every row.
"""

from __future__ import annotations

from tests.unit.api import deployment_cases as deployment
from tests.unit.api.case import BASE, SECRET, TENANT, Case, http, member, named, rejected, stdio
from tests.unit.api.longest import longest

__all__ = ["ACCEPTED", "BASE", "REFUSED_IN_FILES", "REJECTED", "SECRET", "TAKEN_IN_FILES", "Case"]

ACCEPTED: list[Case] = [
    Case("the smallest group", stdio()),
    Case(
        "every field of the spec",
        {
            "description": "Tells the time.\nIn several cities.",
            "strategy": "ConsistentHash",
            "consistentHash": {"key": "Header", "header": "X-Client-ID"},
            "minHealthy": 2,
            "startMembers": False,
            "health": {
                "intervalSeconds": 10,
                "timeoutSeconds": 5,
                "unhealthyThreshold": 2,
                "healthyThreshold": 1,
                "startupTimeoutSeconds": 60,
            },
            "circuitBreaker": {"failureThreshold": 10},
            "memberBreaker": {"failureThreshold": 0, "cooldownSeconds": 30},
            "recovery": {"initialBackoffSeconds": 1, "maxBackoffSeconds": 1},
            "retry": {
                "attempts": 0,
                "backoffMilliseconds": 0,
                "budgetPercent": 100,
                "trustAnnotations": False,
            },
            "tools": {"allow": ["read_*"], "deny": ["read_secret"]},
            "resources": {"allow": ["file:///*"], "deny": []},
            "prompts": {"allow": [], "deny": ["*"]},
            "names": {"prefix": "OnConflict", "separator": "._.."},
            "routes": [
                {
                    "match": {
                        "tools": ["read_*"],
                        "resources": ["file:///*"],
                        "prompts": ["ask"],
                        "methods": ["completion/complete"],
                    },
                    "members": ["b", "a"],
                    "requires": ["gpu"],
                    "retries": 2,
                    "backoffMilliseconds": 200,
                }
            ],
            "locality": {"region": "eu-west", "mode": "Ignore"},
            "canary": {"member": "c", "splitPercent": 10, "pinnedTenants": {"tenant:beta": "c"}},
            "tenant": {"header": "X-Tenant-ID"},
            "sessions": {"idleSeconds": 1800, "max": 10000},
            "limits": {
                "requestBytes": 4194304,
                "responseBytes": 8388608,
                "requestsInFlight": 1024,
                "queueMilliseconds": 0,
            },
            "allowedHosts": ["mcp.example.com", "mcp.example.com:8080", "[::1]:8080", "10.0.0.1"],
            "allowedOrigins": ["https://app.example.com", "http://localhost:6274"],
            "drain": {"timeoutSeconds": 30},
        },
    ),
    Case(
        "every field of a process",
        {
            "members": [
                {
                    "name": "0-9a-z",
                    "weight": 100,
                    "priority": 100,
                    "stdio": {
                        "command": ["uvx", "server", ""],
                        "env": [
                            {"name": "TZ", "value": ""},
                            {"name": "PEM", "value": "one\ntwo\n"},
                            {"name": "TOKEN", "valueFrom": SECRET},
                        ],
                        "workingDir": "/srv",
                        "idleSeconds": 300,
                        "memoryLimitMiB": 512,
                    },
                    "isolation": "PerSession",
                    "era": "Modern",
                    "region": "eu-west",
                    "resourceTags": ["gpu", "large"],
                    "provides": {"tools": ["t"], "resources": ["file:///x"], "prompts": ["p"]},
                    "tools": {"allow": ["*"], "deny": ["x"]},
                    "resources": {"allow": ["*"], "deny": ["x"]},
                    "prompts": {"allow": ["*"], "deny": ["x"]},
                    "maxConcurrentRequests": 1,
                    "connectTimeoutSeconds": 1,
                    "callTimeoutSeconds": 1,
                    "maxCallSeconds": 1,
                }
            ]
        },
    ),
    Case(
        "every field of an HTTP source",
        http(
            fallbackUrls=["http://10.0.0.2:8080/mcp?x=1", "http://[::1]:3001/"],
            headers=[
                {"name": "Authorization", "valueFrom": SECRET},
                {"name": "X-Team", "value": "search"},
            ],
            forwardHeaders=["X-Request-ID", "Accept-Language"],
            tls={"caSecretRef": {"name": "ca", "key": "ca.crt"}, "insecureSkipVerify": True},
        ),
    ),
    *[
        Case(
            f"the transport {transport}",
            {"members": [{"name": "a", "http": {"url": "http://x/sse"}, "transport": transport}]},
        )
        for transport in ("Auto", "StreamableHttp", "Sse")
    ],
    Case("a process whose transport is found out", member(transport="Auto")),
    Case("twenty characters in a member's name", member(name="a" * 20)),
    Case("one member and a canary", {"minHealthy": 2, "canary": {"member": "c"}, **TENANT}),
    Case(
        "hashing by tenant",
        {"strategy": "ConsistentHash", "consistentHash": {"key": "Tenant"}, **TENANT},
    ),
    Case("hashing without saying by what", {"strategy": "ConsistentHash"}),
    Case(
        "tenants pinned to any member",
        {"canary": {"member": "c", "pinnedTenants": {"x": "a"}}, **TENANT},
    ),
    Case("no members healthy but one", {"minHealthy": 3}),
    named("a"),
    named("a" * 40),
    named("search-2"),
    Case(
        "an owner of 64 members",
        {"members": [{"name": f"m{i}", "stdio": {"command": ["x"]}} for i in range(64)]},
    ),
    Case("every list and every mapping at its longest", longest()),
    *deployment.ACCEPTED,
]

_REFUSED_URLS = [
    "",
    "example.com/mcp",
    "ftp://example.com",
    "http://",
    "https:///mcp",
    "https://user:pass@example.com/mcp",
    "https://example.com/mcp#part",
    "https://example.com:99999/mcp",
    "https://example.com:port/mcp",
    "https://exa mple.com/",
    "https://example.com/\n",
    "https://${HOST}/mcp",
    "https://[::1/mcp",
]


M = "spec.members[0]"

REJECTED: list[Case] = [
    rejected("no members", {"members": []}, ("spec.members", "1 to 64")),
    rejected(
        "65 members",
        {"members": [{"name": f"m{i}", "stdio": {"command": ["x"]}} for i in range(65)]},
        ("spec.members", "1 to 64"),
    ),
    rejected("a member without a source", {"members": [{"name": "a"}]}, (M, "exactly one source")),
    rejected("two sources", member(http={"url": "http://x/"}), (M, "exactly one source")),
    rejected(
        "a member without a name",
        {"members": [{"stdio": {"command": ["x"]}}]},
        (f"{M}.name", "is required"),
    ),
    *[
        rejected(f"member name {name!r}", member(name=name), (f"{M}.name", "1 to 20"))
        for name in ("", "A", "a_b", "a.b", "-a", "a-", "a" * 21, "a\n", "é")
    ],
    rejected(
        "two members of one name",
        {"members": [{"name": "a", "stdio": {"command": ["x"]}}] * 2},
        ("spec.members[1].name", "must be unique: members[0]"),
    ),
    *[rejected(f"URL {url!r}", http(url=url), (f"{M}.http.url", "")) for url in _REFUSED_URLS],
    rejected(
        "a bad fallback URL",
        http(fallbackUrls=["x"]),
        (f"{M}.http.fallbackUrls[0]", "http or https"),
    ),
    rejected(
        "nine fallback URLs",
        http(fallbackUrls=["http://x/"] * 9),
        (f"{M}.http.fallbackUrls", "at most 8"),
    ),
    rejected(
        "a header name with a space",
        http(headers=[{"name": "X Y", "value": "x"}]),
        (f"{M}.http.headers[0].name", "name of an HTTP header"),
    ),
    rejected(
        "one header twice, written differently",
        http(headers=[{"name": "X-A", "value": "1"}, {"name": "x-a", "value": "2"}]),
        (f"{M}.http.headers[1].name", "unique without regard to case"),
    ),
    rejected(
        "a header of the protocol",
        http(headers=[{"name": "MCP-Session-Id", "value": "1"}]),
        (f"{M}.http.headers[0].name", "does not make itself"),
    ),
    *[
        rejected(
            f"forwarding {what}",
            http(headers=[{"name": "X-A", "value": "1"}], forwardHeaders=names),
            (f"{M}.http.forwardHeaders[{len(names) - 1}]", text),
        )
        for what, names, text in [
            ("one header twice, written differently", ["X-B", "x-b"], "unique without regard"),
            ("a header of the protocol", ["mcp-Session-id"], "makes itself"),
            ("credentials", ["X-B", "Authorization"], "neither a credential"),
            ("cookies", ["cookie"], "neither a credential"),
            ("a header that is set, too", ["x-a"], "nor one of headers"),
            ("a header without a name", [""], "name of an HTTP header"),
        ]
    ],
    rejected(
        "seventeen headers to forward",
        http(forwardHeaders=[f"X-{n}" for n in range(17)]),
        (f"{M}.http.forwardHeaders", "at most 16"),
    ),
    rejected(
        "a header value that would end the line",
        http(headers=[{"name": "X-A", "value": "1\r\nX-B: 2"}]),
        (f"{M}.http.headers[0].value", "control characters"),
    ),
    rejected(
        "a header without a value",
        http(headers=[{"name": "X-A"}]),
        (f"{M}.http.headers[0]", "exactly one of"),
    ),
    rejected(
        "a header with two values",
        http(headers=[{"name": "X-A", "value": "1", "valueFrom": SECRET}]),
        (f"{M}.http.headers[0]", "exactly one of value and valueFrom"),
    ),
    *[
        rejected(
            f"secret key {key!r}",
            stdio(env=[{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": key}}}]),
            (f"{M}.stdio.env[0].valueFrom.secretKeyRef.key", "key of a Secret"),
        )
        for key in ("", ".", "..", "../x", "a/b", "..data", "a b")
    ],
    *[
        rejected(
            f"secret name {name!r}",
            http(tls={"caSecretRef": {"name": name, "key": "ca"}}),
            (f"{M}.http.tls.caSecretRef.name", "name of a Secret"),
        )
        for name in ("", ".", "..", "../x", "a/b", "A")
    ],
    rejected(
        "a value from nowhere",
        stdio(env=[{"name": "T", "valueFrom": {}}]),
        (f"{M}.stdio.env[0].valueFrom.secretKeyRef", "is required"),
    ),
    rejected(
        "a variable twice",
        stdio(env=[{"name": "T", "value": "1"}, {"name": "T", "value": "2"}]),
        (f"{M}.stdio.env[1].name", "must be unique"),
    ),
    rejected(
        "a variable named by an equation",
        stdio(env=[{"name": "A=B", "value": ""}]),
        (f"{M}.stdio.env[0].name", "digit"),
    ),
    rejected(
        "a variable with a zero byte",
        stdio(env=[{"name": "A", "value": "\0"}]),
        (f"{M}.stdio.env[0].value", "control"),
    ),
    rejected(
        "a number as a variable",
        stdio(env=[{"name": "A", "value": 5}]),
        (f"{M}.stdio.env[0].value", "in quotes"),
    ),
    rejected("no command", stdio(command=[]), (f"{M}.stdio.command", "1 to 128")),
    rejected(
        "an empty program", stdio(command=[""]), (f"{M}.stdio.command[0]", "must name a program")
    ),
    rejected(
        "a command in one string",
        stdio(command="server --x"),
        (f"{M}.stdio.command", "must be a list"),
    ),
    rejected(
        "a negative memory limit",
        stdio(memoryLimitMiB=-1),
        (f"{M}.stdio.memoryLimitMiB", "from 0 to"),
    ),
    rejected(
        "a source that comes later", member(container={}), (f"{M}.container", "unknown field")
    ),
    rejected(
        "a store, which comes later",
        {"store": {}},
        ("spec.store", "allowed: description, replicas, strategy"),
    ),
    rejected(
        "affinity, which comes later",
        {"sessions": {"affinity": "Member"}},
        ("spec.sessions.affinity", "allowed: idleSeconds, max"),
    ),
    rejected("a misspelt field", member(wieght=2), (f"{M}.wieght", "did you mean weight?")),
    rejected(
        "the name of a field in Python",
        {"min_healthy": 1},
        ("spec.min_healthy", "did you mean minHealthy?"),
    ),
    rejected(
        "an unknown strategy",
        {"strategy": "roundrobin"},
        ("spec.strategy", "did you mean RoundRobin?"),
    ),
    rejected("a strategy that is no text", {"strategy": 1}, ("spec.strategy", "one of RoundRobin")),
    *[
        rejected(
            f"weight {weight!r}",
            member(weight=weight),
            (f"{M}.weight", "whole number from 1 to 100"),
        )
        for weight in (0, 101, "1", 1.5, True, [1], 10**30)
    ],
    *[
        rejected(
            f"startMembers {value!r}",
            {"startMembers": value},
            ("spec.startMembers", "true or false"),
        )
        for value in ("true", 1, 0, "yes")
    ],
    rejected(
        "an isolation in small letters",
        member(isolation="shared"),
        (f"{M}.isolation", "did you mean Shared?"),
    ),
    rejected(
        "a transport in capitals",
        {"members": [{"name": "a", "http": {"url": "http://x/sse"}, "transport": "SSE"}]},
        (f"{M}.transport", "did you mean Sse?"),
    ),
    rejected(
        "an HTTP transport for a process",
        member(transport="Sse"),
        (f"{M}.transport", "with http only"),
    ),
    rejected(
        "the modern era over the old transport",
        {
            "members": [
                {"name": "a", "http": {"url": "http://x/"}, "transport": "Sse", "era": "Modern"}
            ]
        },
        (f"{M}.era", "must be Auto or Legacy"),
    ),
    rejected(
        "an era that is a version",
        member(era="2026-07-28"),
        (f"{M}.era", "must be one of Auto, Legacy, Modern"),
    ),
    rejected("minHealthy of none", {"minHealthy": 0}, ("spec.minHealthy", "from 1 to 64")),
    rejected(
        "minHealthy over the members",
        {"minHealthy": 4},
        ("spec.minHealthy", "number of members, 3"),
    ),
    rejected(
        "minHealthy that counts the canary",
        {"minHealthy": 3, "canary": {"member": "c"}, **TENANT},
        ("spec.minHealthy", "other than the canary, 2"),
    ),
    rejected(
        "a canary alone",
        {**stdio(), "canary": {"member": "a"}, **TENANT},
        ("spec.minHealthy", "canary, 0"),
    ),
    rejected(
        "a canary without tenants",
        {"canary": {"member": "c"}},
        ("spec.canary", "needs spec.tenant"),
    ),
    rejected(
        "a canary that is no member",
        {"canary": {"member": "x"}, **TENANT},
        ("spec.canary.member", "a, b, c"),
    ),
    rejected(
        "a canary of more than all",
        {"canary": {"member": "c", "splitPercent": 101}, **TENANT},
        ("spec.canary.splitPercent", "from 0 to 100"),
    ),
    rejected(
        "a tenant pinned to no member",
        {"canary": {"member": "c", "pinnedTenants": {"t:x": "x"}}, **TENANT},
        ('spec.canary.pinnedTenants["t:x"]', "a, b, c"),
    ),
    rejected(
        "a tenant without a name",
        {"canary": {"member": "c", "pinnedTenants": {"": "c"}}, **TENANT},
        ('spec.canary.pinnedTenants[""]', "key must be text on one line"),
    ),
    rejected(
        "a tenant from a header with a colon",
        {"tenant": {"header": "X:"}},
        ("spec.tenant.header", "no colon"),
    ),
    rejected(
        "a route that matches nothing",
        {"routes": [{"match": {}}]},
        ("spec.routes[0].match", "at least one of"),
    ),
    rejected(
        "a route without a match",
        {"routes": [{"members": ["a"]}]},
        ("spec.routes[0].match", "is required"),
    ),
    rejected(
        "a route to no member",
        {"routes": [{"match": {"tools": ["*"]}, "members": ["a", "x"]}]},
        ("spec.routes[0].members[1]", "must be the name of a member: a, b, c"),
    ),
    rejected(
        "a route with one member twice",
        {"routes": [{"match": {"tools": ["*"]}, "members": ["a", "b", "a"]}]},
        ("spec.routes[0].members[2]", "must be unique"),
    ),
    rejected(
        "33 routes", {"routes": [{"match": {"tools": ["*"]}}] * 33}, ("spec.routes", "at most 32")
    ),
    rejected(
        "hashing by an unnamed header",
        {"consistentHash": {"key": "Header"}},
        ("spec.consistentHash", "needs header"),
    ),
    rejected(
        "a header that is not hashed",
        {"consistentHash": {"header": "X-A"}},
        ("spec.consistentHash.header", "key: Header only"),
    ),
    rejected(
        "hashing by tenant without tenants",
        {"strategy": "ConsistentHash", "consistentHash": {"key": "Tenant"}},
        ("spec.consistentHash.key", "needs spec.tenant"),
    ),
    *[
        rejected(
            f"separator {text!r}",
            {"names": {"separator": text}},
            ("spec.names.separator", "one to four"),
        )
        for text in ("", "-", "_____", "/", "__\n", ":")
    ],
    rejected(
        "waits in the wrong order",
        {"recovery": {"initialBackoffSeconds": 9, "maxBackoffSeconds": 3}},
        ("spec.recovery.initialBackoffSeconds", "at most maxBackoffSeconds (3)"),
    ),
    rejected(
        "locality without a region",
        {"locality": {"mode": "Prefer"}},
        ("spec.locality.region", "is required"),
    ),
    rejected(
        "a host with a path", {"allowedHosts": ["x/y"]}, ("spec.allowedHosts[0]", "host name")
    ),
    rejected(
        "an origin with a path",
        {"allowedOrigins": ["https://x/y"]},
        ("spec.allowedOrigins[0]", "without a path"),
    ),
    rejected(
        "an origin without a scheme",
        {"allowedOrigins": ["x.example"]},
        ("spec.allowedOrigins[0]", "scheme and host"),
    ),
    rejected(
        "a pattern with a control character",
        {"tools": {"deny": ["a\tb"]}},
        ("spec.tools.deny[0]", "one line"),
    ),
    rejected("a pattern that is no list", {"tools": {"deny": "x"}}, ("spec.tools.deny", "a list")),
    rejected("257 patterns", {"tools": {"deny": ["x"] * 257}}, ("spec.tools.deny", "at most 256")),
    rejected("a section that is a list", {"retry": []}, ("spec.retry", "a mapping of attempts")),
    rejected(
        "a bell in the description",
        {"description": "\x07"},
        ("spec.description", "control characters"),
    ),
    rejected(
        "an unknown version",
        {},
        ("apiVersion", "must be mcpgroup.dev/v1alpha1"),
        apiVersion="mcpgroup.dev/v1",
    ),
    rejected("another kind", {}, ("kind", "must be McpServerGroup"), kind="Deployment"),
    rejected("an unknown part", {}, ("stauts", "did you mean status?"), stauts={}),
    *[
        rejected(
            f"group name {name!r}"[:50],
            {},
            ("metadata.name", "lower-case letter"),
            metadata={"name": name},
        )
        for name in ("", "1a", "A", "a_b", "a.b", "-a", "a-", "a" * 41, "a\n")
    ],
    rejected("a group without a name", {}, ("metadata.name", "is required"), metadata={}),
    rejected(
        "two faults at once",
        {"minHealthy": "1", "strategy": "Fastest"},
        ("spec.minHealthy", "whole number"),
        ("spec.strategy", "one of"),
    ),
    *deployment.REJECTED,
]

REFUSED_IN_FILES: list[Case] = [
    rejected("a field without a value", {"strategy": None}, ("spec.strategy", "or left out")),
    rejected("a section without a value", {"locality": None}, ("spec.locality", "or left out")),
    rejected("weight 1.0", member(weight=1.0), (f"{M}.weight", "whole number from 1 to 100")),
]
"""What the API server reads as something good before it looks at it: null as nothing, 1.0 as 1."""

TAKEN_IN_FILES: list[Case] = [
    Case(
        "what kubectl get writes",
        manifest={
            "metadata": {
                "name": "time",
                "generateName": "ti",
                "namespace": "tools",
                "uid": "0b0a",
                "resourceVersion": "12",
                "generation": 3,
                "creationTimestamp": None,
                "labels": {"app": "x"},
                "annotations": {"a/b": "c"},
                "finalizers": ["x/y"],
                "ownerReferences": [{"kind": "X"}],
                "managedFields": [{"manager": "kubectl"}],
            }
        },
    ),
]
"""What the API server writes and does not take: fields of metadata that are its own."""
