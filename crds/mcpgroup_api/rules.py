"""Rules over more than one field, as pure functions that return what is wrong and where.

A model raises its violations as one pydantic error of the type `RULES`, whose context has them
all: `check` does. Paths are relative to the object that the rule was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mcpgroup_api.group import McpServerGroupSpec
    from mcpgroup_api.members import EnvVariable, Header, Member
    from mcpgroup_api.policies import ConsistentHash, Recovery, RouteMatch

RULES: Final = "mcpgroup_rules"

_T = TypeVar("_T")

OWN_HEADERS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that are made for each hop: a manifest cannot set them."""

CREDENTIAL_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers of a client that are meant for the gateway and go nowhere else."""


class Violation(NamedTuple):
    """`path` has names on the wire and list indices; `text` says what is allowed."""

    path: tuple[str | int, ...]
    text: str


def check(model: _T, rule: Callable[[_T], Iterable[Violation]]) -> _T:
    """The model itself, or an error of type `RULES` with `ctx["violations"]`."""
    violations = tuple(rule(model))
    if violations:
        raise PydanticCustomError(
            RULES,
            "{text}",
            {"text": "; ".join(v.text for v in violations), "violations": violations},
        )
    return model


def one_value(entry: Header | EnvVariable) -> Iterator[Violation]:
    if (entry.value is None) == (entry.value_from is None):
        yield Violation((), "must have exactly one of value and valueFrom")


def member(entry: Member) -> Iterator[Violation]:
    if (entry.http is None) == (entry.stdio is None):
        yield Violation((), "must have exactly one source: http or stdio")
    if entry.http is not None:
        names = [header.name.lower() for header in entry.http.headers]
        for index, first in repeated(names):
            yield Violation(
                ("http", "headers", index, "name"),
                f"must be unique without regard to case: headers[{first}] has the same name",
            )
        for index, name in enumerate(names):
            if name in OWN_HEADERS:
                yield Violation(
                    ("http", "headers", index, "name"),
                    "must be a header that the gateway does not make itself",
                )
        forwarded = [name.lower() for name in entry.http.forward_headers]
        for index, first in repeated(forwarded):
            yield Violation(
                ("http", "forwardHeaders", index),
                f"must be unique without regard to case: forwardHeaders[{first}] is the same name",
            )
        for index, name in enumerate(forwarded):
            if name in OWN_HEADERS or name in CREDENTIAL_HEADERS or name in names:
                yield Violation(
                    ("http", "forwardHeaders", index),
                    "must be neither a credential, nor one of headers, nor a header that the "
                    "gateway makes itself",
                )
    if entry.era == "Modern" and entry.transport == "Sse":
        yield Violation(("era",), "must be Auto or Legacy: the Sse transport is older than Modern")
    if entry.stdio is not None:
        for index, first in repeated([variable.name for variable in entry.stdio.env]):
            yield Violation(
                ("stdio", "env", index, "name"),
                f"must be unique: env[{first}] has the same name",
            )
        if entry.transport != "Auto":
            yield Violation(("transport",), "is allowed with http only: a process has its pipes")
        if not entry.stdio.command[0].strip():
            yield Violation(("stdio", "command", 0), "must name a program")


def consistent_hash(policy: ConsistentHash) -> Iterator[Violation]:
    if policy.key == "Header" and policy.header is None:
        yield Violation((), "key: Header needs header, as in {key: Header, header: X-Client-ID}")
    if policy.key != "Header" and policy.header is not None:
        yield Violation(("header",), "is allowed with key: Header only")


def recovery(policy: Recovery) -> Iterator[Violation]:
    if policy.initial_backoff_seconds > policy.max_backoff_seconds:
        yield Violation(
            ("initialBackoffSeconds",),
            f"must be at most maxBackoffSeconds ({policy.max_backoff_seconds})",
        )


def route_match(match: RouteMatch) -> Iterator[Violation]:
    if not (match.tools or match.resources or match.prompts or match.methods):
        yield Violation(
            (), "must name at least one of tools, resources, prompts and methods ('*' is all)"
        )


def spec(group: McpServerGroupSpec) -> Iterator[Violation]:
    """The rules that look at members and policies together."""
    names = [entry.name for entry in group.members]
    for index, first in repeated(names):
        yield Violation(
            ("members", index, "name"), f"must be unique: members[{first}] has the same name"
        )

    known = f"must be the name of a member: {', '.join(dict.fromkeys(names))}"
    for number, route in enumerate(group.routes):
        for index, name in enumerate(route.members):
            if name not in names:
                yield Violation(("routes", number, "members", index), known)
        for index, first in repeated(route.members):
            yield Violation(
                ("routes", number, "members", index),
                f"must be unique: members[{first}] of this route is the same member",
            )

    stable = len(set(names))
    if group.canary is not None:
        if group.canary.member in names:
            stable -= 1
        else:
            yield Violation(("canary", "member"), known)
        for tenant, name in group.canary.pinned_tenants.items():
            if name not in names:
                yield Violation(("canary", "pinnedTenants", tenant), known)
        if group.tenant is None:
            yield Violation(("canary",), "needs spec.tenant, as in tenant: {header: X-Tenant-ID}")
    if group.min_healthy > stable:
        others = " other than the canary" if group.canary is not None else ""
        yield Violation(
            ("minHealthy",),
            f"must be at most the number of members{others}, {stable}; it is {group.min_healthy}",
        )

    by_tenant = group.strategy == "ConsistentHash" and group.consistent_hash.key == "Tenant"
    if by_tenant and group.tenant is None:
        yield Violation(
            ("consistentHash", "key"),
            "Tenant needs spec.tenant, as in tenant: {header: X-Tenant-ID}",
        )


def repeated(names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Index of each repetition, with the index of the first of its kind."""
    seen: dict[str, int] = {}
    for index, name in enumerate(names):
        first = seen.setdefault(name, index)
        if first != index:
            yield index, first
