"""The rules of `rules` and `pod_rules` in CEL, as the API server evaluates them.

A rule is evaluated at each object of the model that it is listed for, after defaults were filled
in; `schema` adds it there. Rules over keys of mappings are made from the keys' own constraints.
What one costs is bounded by the API server, as estimated from the bounds of lists and texts when
the CRD is installed, and as counted when a group is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mcpgroup_api.deployment import Gateway, Service
from mcpgroup_api.group import McpServerGroup, McpServerGroupSpec
from mcpgroup_api.members import EnvVariable, Header, HttpSource, Member, StdioSource
from mcpgroup_api.network import LabelRequirement, NetworkPeer
from mcpgroup_api.patterns import GROUP_NAME, PATTERNS, URL
from mcpgroup_api.pod_rules import RESERVED_PREFIXES, RESERVED_VARIABLES
from mcpgroup_api.podspec import PodVariable, Resources, Toleration
from mcpgroup_api.policies import ConsistentHash, Recovery, RouteMatch
from mcpgroup_api.rules import CREDENTIAL_HEADERS, OWN_HEADERS

if TYPE_CHECKING:
    from mcpgroup_api.fields import Model


class Rule(NamedTuple):
    """`self` in `rule` is the object; `field` is the JSON path of what is wrong, from there."""

    rule: str
    message: str
    field: str = ""

    def schema(self) -> dict[str, str]:
        """An entry of `x-kubernetes-validations`."""
        entry = {"rule": self.rule, "message": self.message}
        return {**entry, "fieldPath": self.field} if self.field else entry


def _texts(words: frozenset[str] | tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{word}'" for word in sorted(words)) + "]"


def _reserved(field: str) -> Rule:
    begins = " || ".join(f"k.startsWith('{prefix}')" for prefix in RESERVED_PREFIXES)
    return Rule(
        f"!has(self.{field}) || self.{field}.all(k, !({begins}))",
        f"keys of {field} must not begin with what the operator sets: "
        + " and ".join(RESERVED_PREFIXES),
        f".{field}",
    )


_ONE_VALUE: Final = Rule(
    "has(self.value) != has(self.valueFrom)", "must have exactly one of value and valueFrom"
)

CEL: Final[dict[type[Model], tuple[Rule, ...]]] = {
    McpServerGroup: (
        Rule(
            f"self.metadata.name.matches(r'{GROUP_NAME}') && self.metadata.name.size() <= 40",
            f"metadata.name must be {PATTERNS[GROUP_NAME]} (1 to 40 characters)",
        ),
    ),
    Header: (_ONE_VALUE,),
    EnvVariable: (_ONE_VALUE,),
    HttpSource: (
        Rule(
            "!has(self.headers) || [self.headers.map(h, h.name.lowerAscii())].all(names,"
            " names.all(n, names.exists_one(o, o == n)))",
            "names of headers must be unique without regard to case",
            ".headers",
        ),
        Rule(
            "!has(self.headers) || self.headers.all(h,"
            f" !(h.name.lowerAscii() in {_texts(OWN_HEADERS)}))",
            "headers must be none that the gateway makes itself",
            ".headers",
        ),
        Rule(
            "!has(self.forwardHeaders) || [self.forwardHeaders.map(h, h.lowerAscii())].all(names,"
            " names.all(n, names.exists_one(o, o == n)))",
            "forwardHeaders must be unique without regard to case",
            ".forwardHeaders",
        ),
        Rule(
            "!has(self.forwardHeaders) || self.forwardHeaders.all(h,"
            f" !(h.lowerAscii() in {_texts(OWN_HEADERS | CREDENTIAL_HEADERS)}))",
            "forwardHeaders must be neither credentials nor headers that the gateway makes itself",
            ".forwardHeaders",
        ),
        Rule(
            "!has(self.forwardHeaders) || !has(self.headers) ||"
            " [self.headers.map(h, h.name.lowerAscii())].all(names,"
            " !self.forwardHeaders.exists(h, h.lowerAscii() in names))",
            "forwardHeaders must be none of headers",
            ".forwardHeaders",
        ),
    ),
    StdioSource: (
        Rule(
            "self.command.size() == 0 || self.command[0].trim() != ''",
            "command must name a program",
            ".command",
        ),
    ),
    Member: (
        Rule("has(self.http) != has(self.stdio)", "must have exactly one source: http or stdio"),
        Rule(
            "self.era != 'Modern' || self.transport != 'Sse'",
            "era must be Auto or Legacy: the Sse transport is older than Modern",
            ".era",
        ),
        Rule(
            "!has(self.stdio) || self.transport == 'Auto'",
            "transport is allowed with http only: a process has its pipes",
            ".transport",
        ),
    ),
    ConsistentHash: (
        Rule(
            "self.key != 'Header' || has(self.header)",
            "key: Header needs header, as in {key: Header, header: X-Client-ID}",
        ),
        Rule(
            "self.key == 'Header' || !has(self.header)",
            "header is allowed with key: Header only",
            ".header",
        ),
    ),
    Recovery: (
        Rule(
            "self.initialBackoffSeconds <= self.maxBackoffSeconds",
            "initialBackoffSeconds must be at most maxBackoffSeconds",
            ".initialBackoffSeconds",
        ),
    ),
    RouteMatch: (
        Rule(
            " || ".join(
                f"(has(self.{field}) && self.{field}.size() > 0)"
                for field in ("tools", "resources", "prompts", "methods")
            ),
            "must name at least one of tools, resources, prompts and methods ('*' is all)",
        ),
    ),
    McpServerGroupSpec: (
        Rule(
            "!has(self.routes) || [self.members.map(m, m.name)].all(names,"
            " self.routes.all(r, !has(r.members) || r.members.all(n, n in names)))",
            "members of routes must be names of members",
            ".routes",
        ),
        Rule(
            "!has(self.canary) || self.members.exists(m, m.name == self.canary.member)",
            "canary.member must be the name of a member",
            ".canary.member",
        ),
        Rule(
            "!has(self.canary) || !has(self.canary.pinnedTenants) ||"
            " [self.members.map(m, m.name)].all(names,"
            " self.canary.pinnedTenants.all(t, self.canary.pinnedTenants[t] in names))",
            "canary.pinnedTenants must lead to names of members",
            ".canary.pinnedTenants",
        ),
        Rule(
            "!has(self.canary) || has(self.tenant)",
            "canary needs spec.tenant, as in tenant: {header: X-Tenant-ID}",
            ".canary",
        ),
        Rule(
            "self.minHealthy <= self.members.size() - (has(self.canary) ? 1 : 0)",
            "minHealthy must be at most the number of members other than the canary",
            ".minHealthy",
        ),
        Rule(
            "self.strategy != 'ConsistentHash' || !has(self.consistentHash)"
            " || self.consistentHash.key != 'Tenant' || has(self.tenant)",
            "consistentHash.key: Tenant needs spec.tenant, as in tenant: {header: X-Tenant-ID}",
            ".consistentHash",
        ),
    ),
    Service: (_reserved("annotations"),),
    Gateway: (_reserved("podAnnotations"), _reserved("podLabels")),
    PodVariable: (
        Rule(
            f"!(self.name in {_texts(RESERVED_VARIABLES)})",
            "name must be none that the operator sets: " + " and ".join(RESERVED_VARIABLES),
            ".name",
        ),
    ),
    Resources: (
        Rule(
            "!has(self.requests) || !has(self.limits) || self.requests.all(r,"
            " !(r in self.limits) || quantity(string(self.requests[r]))"
            ".compareTo(quantity(string(self.limits[r]))) <= 0)",
            "requests must be at most limits",
            ".requests",
        ),
    ),
    Toleration: (
        Rule(
            "self.operator != 'Exists' || !has(self.value) || self.value == ''",
            "value is allowed with operator: Equal only",
            ".value",
        ),
        Rule("self.operator == 'Exists' || has(self.key)", "without key needs operator: Exists"),
        Rule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "tolerationSeconds is allowed with effect: NoExecute only",
            ".tolerationSeconds",
        ),
    ),
    LabelRequirement: (
        Rule(
            "!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",
            "needs values with operator: In and NotIn",
        ),
        Rule(
            "self.operator in ['In', 'NotIn'] || !has(self.values) || self.values.size() == 0",
            "values is allowed with operator: In and NotIn only",
            ".values",
        ),
    ),
    NetworkPeer: (
        Rule(
            "(has(self.podSelector) || has(self.namespaceSelector)) != has(self.ipBlock)",
            "must have either ipBlock, or podSelector and namespaceSelector or one of them",
        ),
    ),
}
"""What holds for each object of a model, besides the constraints of its fields."""

CEL_OF_TEXTS: Final[dict[str, tuple[Rule, ...]]] = {
    URL: (
        Rule(
            "self.matches('^[Hh][Tt][Tt][Pp][Ss]?://[^/?]')",
            "must be an http or https URL with a host, as in https://example.com/mcp",
        ),
        Rule(
            "!self.matches('^[^/]*//[^/?]*@')",
            "must not hold credentials: give them as a header with valueFrom.secretKeyRef",
        ),
    ),
}
"""What is said of texts whose pattern is too long to read, by pattern."""
